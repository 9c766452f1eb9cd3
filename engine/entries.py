"""A stored session's entries as the client would hold them, and the tree they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from sessiondb.connection import select, select_value
from sessiondb.errors import EntryNotFoundError
from sessiondb.jsonl import CURRENT_VERSION, migrate, migration_steps
from sessiondb.lines import read_slot
from sessiondb.rows import key_range, read_metadata
from sessiondb.tree import Entry

SELECT_ENTRIES = """
SELECT e.pk, e.entry_id, e.parent_id, e.parent_pk, CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last
ORDER BY e.pk
"""

SELECT_RAWS = """
SELECT CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.pk BETWEEN :first AND :last AND e.entry_id IS NOT NULL
ORDER BY e.pk
"""

SELECT_RAW_BY_ENTRY_ID = """
SELECT CAST(l.raw AS BLOB)
FROM entry e CROSS JOIN line l ON l.pk = e.pk
WHERE e.session_pk = :pk AND e.entry_id = :entry_id
ORDER BY e.pk DESC LIMIT 1
"""

SELECT_HEADER = "SELECT CAST(raw AS BLOB) FROM line WHERE pk = :key"


def read_header(db: apsw.Connection, session_pk: int) -> Entry | None:
    """The session's header as its line has it; None for a session without."""
    slot = read_metadata(db, session_pk).header_slot
    if slot is None:
        return None
    header: Entry = read_slot(select_value(db, SELECT_HEADER, {"key": key_range(session_pk)["first"] + slot}))
    return header


def read_entries(db: apsw.Connection, session_pk: int) -> list[Any]:
    """All entries in file order, in the client's keys and migrated to version 3; the header is not among them.

    Entries without id under a version 3 header get the derived id and the entry before them as parent. A value that is
    no object stays what it is.
    """
    return [value for _, _, value in numbered_entries(db, session_pk)]


def read_raw_entry(db: apsw.Connection, session_pk: int, entry_id: str) -> bytes:
    """The stored bytes of one entry, exactly, without its line's end; the last of several with the id."""
    raw = select_value(db, SELECT_RAW_BY_ENTRY_ID, {"pk": session_pk, "entry_id": entry_id})
    if raw is None:
        raise EntryNotFoundError(entry_id)
    return bytes(raw).rstrip(b"\r\n")


def current_header(db: apsw.Connection, session_pk: int) -> Entry | None:
    """The header after migration; None for a session without."""
    header = read_header(db, session_pk)
    if header is not None:
        migrate([header])
    return header


def current_entries(db: apsw.Connection, session_pk: int) -> list[Any]:
    """Header and entries after migration, as the client holds them when it writes the file again."""
    header = current_header(db, session_pk)
    return [*([] if header is None else [header]), *read_entries(db, session_pk)]


def is_current(db: apsw.Connection, session_pk: int) -> bool:
    """Whether each entry can be read without the others, because migration leaves them as they are.

    False for a session none of whose entries has an id: they are of version 1 whatever the header says.
    """
    header = read_header(db, session_pk)
    if header is not None and any(migration_steps(header.get("version"))):
        return False
    raws = select(db, SELECT_RAWS, key_range(session_pk))
    return any(type(read_slot(raw).get("id")) is str for (raw,) in raws)  # as a rule the first one tells


def with_id(entry: Entry, entry_id: str | None, parent_id: str | None) -> Entry:
    """An entry whose line gives it no id, with the ids that its row has; they stand behind its other keys."""
    return entry if entry_id is None else entry | {"id": entry_id, "parentId": parent_id}


def numbered_entries(db: apsw.Connection, session_pk: int) -> Iterator[tuple[int, int | None, Any]]:
    """Key, parent's key and value of every entry, in file order, migrated."""
    keys: list[tuple[int, int | None]] = []
    ids: list[tuple[str | None, str | None]] = []
    values: list[Any] = []
    for pk, entry_id, parent_id, parent_pk, raw in select(db, SELECT_ENTRIES, key_range(session_pk)):
        keys.append((pk, parent_pk))
        ids.append((entry_id, parent_id))
        values.append(read_slot(raw))
    has_ids = any(type(value) is dict and type(value.get("id")) is str for value in values)
    version = _version_of_entries(db, session_pk) if has_ids else None
    gives_ids, changes_more = migration_steps(version)
    if not gives_ids:  # else the migration gives them, in the order that M4 speaks of
        values = [_with_own_id(value, *pair) for value, pair in zip(values, ids, strict=True)]
    if gives_ids or changes_more:
        header = {"type": "session", "version": version}
        migrate([header, *values], new_id=lambda index: ids[index - 1][0] or "")
    return ((pk, parent_pk, value) for (pk, parent_pk), value in zip(keys, values, strict=True))


def _with_own_id(value: Any, entry_id: str | None, parent_id: str | None) -> Any:
    lacks_one = type(value) is dict and type(value.get("id")) is not str
    return with_id(value, entry_id, parent_id) if lacks_one else value


def _version_of_entries(db: apsw.Connection, session_pk: int) -> Any:
    """The header's version; without a header the newest, since the entries have ids.

    Entries without any id are of version 1 whatever the header says: pi's fork copied them under a version 3 header.
    """
    header = read_header(db, session_pk)
    return CURRENT_VERSION if header is None else header.get("version")

