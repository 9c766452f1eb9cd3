"""Parents in the sessions where file order alone does not tell them: ids that come twice, parents that come later.

Clients look an id up in an index where the last entry of the file wins. So do we, and then break what would loop: of
the entries of a cycle the last in the file, the one that closed it, becomes a root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import apsw

from sessiondb.connection import select
from sessiondb.schema import LAST_SLOT, SLOT_BITS

if TYPE_CHECKING:
    from sessiondb.lines import FaultRow, Indexer

SELECT_LINKS = """
SELECT pk, entry_id, parent_id, parent_pk, depth FROM entry
WHERE pk BETWEEN :first AND :last
ORDER BY pk
"""

UPDATE_LINK = "UPDATE entry SET parent_pk = ?, depth = ? WHERE pk = ?"

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


def untangle(db: apsw.Connection, indexer: Indexer) -> list[FaultRow]:
    """Set parent and depth of every stored entry of the session, acyclic, and store what is wrong as faults.

    Those that were not known before are returned.
    """
    first = indexer.session_pk << SLOT_BITS
    keys = {"first": first, "last": first + LAST_SLOT}
    links = list(select(db, SELECT_LINKS, keys))
    last_of = {entry_id: pk for pk, entry_id, *_ in links if entry_id is not None}
    parents: dict[int, int | None] = {pk: last_of.get(parent) for pk, _, parent, _, _ in links}
    cut = list(_closing_entries(parents))
    for pk in cut:
        parents[pk] = None
    depths = _depths(parents)
    db.executemany(
        UPDATE_LINK,
        [
            (parents[pk], depths[pk], pk)
            for pk, _, _, parent_pk, depth in links
            if (parents[pk], depths[pk]) != (parent_pk, depth)
        ],
    )
    known = set(select(db, SELECT_TREE_FAULTS, {"pk": indexer.session_pk}))
    db.execute(DELETE_TREE_FAULTS, {"pk": indexer.session_pk})
    indexer.metadata.fault_count -= db.changes()
    wrong = dict.fromkeys(cut, ("cycle", "its parents lead back to itself; a root here, where clients never return"))
    for pk, _, parent, _, _ in links:
        if parent is not None and parent not in last_of:
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


def _closing_entries(parents: Mapping[int, int | None]) -> Iterator[int]:
    """The last entry of each cycle; every entry is walked over once."""
    settled: set[int] = set()
    for start in parents:
        walk: list[int] = []
        on_walk: set[int] = set()
        at: int | None = start
        while at is not None and at not in settled and at not in on_walk:
            walk.append(at)
            on_walk.add(at)
            at = parents[at]
        if at in on_walk:
            yield max(walk[walk.index(at) :])
        settled |= on_walk


def _depths(parents: Mapping[int, int | None]) -> dict[int, int]:
    """How many ancestors each entry has; the links must be acyclic."""
    depths: dict[int, int] = {}
    for start in parents:
        walk: list[int] = []
        at: int | None = start
        while at is not None and at not in depths:
            walk.append(at)
            at = parents[at]
        depth = -1 if at is None else depths[at]
        for pk in reversed(walk):
            depth += 1
            depths[pk] = depth
    return depths
