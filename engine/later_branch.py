"""Tells when the branch that a session opens on is not the one that was last talked on.

A killed process can leave an exit entry under an old leaf: as the last line it becomes the leaf, and hides what was
said on another branch.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from sessiondb.connection import select, select_value, snapshot
from sessiondb.rows import key_range
from sessiondb.stored_tree import SELECT_IS_ABOVE, SELECT_NEWEST_MESSAGE, StoredTree

SELECT_LEAF = """
SELECT pk FROM entry
WHERE pk BETWEEN :first AND :last AND entry_id IS NOT NULL
ORDER BY pk DESC LIMIT 1
"""

SELECT_DEPTH_AND_TIME = "SELECT depth, time_ms FROM entry WHERE pk = :pk"


class LaterBranch(NamedTuple):
    """Another branch's last entry, and the time of its newest message in ms since 1970."""

    leaf_id: str
    time_ms: int


def find_later_branch(db: apsw.Connection, session_pk: int) -> LaterBranch | None:
    """The branch with the newest message, unless the last entry's path holds that message."""
    keys = {"session_pk": session_pk, **key_range(session_pk)}
    with snapshot(db):
        newest_pk, _ = next(select(db, SELECT_NEWEST_MESSAGE, keys), (None, None))
        if newest_pk is None:
            return None
        depth, time_ms = next(select(db, SELECT_DEPTH_AND_TIME, {"pk": newest_pk}))
        leaf_pk = select_value(db, SELECT_LEAF, keys)
        if select_value(db, SELECT_IS_ABOVE, {"start": leaf_pk, "pk": newest_pk, "depth": depth}):
            return None
        leaf_id = StoredTree(db, session_pk).latest_message_leaf()
    return None if leaf_id is None else LaterBranch(leaf_id, time_ms)
