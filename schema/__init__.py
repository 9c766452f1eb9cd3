"""The shape of the database and of a session's lines: keys, tables, views, types of entries.

Import `sessiondb.schema.tables` for the SQLAlchemy metadata. `session-v3.schema.json`, beside this file, is the JSON
Schema of a line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .entries import *  # noqa: F403 - the list of names stands in entries.__all__ and nowhere else

REVISION = "0003"
"""The newest database revision this code knows; a test holds it equal to the newest file in migrations/versions."""

APPLICATION_ID = 0x73657364
"""`PRAGMA application_id` of our databases ("sesd"), so that another program's file is never taken for ours."""

SLOT_BITS = 32
"""A line's key is its session's key shifted left by this, plus its slot (0, 1, 2 …) in the session."""

LAST_SLOT = (1 << SLOT_BITS) - 1


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    entries = import_module(".entries", __name__)  # the store needs no types: they cost a command more than its query
    if name in entries.__all__:
        return getattr(entries, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
