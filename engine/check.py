"""Is the database in order? Pages, references, and every row against what the lines give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import apsw

from sessiondb import rows
from sessiondb.connection import open_scratch, select, select_value, snapshot
from sessiondb.lineage import count_wrong_links
from sessiondb.text_index import COUNT_STRAY_RESULTS, COUNT_STRAY_TEXTS, count_differing_words, write_texts

COUNT_ORIGINALS_OF_NOBODY = """
SELECT count(*) FROM original
WHERE NOT EXISTS (
  SELECT 1 FROM session s WHERE s.pk = original.pk >> 32 AND original.pk & 4294967295 < s.original_slots
)
"""

SELECT_DERIVED = """
SELECT id, dialect, dialect_reason, version, cwd, title, first_message, parent_session, created_ms, modified_ms,
       message_count, entry_count, line_count, slot_count, fault_count, byte_count, leaf_pk, fold
FROM session WHERE pk = :pk
"""

SELECT_DIGEST = "SELECT digest, imported_bytes, imported_ms FROM session WHERE pk = :pk"

SELECT_ENTRIES = "SELECT * FROM entry WHERE pk BETWEEN :first AND :last ORDER BY pk"
SELECT_SLOTS = "SELECT pk, CAST(raw AS BLOB), typeof(raw) FROM line WHERE pk BETWEEN :first AND :last ORDER BY pk"
SELECT_FAULTS = """
SELECT line, offset, kind, message FROM fault WHERE session_pk = :pk
ORDER BY line, offset, kind, message
"""

SELECT_BLOB_REFERENCES = "SELECT hash FROM blob_reference WHERE session_pk = :pk ORDER BY hash"

COUNT_LINES_OF_NOBODY = "SELECT count(*) FROM line WHERE (pk >> 32) NOT IN (SELECT pk FROM session)"

COUNT_ENTRIES_OF_NOBODY = """
SELECT count(*) FROM entry
WHERE session_pk NOT IN (SELECT pk FROM session) OR session_pk <> pk >> 32
"""

COUNT_BLOCKS_OF_NOBODY = "SELECT count(*) FROM text_block WHERE (first_pk >> 32) NOT IN (SELECT pk FROM session)"

SELECT_PROMPTS = "SELECT id, prompt, created_at, cwd FROM history ORDER BY id"
INSERT_PROMPT = "INSERT INTO history (id, prompt, created_at, cwd) VALUES (?, ?, ?, ?)"

SELECT_TEXTS = """
SELECT b.first_pk + (d.id & 63), d.sz
FROM text_block b CROSS JOIN entry_fts_docsize d ON d.id BETWEEN b.pk << 6 AND (b.pk << 6) + 63
WHERE b.first_pk BETWEEN :first AND :last
UNION ALL
SELECT b.first_pk + (d.id & 63), d.sz
FROM text_block b CROSS JOIN result_fts_docsize d ON d.id BETWEEN b.pk << 6 AND (b.pk << 6) + 63
WHERE b.first_pk BETWEEN :first AND :last
ORDER BY 1, 2
"""


def find_problems(db: apsw.Connection) -> list[str]:
    """Every problem found: broken pages and references, lines of no session, rows that the lines do not give.

    Only reads, and one state of the database: each session is derived anew in a scratch database and compared.
    """
    problems = [str(row[0]) for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    problems += [f"broken reference: {row}" for row in db.execute("PRAGMA foreign_key_check")]
    if stray := select_value(db, COUNT_LINES_OF_NOBODY):
        problems.append(f"{stray} lines belong to no session")
    if stray := select_value(db, COUNT_ORIGINALS_OF_NOBODY):
        problems.append(f"{stray} imported lines belong to no session that was rewritten")
    if wrong := count_wrong_links(db):
        problems.append(f"{wrong} sessions have another parent than their header names")
    if stray := select_value(db, COUNT_ENTRIES_OF_NOBODY):
        problems.append(f"{stray} entries belong to no session, or to another than their key says")
    if stray := select_value(db, COUNT_STRAY_TEXTS) + select_value(db, COUNT_STRAY_RESULTS):
        problems.append(f"{stray} indexed texts belong to no session")
    if stray := select_value(db, COUNT_BLOCKS_OF_NOBODY):
        problems.append(f"{stray} blocks of indexed texts belong to no session")
    with snapshot(db), closing(open_scratch(db, with_indices=True)) as index:
        index.executemany(INSERT_PROMPT, select(db, SELECT_PROMPTS))
        index.execute("INSERT INTO history_fts (history_fts) VALUES ('rebuild')")
        for (pk,) in list(select(db, rows.SELECT_SESSIONS)):
            problems += _check_session(db, pk, index)
        for pk, _ in list(select(db, rows.SELECT_STAGED)):  # somebody imports them now: their words are there already
            write_texts(index, rows.texts_of_session(db, pk))
        if wrong := count_differing_words(db, index):
            problems.append(f"{wrong} words of the text index differ from what the lines say; `reindex` mends it")
    return problems


def _check_session(db: apsw.Connection, session_pk: int, index: apsw.Connection) -> Iterator[str]:
    """`index` is given the texts of the session's lines."""
    digest, imported_bytes, imported_ms = next(select(db, SELECT_DIGEST, {"pk": session_pk}))
    if rows.digest_of(rows.read_original_slots(db, session_pk)) != digest:
        yield f"session {session_pk}: its imported lines do not have the digest they were imported with"
    indexer = rows.restart(db, session_pk)
    with closing(open_scratch(db)) as scratch:
        rows.stage_session(scratch, indexer, imported_ms)
        for line in rows.read_lines(db, session_pk):
            indexer.add(line)
        indexer.blobs |= rows.kept_references(db, session_pk)
        derived_rows = indexer.take_rows()
        write_texts(index, derived_rows.take_texts())
        rows.write_rows(scratch, derived_rows)
        rows.finish_session(scratch, indexer, digest=digest, imported_bytes=imported_bytes, now_ms=imported_ms)
        held, derived = _derived(db, session_pk), _derived(scratch, session_pk)
    keys = rows.key_range(session_pk)
    held["indexed texts"] = list(select(db, SELECT_TEXTS, keys))
    derived["indexed texts"] = list(select(index, SELECT_TEXTS, keys))
    for name in held:
        if held[name] != derived[name]:
            yield f"session {session_pk}: {name} differ from what its lines give"


def _derived(db: apsw.Connection, session_pk: int) -> dict[str, list[tuple[object, ...]]]:
    keys = rows.key_range(session_pk)
    return {
        "session columns": list(select(db, SELECT_DERIVED, {"pk": session_pk})),
        "entries": list(select(db, SELECT_ENTRIES, keys)),
        "lines": list(select(db, SELECT_SLOTS, keys)),
        "blob references": list(select(db, SELECT_BLOB_REFERENCES, {"pk": session_pk})),
        "faults": list(select(db, SELECT_FAULTS, {"pk": session_pk})),
    }
