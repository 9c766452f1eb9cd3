"""Rows that a live session writes, one append at a time: what it must know of the stored session is looked up as
needed, so that an append costs the same in a long one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw

from sessiondb.connection import as_column, select, select_value
from sessiondb.lines import DEPTH_SHIFT, UNKNOWN_STATE, Indexer, Place
from sessiondb.metadata import Dialect, Metadata
from sessiondb.rows import SELECT_PLACE, SELECT_PLACE_OF_ID, add_blob_references, longest_line, write_rows
from sessiondb.schema import LAST_SLOT, SLOT_BITS
from sessiondb.tree import SETTINGS
from sessiondb.untangle import untangle

SELECT_DEPTH = "SELECT depth FROM entry WHERE pk = :pk"

# Up to the nearest entry that knows: a settings entry is it itself, a compaction has its key. The walk ends there.
SELECT_STATE = """
WITH RECURSIVE above (pk, parent_pk, type, state_pk) AS (
  SELECT pk, parent_pk, type, state_pk FROM entry WHERE pk = :pk
  UNION ALL
  SELECT e.pk, e.parent_pk, e.type, e.state_pk FROM above a CROSS JOIN entry e ON e.pk = a.parent_pk
  WHERE a.type IS NULL OR a.type NOT IN (SELECT value FROM json_each(:known))
)
SELECT pk, type, state_pk FROM above
WHERE type IN (SELECT value FROM json_each(:known))
LIMIT 1
"""

KNOWN: Final = "[" + ",".join(f'"{kind}"' for kind in sorted(SETTINGS | {"compaction"})) + "]"

SELECT_LAST_SLOT = """
SELECT pk, CAST(raw AS BLOB), typeof(raw) = 'text' FROM line
WHERE pk BETWEEN :first AND :last
ORDER BY pk DESC LIMIT 1
"""

UPDATE_TEXT_LINE = "UPDATE line SET raw = CAST(:raw AS TEXT) WHERE pk = :pk"
UPDATE_BLOB_LINE = "UPDATE line SET raw = :raw WHERE pk = :pk"

SELECT_SLOT = "SELECT CAST(raw AS BLOB) FROM line WHERE pk = :pk"

UPDATE_EXTENDED = """
UPDATE session SET
  dialect = ?, dialect_reason = ?, title = ?, first_message = ?, modified_ms = ?, message_count = ?, entry_count = ?,
  line_count = ?, slot_count = ?, fault_count = ?, byte_count = ?, fold = ?, leaf_pk = ?, pointer_pk = NULL
