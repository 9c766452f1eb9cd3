"""JavaScript's ``undefined``, told apart from null, and what counts as true there."""

from __future__ import annotations

import enum
from typing import Any, Final, Literal


class Unset(enum.Enum):
    """The type of `UNSET`; an enum, so that a type checker can narrow ``value is UNSET``."""

    UNSET = "UNSET"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""No value at all: `encode_entry` leaves such a key out of an object and writes null for it in an array."""


def js_truthy(value: Any) -> bool:
    """Whether JavaScript takes the value for true: objects and arrays are, also empty ones; NaN is not."""
    return isinstance(value, dict | list) or (bool(value) and value == value)
