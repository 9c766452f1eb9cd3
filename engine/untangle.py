"""Parents in the sessions where file order alone does not tell them: ids that come twice, parents that come later.

Clients look an id up in an index where the last entry of the file wins. So do we, and then break what would loop: of
the entries of a cycle the last in the file, the one that closed it, becomes a root.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, NamedTuple

import apsw

from sessiondb.connection import select
from sessiondb.schema import LAST_SLOT, SLOT_BITS
from sessiondb.tree import SETTINGS, closing_entries

if TYPE_CHECKING:
    from sessiondb.lines import FaultRow, Indexer

SELECT_LINKS = """
SELECT pk, entry_id, parent_id, type, parent_pk, depth, state_pk FROM entry
WHERE pk BETWEEN :first AND :last
ORDER BY pk
"""

UPDATE_LINK = "UPDATE entry SET parent_pk = ?, depth = ?, state_pk = ? WHERE pk = ?"

SELECT_TREE_FAULTS = """
SELECT session_pk, line, offset, kind, message FROM fault
WHERE session_pk = :pk AND kind IN ('unknown-parent', 'cycle')
ORDER BY line
"""

DELETE_TREE_FAULTS = "DELETE FROM fault WHERE session_pk = :pk AND kind IN ('unknown-parent', 'cycle')"

SELECT_EXTENTS = """
SELECT pk, length(CAST(raw AS BLOB)), substr(CAST(raw AS BLOB), -1) = x'0a' FROM line
WHERE pk BETWEEN :first AND :last
ORDER BY pk
"""

INSERT_FAULT = "INSERT INTO fault (session_pk, line, offset, kind, message) VALUES (?, ?, ?, ?, ?)"


class Level(NamedTuple):
    """Where an entry stands: how many ancestors it has, and the nearest settings entry at or above it."""

    depth: int
    state: int | None


def untangle(db: apsw.Connection, indexer: Indexer) -> list[FaultRow]:
    """Set parent, depth and state of every stored entry of the session, acyclic, and store what is wrong as faults.

    Those that were not known before are returned.
    """
    first = indexer.session_pk << SLOT_BITS
    keys = {"first": first, "last": first + LAST_SLOT}
    links = list(select(db, SELECT_LINKS, keys))
    last_of = {entry_id: pk for pk, entry_id, *_ in links if entry_id is not None}
    parents: dict[int, int | None] = {pk: last_of.get(parent) if parent else None for pk, _, parent, *_ in links}
    cut = list(closing_entries(parents))
    for pk in cut:
        parents[pk] = None
    levels = _levels(parents, {pk for pk, _, _, kind, *_ in links if kind in SETTINGS})
    derived = {pk: _link(pk, kind, parents, levels) for pk, _, _, kind, *_ in links}
    db.executemany(UPDATE_LINK, [(*derived[pk], pk) for pk, _, _, _, *held in links if derived[pk] != tuple(held)])
    known = set(select(db, SELECT_TREE_FAULTS, {"pk": indexer.session_pk}))
    db.execute(DELETE_TREE_FAULTS, {"pk": indexer.session_pk})
    indexer.metadata.fault_count -= db.changes()
    wrong = dict.fromkeys(cut, ("cycle", "its parents lead back to itself; a root here, where clients never return"))
    for pk, _, parent, *_ in links:
        if parent and parent not in last_of:
            wrong[pk] = ("unknown-parent", f"no entry has its parent's id {parent:.40}; a root, as in the clients")
    faults: list[FaultRow] = []
    line, offset = 1, 0
    for pk, length, ends in select(db, SELECT_EXTENTS, keys) if wrong else ():
        if pk in wrong:
            faults.append((indexer.session_pk, line, offset, *wrong[pk]))
        line += ends
        offset += length
    db.executemany(INSERT_FAULT, faults)
    indexer.metadata.fault_count += len(faults)
    return [fault for fault in faults if fault not in known]


def _link(
    pk: int, kind: str | None, parents: Mapping[int, int | None], levels: Mapping[int | None, Level]
) -> tuple[int | None, int, int | None]:
    """parent_pk, depth and state_pk of an entry."""
    parent = parents[pk]
    keeps_state = kind in SETTINGS or kind == "compaction"
    return parent, levels[pk].depth, levels[parent].state if keeps_state else None


def _levels(parents: Mapping[int, int | None], settings: Set[int]) -> dict[int | None, Level]:
    """The level of each entry, and of None, above all roots; the links must be acyclic."""
    levels: dict[int | None, Level] = {None: Level(-1, None)}
    for start in parents:
        walk: list[int] = []
        at: int | None = start
        while at not in levels:
            assert at is not None
            walk.append(at)
            at = parents[at]
        depth, state = levels[at]
        for pk in reversed(walk):
            depth, state = depth + 1, pk if pk in settings else state
            levels[pk] = Level(depth, state)
    return levels