WHERE pk = ?
"""

SELECT_AWAITED = """
SELECT DISTINCT parent_id FROM entry
WHERE pk BETWEEN :first AND :last AND parent_pk IS NULL AND parent_id IS NOT NULL
"""

SELECT_STORED_PLACE = "SELECT slot_count, byte_count, rewrites, fold FROM session WHERE pk = :pk"

UPDATE_POINTER = """
UPDATE session SET pointer_pk = coalesce(
  (SELECT max(pk) FROM entry WHERE session_pk = :session_pk AND entry_id = :entry_id), 0
)
WHERE pk = :session_pk
"""

SELECT_POINTER = """
SELECT s.pointer_pk, e.entry_id
FROM session s LEFT JOIN entry e ON e.pk = s.pointer_pk
WHERE s.pk = :session_pk
"""

StoredPlace = tuple[int, int, int, str]
"""Where a stored session ends: slots, bytes, how often it was rewritten, and its fold."""


def place_of(db: apsw.Connection, session_pk: int) -> StoredPlace | None:
    """Where the stored session ends; any change of the session changes that. None when it is gone."""
    return next(select(db, SELECT_STORED_PLACE, {"pk": session_pk}), None)


def resume(db: apsw.Connection, session_pk: int) -> Indexer:
    """An Indexer at the end of a session that is there; it asks the database for what lies before."""
    slot, line, offset, fold = next(select(db, SELECT_PLACE, {"pk": session_pk}))
    levels, metadata = _Levels(db, session_pk, slot), Metadata.from_json(fold)
    place = Place(slot, line, offset, levels, _Slots(db, session_pk, metadata), levels.find_state)
    return Indexer(session_pk, metadata, place, max_line=longest_line(db))


def note_absent(indexer: Indexer, entry_id: str | None) -> None:
    """Nobody has this id in the session as the indexer knows it: the next line that has it need not be looked for."""
    assert isinstance(indexer.place.slot_of, _Slots)
    indexer.place.slot_of.absent = entry_id


def end_last_line(db: apsw.Connection, indexer: Indexer) -> None:
    """Give the session's last line its newline when it lacks one, so that no append is joined to it.

    The imported bytes end before it: they are given back as they came.
    """
    first = indexer.session_pk << SLOT_BITS
    last = first + indexer.place.slot - 1
    for pk, raw, is_text in select(db, SELECT_LAST_SLOT, {"first": first, "last": last}):
        if not raw.endswith(b"\n"):
            db.execute(UPDATE_TEXT_LINE if is_text else UPDATE_BLOB_LINE, {"pk": pk, "raw": raw + b"\n"})
            indexer.place.offset += 1


def extend_session(
    db: apsw.Connection, indexer: Indexer, lines: Iterable[bytes], before: StoredPlace
) -> StoredPlace | None:  # fmt: skip
    """Write entries' lines behind a stored session: their rows, and what they change of the whole.

    The leaf pointer is at the last entry then. `before` is where the session ended, as by `place_of`; returned is where
    it ends now, None when parents changed further up, and the indexer is of no more use. ValueError when a line gave
    no entry to be found again.
    """
    slots = indexer.place.slot_of
    assert isinstance(slots, _Slots)
    untangles = False
    for line in lines:
        indexer.add(line)
        rows = indexer.take_rows()
        if len(rows.entries) != len(rows.text_lines) + len(rows.blob_lines):
            raise ValueError("the line of an entry cannot be read back; it was not written")
        write_rows(db, rows)  # before the next one is derived: that may look for the settings above it
        untangles = untangles or any(entry[2] in slots.awaited for entry in rows.entries)
    if untangles:
        untangle(db, indexer)
    add_blob_references(db, indexer)
    indexer.blobs.clear()  # those are noted
    fold = _update(db, indexer)
    slots_and_bytes = indexer.place.slot, indexer.place.offset
    return None if untangles else (*slots_and_bytes, before[2], fold)


def set_dialect(db: apsw.Connection, session_pk: int, dialect: Dialect) -> bool:
    """Give a stored session the dialect that was asked for now; False when it has it."""
    indexer = resume(db, session_pk)
    if indexer.metadata.dialect_given == dialect:
        return False
    indexer.metadata.dialect_given = dialect
    _update(db, indexer)
    return True


def _update(db: apsw.Connection, indexer: Indexer) -> str:
    """Write what is known of the whole session; its fold is returned."""
    metadata, place, pk = indexer.metadata, indexer.place, indexer.session_pk
    dialect, reason = metadata.dialect
    leaf = metadata.leaf_slot
    fold = metadata.to_json()
    db.execute(
        UPDATE_EXTENDED,
        (
            dialect, reason, metadata.title, metadata.first_message, metadata.modified_ms, metadata.message_count,
            metadata.entry_count, place.line, place.slot, metadata.fault_count, place.offset, fold,
            None if leaf is None else (pk << SLOT_BITS) + leaf, pk,
        ),
    )  # fmt: skip
    return fold


def set_pointer(db: apsw.Connection, session_pk: int, leaf_id: str | None) -> None:
    """Remember where the leaf of the session is; None: before its first entry."""
    entry_id = None if leaf_id is None else as_column(leaf_id)
    db.execute(UPDATE_POINTER, {"session_pk": session_pk, "entry_id": entry_id})


def saved_pointer(db: apsw.Connection, session_pk: int) -> tuple[int | None, str | None]:
    """The entry that the saved leaf pointer names, by key and id; (None, None): the last, (0, None): before all."""
    return next(select(db, SELECT_POINTER, {"session_pk": session_pk}), (None, None))


class _Slots(dict[str, int]):
    """Slot of each entry id, the last of several; filled as it is asked."""

    def __init__(self, db: apsw.Connection, session_pk: int, metadata: Metadata) -> None:
        super().__init__()
        self._db, self._session_pk = db, session_pk
        first = session_pk << SLOT_BITS
        found = select(db, SELECT_AWAITED, {"first": first, "last": first + LAST_SLOT}) if metadata.tangled else ()
        self.awaited = frozenset(parent_id for (parent_id,) in found)  # ids that orphans name as their parent
        self.absent: str | None = None  # an id that was looked for and is not there

    def get(self, entry_id: str, default: Any = None) -> Any:
        slot = super().get(entry_id)
        if slot is None:
            pk = select_value(self._db, SELECT_PLACE_OF_ID, {"session_pk": self._session_pk, "id": as_column(entry_id)})
            if pk is None:
                return default
            slot = self[entry_id] = pk - (self._session_pk << SLOT_BITS)
        return slot

    def __contains__(self, entry_id: object) -> bool:
        return super().__contains__(entry_id) or (entry_id != self.absent and self.get(str(entry_id)) is not None)


class _Levels(dict[int, int]):
    """Level of each slot; see `lines.ROOT_LEVEL`."""

    def __init__(self, db: apsw.Connection, session_pk: int, end: int) -> None:
        super().__init__()
        self._db, self._base, self._end = db, session_pk << SLOT_BITS, end

    def append(self, level: int) -> None:
        self[self._end] = level
        self._end += 1

    def __missing__(self, slot: int) -> int:
        depth = select_value(self._db, SELECT_DEPTH, {"pk": self._base + slot})
        level: int = (depth << DEPTH_SHIFT) + UNKNOWN_STATE  # only settings and compactions ask, seldom
        self[slot] = level
        return level

    def find_state(self, slot: int) -> int:
        """The state of a slot, found by walking up to an entry that knows."""
        found = next(select(self._db, SELECT_STATE, {"pk": self._base + slot, "known": KNOWN}), None)
        state_pk = None if found is None else found[2] if found[1] == "compaction" else found[0]
        return 0 if state_pk is None else state_pk - self._base + 1
