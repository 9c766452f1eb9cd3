"""The index of what is said in entries: written with the lines, and made again from them alone.

A row of `entry_fts`, or of `result_fts` for a tool's result, is one slot that holds a text. It depends on the bytes of
that slot and on nothing else, so it changes when the line does. FTS5 writes rows' numbers as differences, which are
short when the numbers lie close to each other (a tenth of the index): slots are numbered here by blocks of 64, handed
out as they are needed (`text_block`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from typing import Any, Final

import apsw

from sessiondb.connection import select, select_value
from sessiondb.schema.search import BLOCK_BITS
from sessiondb.texts import KINDS, Texts

TextRow = tuple[int, Texts]
"""A slot's key, and its spaced texts."""

IN_BLOCK: Final = (1 << BLOCK_BITS) - 1

SELECT_BLOCK = "SELECT pk FROM text_block WHERE first_pk = :first_pk"
INSERT_BLOCK = "INSERT INTO text_block (first_pk) VALUES (:first_pk) RETURNING pk"
DELETE_BLOCKS = "DELETE FROM text_block WHERE first_pk BETWEEN :first AND :last"

OTHER_KINDS: Final = KINDS[1:]

INSERT_TEXTS = f"""
INSERT INTO entry_fts (rowid, {', '.join(OTHER_KINDS)})
VALUES (?{', ?' * len(OTHER_KINDS)})
"""

INSERT_RESULT = "INSERT INTO result_fts (rowid, result) VALUES (?, ?)"

FEW_ROWS: Final = 8

VALUES_AT_ONCE: Final = 12_000
"""In one statement. While it runs another thread reads the next files. FTS5 writes out what it has gathered whenever a
statement with several rows begins, so there are few of them; more values take more memory."""

DELETE_TEXT = "DELETE FROM entry_fts WHERE rowid = ?"
DELETE_RESULT = "DELETE FROM result_fts WHERE rowid = ?"

DELETE_STRAY_BLOCKS = "DELETE FROM text_block WHERE (first_pk >> 32) NOT IN (SELECT pk FROM session)"
DELETE_STRAY_TEXTS = """
DELETE FROM entry_fts WHERE rowid IN (
  SELECT id FROM entry_fts_docsize WHERE (id >> 6) NOT IN (SELECT pk FROM text_block)
)
"""
DELETE_STRAY_RESULTS = """
DELETE FROM result_fts WHERE rowid IN (
  SELECT id FROM result_fts_docsize WHERE (id >> 6) NOT IN (SELECT pk FROM text_block)
)
"""

COUNT_STRAY_TEXTS = "SELECT count(*) FROM entry_fts_docsize WHERE (id >> 6) NOT IN (SELECT pk FROM text_block)"
COUNT_STRAY_RESULTS = "SELECT count(*) FROM result_fts_docsize WHERE (id >> 6) NOT IN (SELECT pk FROM text_block)"

# All indices: they differ in the names of their columns.
CREATE_WORDS = """
CREATE VIRTUAL TABLE temp.entry_word USING fts5vocab('main', 'entry_fts', 'col');
CREATE VIRTUAL TABLE temp.result_word USING fts5vocab('main', 'result_fts', 'col');
CREATE VIRTUAL TABLE temp.prompt_word USING fts5vocab('main', 'history_fts', 'col');
"""
DROP_WORDS = "DROP TABLE temp.entry_word; DROP TABLE temp.result_word; DROP TABLE temp.prompt_word"
SELECT_WORDS = """
SELECT term, col, doc, cnt FROM temp.entry_word WHERE cnt > 0
UNION ALL
SELECT term, col, doc, cnt FROM temp.result_word WHERE cnt > 0
UNION ALL
SELECT term, col, doc, cnt FROM temp.prompt_word WHERE cnt > 0
ORDER BY term, col
"""


def write_texts(db: apsw.Connection, texts: Sequence[TextRow]) -> None:
    """Add what Indexers found to say of new slots."""
    numbers = _Numbers(db)
    results: list[tuple[Any, ...]] = []
    others: list[tuple[Any, ...]] = []
    for key, kinds in texts:
        number = numbers.of(key)
        if "result" in kinds:
            results.append((number, kinds["result"]))
        else:
            others.append((number, *map(kinds.get, OTHER_KINDS)))
    _insert(db, INSERT_TEXTS, others)
    _insert(db, INSERT_RESULT, results)


def _insert(db: apsw.Connection, one: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if len(rows) < FEW_ROWS:  # a live append has one
        for row in rows:
            db.execute(one, row)
        return
    width = len(rows[0])
    more = f", ({', '.join('?' * width)})"
    at_once = VALUES_AT_ONCE // width
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        db.execute(one + more * (len(part) - 1), tuple(chain.from_iterable(part)))


def delete_texts(db: apsw.Connection, keys: Iterable[int]) -> None:
    """Forget the slots of these keys."""
    for key in keys:
        block = select_value(db, SELECT_BLOCK, {"first_pk": key & ~IN_BLOCK})
        if block is not None:
            number = block << BLOCK_BITS | key & IN_BLOCK
            db.execute(DELETE_TEXT, (number,))
            db.execute(DELETE_RESULT, (number,))


def remove_strays(db: apsw.Connection) -> None:
    """Remove what belongs to no session, and index the prompts again; in the caller's transaction."""
    for statement in (DELETE_STRAY_BLOCKS, DELETE_STRAY_TEXTS, DELETE_STRAY_RESULTS):
        db.execute(statement)
    db.execute("INSERT INTO history_fts (history_fts) VALUES ('rebuild')")


def count_differing_words(db: apsw.Connection, other: apsw.Connection) -> int:
    """How many words of entries and prompts stand in one database's indices more often, or in more rows, than in the
    other's."""
    with _words(db) as ours, _words(other) as theirs:
        return sum(1 for mine, its in zip_longest(ours, theirs) if mine != its)


@contextmanager
def _words(db: apsw.Connection) -> Iterator[Iterator[tuple[Any, ...]]]:
    db.execute(CREATE_WORDS)
    try:
        yield select(db, SELECT_WORDS)
    finally:
        db.execute(DROP_WORDS)


class _Numbers:
    """What slots' keys are in the index."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._first_pk = -1
        self._base = 0

    def of(self, key: int) -> int:
        first_pk = key & ~IN_BLOCK
        if first_pk != self._first_pk:
            found = select_value(self._db, SELECT_BLOCK, {"first_pk": first_pk})
            if found is None:
                found = select_value(self._db, INSERT_BLOCK, {"first_pk": first_pk})
            self._first_pk, self._base = first_pk, found << BLOCK_BITS
        return self._base | key & IN_BLOCK
