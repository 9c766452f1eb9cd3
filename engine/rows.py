"""Writes and reads the rows of sessions, lines, entries and faults. Callers hold the transaction."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import apsw

from sessiondb.connection import as_column, select, select_value, transaction
from sessiondb.errors import SessionNotFoundError
from sessiondb.lineage import link_lineage, link_parents, naming
from sessiondb.lines import DEPTH_SHIFT, ROOT_LEVEL, STATE_MASK, FaultRow, Indexer, Place, Rows, blob_references
from sessiondb.metadata import Metadata
from sessiondb.schema import LAST_SLOT, SLOT_BITS
from sessiondb.text_index import DELETE_BLOCKS, TextRow, delete_texts, write_texts
from sessiondb.tree import SETTINGS
from sessiondb.untangle import untangle

RESERVE_SESSION_KEYS = """
UPDATE state SET value = value + :amount WHERE name = 'next session'
RETURNING value - :amount
"""

INSERT_SESSION = """
INSERT INTO session (
  pk, id, dialect, dialect_reason, version, message_count, entry_count, line_count, slot_count, fault_count, byte_count,
  digest, imported_bytes, id_hint, dialect_given, folder, fold, imported_ms, staged_by
)
VALUES (
  :pk, '', '', '', 0, 0, 0, 0, 0, 0, 0,
  x'', 0, :id_hint, :dialect_given, :folder, '', :imported_ms, :staged_by
)
"""

UPDATE_SESSION = """
UPDATE session SET
  id = :id, dialect = :dialect, dialect_reason = :dialect_reason, version = :version, cwd = :cwd, title = :title,
  first_message = :first_message, parent_session = :parent_session, created_ms = :created_ms,
  modified_ms = :modified_ms, message_count = :message_count, entry_count = :entry_count, line_count = :line_count,
  slot_count = :slot_count, fault_count = :fault_count, byte_count = :byte_count, digest = :digest,
  imported_bytes = :imported_bytes, fold = :fold, leaf_pk = :leaf_pk, imported_ms = :imported_ms, staged_by = NULL
WHERE pk = :pk
"""

# Positional parameters in the statements that run for each line: named ones would cost a dictionary each.
INSERT_TEXT_LINE = "INSERT INTO line (pk, raw) VALUES (?, CAST(? AS TEXT))"
INSERT_BLOB_LINE = "INSERT INTO line (pk, raw) VALUES (?, ?)"

INSERT_ENTRY = """
INSERT INTO entry (
  pk, session_pk, entry_id, parent_id, parent_pk, depth, type, time_ms,
  role, provider, model, tool, stop_reason, input, output, cache_read, cache_write, cost, state_pk
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

ROWS_AT_ONCE: Final = 16
"""Rows in one statement: finding the prepared statement and stepping it costs as much as binding ten values."""

INSERT_TEXT_LINES = INSERT_TEXT_LINE + ", (?, CAST(? AS TEXT))" * (ROWS_AT_ONCE - 1)
INSERT_ENTRIES = INSERT_ENTRY + f", ({', '.join('?' * 19)})" * (ROWS_AT_ONCE - 1)

INSERT_FAULT = "INSERT INTO fault (session_pk, line, offset, kind, message) VALUES (?, ?, ?, ?, ?)"

INSERT_BLOB_REFERENCE = "INSERT OR IGNORE INTO blob_reference (session_pk, hash) VALUES (?, ?)"

SELECT_LINES = "SELECT CAST(raw AS BLOB) FROM line WHERE pk BETWEEN :first AND :last ORDER BY pk"

SELECT_IMPORTED = "SELECT digest, imported_bytes, imported_ms, original_slots, pointer_pk FROM session WHERE pk = :pk"

SELECT_STORED_LINES = """
SELECT pk, CAST(raw AS BLOB), typeof(raw) = 'text' FROM line
WHERE pk BETWEEN :first AND :last
ORDER BY pk
"""

SELECT_ORIGINAL_LINES = """
SELECT pk, CAST(raw AS BLOB) FROM original
WHERE pk BETWEEN :first AND :last
UNION ALL
SELECT l.pk, CAST(l.raw AS BLOB) FROM line l
WHERE l.pk BETWEEN :first AND :last AND NOT EXISTS (SELECT 1 FROM original o WHERE o.pk = l.pk)
ORDER BY 1
"""

SELECT_KEPT = "SELECT pk, raw FROM original WHERE pk BETWEEN :first AND :last ORDER BY pk"

INSERT_ORIGINAL = "INSERT OR IGNORE INTO original (pk, raw) VALUES (?, ?)"

UPDATE_REWRITTEN = """
UPDATE session SET original_slots = :original_slots, pointer_pk = :pointer_pk, rewrites = rewrites + 1
WHERE pk = :pk
"""

SELECT_ENTRY_ID = "SELECT entry_id FROM entry WHERE pk = :pk"

SELECT_PLACE = "SELECT slot_count, line_count, byte_count, fold FROM session WHERE pk = :pk"

SELECT_POSITIONS = """
SELECT pk, entry_id, parent_pk, depth, type FROM entry
WHERE pk BETWEEN :first AND :last
ORDER BY pk
"""

SELECT_PLACE_OF_ID = """
SELECT pk, depth FROM entry
WHERE session_pk = :session_pk AND entry_id = :id
ORDER BY pk DESC LIMIT 1
"""

DELETE_SESSION = "DELETE FROM session WHERE pk = :pk"
DELETE_ENTRIES = "DELETE FROM entry WHERE pk BETWEEN :first AND :last"
DELETE_LINE = "DELETE FROM line WHERE pk = ?"
DELETE_LINES = "DELETE FROM line WHERE pk BETWEEN :first AND :last"
DELETE_FAULTS = "DELETE FROM fault WHERE session_pk = :pk"
DELETE_BLOB_REFERENCES = "DELETE FROM blob_reference WHERE session_pk = :pk"

IS_ANY_TEXT_INDEXED = "SELECT EXISTS (SELECT 1 FROM text_block)"

SELECT_SESSIONS = "SELECT pk FROM session WHERE staged_by IS NULL ORDER BY pk"

SELECT_STAGED = """
SELECT pk, staged_by FROM session INDEXED BY ix_session_staged
WHERE staged_by IS NOT NULL
ORDER BY pk
"""

KEYS_AT_ONCE: Final = 256

THIS_RUN: Final = uuid.uuid4().hex


def key_range(session_pk: int) -> dict[str, int]:
    """The keys that the session's lines and entries can have."""
    first = session_pk << SLOT_BITS
    return {"first": first, "last": first + LAST_SLOT}


def reserve_session_keys(db: apsw.Connection, amount: int = KEYS_AT_ONCE) -> Iterator[int]:
    """Session keys that nobody else will use; gaps do no harm. A transaction of its own."""
    first = select_value(db, RESERVE_SESSION_KEYS, {"amount": amount})
    return iter(range(first, first + amount))


def owner() -> str:
    """Who stages rows: this host, process, and run of it (process numbers come again)."""
    return f"{socket.gethostname()} {os.getpid()} {THIS_RUN}"


def stage_session(db: apsw.Connection, indexer: Indexer, now_ms: int) -> None:
    """Insert the session's row, hidden from every view until `finish_session`."""
    metadata = indexer.metadata
    db.execute(
        INSERT_SESSION,
        {
            "pk": indexer.session_pk,
            "id_hint": as_column(metadata.id_hint),
            "dialect_given": metadata.dialect_given,
            "folder": metadata.folder,
            "imported_ms": now_ms,
            "staged_by": owner(),
        },
    )


def write_rows(db: apsw.Connection, rows: Rows) -> None:
    """Insert what an Indexer derived."""
    _insert(db, INSERT_TEXT_LINES, INSERT_TEXT_LINE, rows.text_lines)
    _insert(db, INSERT_ENTRIES, INSERT_ENTRY, rows.entries)
    write_texts(db, rows.texts)
    if rows.blob_lines:
        db.executemany(INSERT_BLOB_LINE, rows.blob_lines)
    if rows.faults:
        db.executemany(INSERT_FAULT, rows.faults)


def _insert(db: apsw.Connection, many: str, one: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if len(rows) < ROWS_AT_ONCE:  # a live append has one
        for row in rows:
            db.execute(one, row)
        return
    whole = len(rows) - len(rows) % ROWS_AT_ONCE
    flat = chain.from_iterable
    db.executemany(many, [tuple(flat(rows[i : i + ROWS_AT_ONCE])) for i in range(0, whole, ROWS_AT_ONCE)])
    db.executemany(one, rows[whole:])


def finish_session(
    db: apsw.Connection, indexer: Indexer, *, digest: bytes, imported_bytes: int, now_ms: int
) -> list[FaultRow]:
    """Write what is known of the whole session and make it visible; its rows must be written before.

    The faults that only the whole tree shows are stored too; those that are new are returned.
    """
    metadata, place, pk = indexer.metadata, indexer.place, indexer.session_pk
    faults = untangle(db, indexer) if metadata.tangled else []
    add_blob_references(db, indexer)
    dialect, reason = metadata.dialect
    leaf = metadata.leaf_slot
    db.execute(
        UPDATE_SESSION,
        {
            "pk": pk,
            "id": metadata.session_id,
            "dialect": dialect,
            "dialect_reason": reason,
            "version": metadata.version,
            "cwd": metadata.cwd,
            "title": metadata.title,
            "first_message": metadata.first_message,
            "parent_session": metadata.parent_session,
            "created_ms": metadata.created_ms,
            "modified_ms": metadata.modified_ms,
            "message_count": metadata.message_count,
            "entry_count": metadata.entry_count,
            "line_count": place.line,
            "slot_count": place.slot,
            "fault_count": metadata.fault_count,
            "byte_count": place.offset,
            "digest": digest,
            "imported_bytes": imported_bytes,
            "fold": metadata.to_json(),
            "leaf_pk": None if leaf is None else (pk << SLOT_BITS) + leaf,
            "imported_ms": now_ms,
        },
    )
    link_lineage(db, pk)
    return faults


def add_blob_references(db: apsw.Connection, indexer: Indexer) -> None:
    """Note which blobs the fed lines refer to."""
    if indexer.blobs:
        db.executemany(INSERT_BLOB_REFERENCE, [(indexer.session_pk, digest) for digest in sorted(indexer.blobs)])


def resume(db: apsw.Connection, session_pk: int) -> Indexer:
    """An Indexer that goes on where the stored session ends."""
    slots, lines, offset, fold = next(select(db, SELECT_PLACE, {"pk": session_pk}))
    levels = array("q")
    place = Place(slot=slots, line=lines, offset=offset, levels=levels)
    base = session_pk << SLOT_BITS
    for pk, entry_id, parent_pk, depth, kind in select(db, SELECT_POSITIONS, key_range(session_pk)):
        slot = pk - base
        _pass_over(levels, slot)
        if kind in SETTINGS:
            state = slot + 1
        elif parent_pk is not None and parent_pk < pk:
            state = levels[parent_pk - base] & STATE_MASK
        else:  # a root, or a parent that comes later: once a session has such a one, `untangle` sees to its states
            state = 0
        levels.append((depth << DEPTH_SHIFT) + state)
        if entry_id is not None:
            place.slot_of[entry_id] = slot
    _pass_over(levels, slots)
    return Indexer(session_pk, Metadata.from_json(fold), place, max_line=longest_line(db))


def _pass_over(levels: array[int], slot: int) -> None:
    """Slots up to this one that hold no entry."""
    levels.extend([ROOT_LEVEL] * (slot - len(levels)))


def restart(db: apsw.Connection, session_pk: int) -> Indexer:
    """An Indexer at the start of the stored session, keeping only what a file's place gave."""
    old = read_metadata(db, session_pk)
    fresh = Metadata(old.id_hint, old.dialect_given, old.folder)
    return Indexer(session_pk, fresh, max_line=longest_line(db))


def read_metadata(db: apsw.Connection, session_pk: int) -> Metadata:
    """What is known of the stored session; SessionNotFoundError, with its key, when it was removed."""
    for *_, fold in select(db, SELECT_PLACE, {"pk": session_pk}):
        return Metadata.from_json(fold)
    raise SessionNotFoundError(f"key {session_pk}")


def longest_line(db: apsw.Connection) -> int:
    """The longest line that fits one value, its row's other bytes aside."""
    return db.limit(apsw.SQLITE_LIMIT_LENGTH) - 1_000


def read_slots(db: apsw.Connection, session_pk: int) -> Iterator[bytes]:
    """The session's bytes, slot by slot in order."""
    return (raw for (raw,) in select(db, SELECT_LINES, key_range(session_pk)))


def read_original_slots(db: apsw.Connection, session_pk: int) -> Iterator[bytes]:
    """The bytes that came from a file, as they came, slot by slot."""
    _, size, _, slots, _ = next(select(db, SELECT_IMPORTED, {"pk": session_pk}))
    if slots is None:
        return _first_bytes(read_slots(db, session_pk), size)
    first = session_pk << SLOT_BITS
    return (raw for _, raw in select(db, SELECT_ORIGINAL_LINES, {"first": first, "last": first + slots - 1}))


def _first_bytes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        if size <= 0:
            return
        yield piece[:size]
        size -= len(piece)


def read_lines(db: apsw.Connection, session_pk: int) -> Iterator[bytes]:
    """The session's bytes, line by line."""
    return join_pieces(read_slots(db, session_pk))


def digest_of(slots: Iterable[bytes]) -> bytes:
    """The SHA-256 of the slots, joined."""
    hasher = hashlib.sha256()
    for raw in slots:
        hasher.update(raw)
    return hasher.digest()


def join_pieces(slots: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines from slots, which hold lines or pieces of one."""
    parts: list[bytes] = []
    for raw in slots:
        parts.append(raw)
        if raw.endswith(b"\n"):
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
    if parts:
        yield b"".join(parts)


def clear_derived(db: apsw.Connection, session_pk: int) -> None:
    """Remove everything of a session but its row and where it came from."""
    db.execute(DELETE_LINES, key_range(session_pk))
    db.execute(DELETE_BLOCKS, key_range(session_pk))
    _clear_what_lines_gave(db, session_pk)


def _clear_what_lines_gave(db: apsw.Connection, session_pk: int) -> None:
    db.execute(DELETE_ENTRIES, key_range(session_pk))
    db.execute(DELETE_FAULTS, {"pk": session_pk})
    db.execute(DELETE_BLOB_REFERENCES, {"pk": session_pk})


def replace_lines(db: apsw.Connection, indexer: Indexer, new_lines: Iterable[bytes]) -> list[FaultRow]:
    """Give the session these lines for those it has, in the caller's transaction; their faults are returned.

    `indexer` comes fresh from `restart`, and stands at the session's new end afterwards. The imported bytes stay:
    `read_original_slots` gives them, however often the session is rewritten. Digest and size of the import stay too,
    and the saved leaf pointer goes on naming the entry of its id. Nothing is changed before the last of the new lines
    was taken, so they may be read from the old ones, or raise. All of them are held in memory.
    """
    pk = indexer.session_pk
    digest, imported_bytes, imported_ms, original_slots, pointer_pk = next(select(db, SELECT_IMPORTED, {"pk": pk}))
    for line in new_lines:
        indexer.add(line)
    derived = indexer.take_rows()
    pointed_at = select_value(db, SELECT_ENTRY_ID, {"pk": pointer_pk})
    kept_slots = _put_lines_by(db, pk, derived, imported_bytes, original_slots)
    original_slots = kept_slots if imported_bytes else None  # without an import there is no other form
    indexer.blobs |= kept_references(db, pk)
    _clear_what_lines_gave(db, pk)
    write_rows(db, derived)
    faults = finish_session(db, indexer, digest=digest, imported_bytes=imported_bytes, now_ms=imported_ms)
    if pointer_pk:
        slot = indexer.place.slot_of.get(pointed_at)
        pointer_pk = None if slot is None else (pk << SLOT_BITS) + slot
    db.execute(UPDATE_REWRITTEN, {"pk": pk, "original_slots": original_slots, "pointer_pk": pointer_pk})
    return derived.faults + faults


def rebuild(db: apsw.Connection, session_pk: int) -> None:
    """Derive again, from its lines alone, all that is stored of a session beside them; in the caller's transaction."""
    digest, imported_bytes, imported_ms, *_ = next(select(db, SELECT_IMPORTED, {"pk": session_pk}))
    indexer = restart(db, session_pk)
    for line in read_lines(db, session_pk):
        indexer.add(line)
    derived = indexer.take_rows()
    derived.text_lines, derived.blob_lines = [], []
    indexer.blobs |= kept_references(db, session_pk)
    _clear_what_lines_gave(db, session_pk)
    db.execute(DELETE_BLOCKS, key_range(session_pk))
    write_rows(db, derived)
    finish_session(db, indexer, digest=digest, imported_bytes=imported_bytes, now_ms=imported_ms)


def texts_of_session(db: apsw.Connection, session_pk: int) -> list[TextRow]:
    """What a session's lines give to the text index."""
    indexer = restart(db, session_pk)
    for line in read_lines(db, session_pk):
        indexer.add(line)
    return indexer.take_rows().texts


def _put_lines_by(
    db: apsw.Connection, session_pk: int, derived: Rows, imported_bytes: int, original_slots: int | None
) -> int:  # fmt: skip
    """Keep the imported bytes of each slot that changes, and delete its line; how many slots the imported form has.

    Lines that stay as they are are taken out of `derived`: after a rename all but the header are.
    """
    new = {key: (raw, True) for key, raw in derived.text_lines} | {key: (raw, False) for key, raw in derived.blob_lines}
    first, left, slots = session_pk << SLOT_BITS, imported_bytes, 0
    stale: list[tuple[int]] = []
    kept: list[tuple[int, bytes]] = []
    for key, raw, is_text in select(db, SELECT_STORED_LINES, key_range(session_pk)):
        is_stale = new.get(key) != (raw, is_text)
        if is_stale:
            stale.append((key,))
        else:
            del new[key]
        if original_slots is None:
            imported = raw[:left]
            left -= len(imported)
            slots += imported != b""
        else:
            imported = raw if key - first < original_slots else b""
        if imported and (is_stale or imported != raw):
            kept.append((key, imported))
    db.executemany(INSERT_ORIGINAL, kept)  # ignores what an earlier rewrite kept: that was the imported one
    db.executemany(DELETE_LINE, stale)
    delete_texts(db, (key for (key,) in stale))
    derived.text_lines = [row for row in derived.text_lines if row[0] in new]
    derived.blob_lines = [row for row in derived.blob_lines if row[0] in new]
    derived.texts = [row for row in derived.texts if row[0] in new]
    return slots if original_slots is None else original_slots


def kept_references(db: apsw.Connection, session_pk: int) -> set[str]:
    """The blobs that the imported lines refer to which a rewrite took out of the session."""
    return {h for _, raw in select(db, SELECT_KEPT, key_range(session_pk)) for h in blob_references(raw)}


def delete_session(db: apsw.Connection, session_pk: int) -> None:
    """Remove a session and all that hangs on it (by trigger and cascade)."""
    children = naming(db, session_pk)
    db.execute(DELETE_SESSION, {"pk": session_pk})
    link_parents(db, children)


def remove_abandoned(db: apsw.Connection) -> int:
    """Remove sessions whose import was killed half-way; those of a process that still runs are left alone."""
    abandoned = [pk for pk, staged_by in list(select(db, SELECT_STAGED)) if not _is_alive(staged_by)]
    if abandoned:
        with transaction(db):
            for pk in abandoned:
                delete_session(db, pk)
    return len(abandoned)


def _is_alive(staged_by: str) -> bool:
    host, pid, run = staged_by.rsplit(" ", 2)
    if host != socket.gethostname():
        return True  # another host's process cannot be seen from here
    if int(pid) == os.getpid():
        return run == THIS_RUN
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
