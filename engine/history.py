"""The prompt history: what was typed, newest first, in every process that uses the database.

The tables are those of the agents' history.db, so whatever reads that can read ours; where a prompt belongs stands in a
table of its own.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import apsw

from sessiondb.connection import as_column, select, select_value, transaction
from sessiondb.errors import SessionDBError, sqlite_errors
from sessiondb.jsonl import strip_js
from sessiondb.words import expression_of, is_tokenized_alike, terms_of

if TYPE_CHECKING:
    from sessiondb.store import Store

SELECT_NEWEST_PROMPT = "SELECT prompt FROM history ORDER BY created_at DESC, id DESC LIMIT 1"

INSERT_PROMPT = "INSERT INTO history (prompt, created_at, cwd) VALUES (:prompt, :created_at, :cwd) RETURNING id"
INSERT_SCOPE = "INSERT INTO history_scope (history_id, session_id) VALUES (:id, :session_id)"

SELECT_RECENT = """
SELECT h.id, h.prompt, h.created_at, h.cwd, s.session_id
FROM history h LEFT JOIN history_scope s ON s.history_id = h.id
WHERE (:cwd IS NULL OR h.cwd = :cwd)
  AND (:session_id IS NULL OR s.session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM json_each(:parts) p WHERE instr(casefold(h.prompt), p.value) = 0)
ORDER BY h.created_at DESC, h.id DESC
LIMIT :limit
"""

SELECT_MATCHING = """
SELECT h.id, h.prompt, h.created_at, h.cwd, s.session_id
FROM history_fts f
CROSS JOIN history h ON h.id = f.rowid
LEFT JOIN history_scope s ON s.history_id = h.id
WHERE f.history_fts MATCH :match
  AND (:cwd IS NULL OR h.cwd = :cwd)
  AND (:session_id IS NULL OR s.session_id = :session_id)
  AND NOT EXISTS (SELECT 1 FROM json_each(:parts) p WHERE instr(casefold(h.prompt), p.value) = 0)
ORDER BY h.created_at DESC, h.id DESC
LIMIT :limit
"""

SELECT_SAME_PROMPTS = "SELECT id FROM history WHERE prompt = :prompt ORDER BY id"
DELETE_PROMPT = "DELETE FROM history WHERE id = :id RETURNING id"

DEFAULT_LIMIT: Final = 100
LONGEST: Final = 1_000
"""As in xcsh: more than so many are not given."""

DELAY_SECONDS: Final = 0.1
"""How long a prompt waits for others to be written with, as in xcsh."""

log = logging.getLogger("sessiondb")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `created_at` is in seconds since 1970, as in the agents' table."""

    id: int
    prompt: str
    created_at: int
    cwd: str | None
    session_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


class Prompts(list[Prompt]):
    """Prompts, newest first; `cut`: there are more than the limit allowed."""

    cut = False


@dataclass(frozen=True, slots=True)
class _Waiting:
    prompt: str
    created_at: int
    cwd: str | None
    session_id: str | None


class HistoryStorage:
    """The prompt history of a store. Any thread may use it.

    `add` returns at once: a thread writes what came within a tenth of a second in one transaction; `flush`, `close` and
    the end of the process write what waits. A write that fails is logged, told to `on_error`, and tried again with the
    next one; `flush` and `close` raise it.
    """

    def __init__(self, store: Store, *, on_error: Callable[[SessionDBError], None] | None = None) -> None:
        self._store = store
        self._on_error = on_error
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one batch at a time, in the order of the calls
        self._waiting: list[_Waiting] = []
        self._thread: threading.Thread | None = None
        self._is_due = threading.Event()
        self._at_exit = partial(_flush_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    # -- adding --------------------------------------------------------------------------------------------------

    def add(self, prompt: str, *, cwd: str | None = None, session_id: str | None = None) -> None:
        """Remember a prompt, trimmed. A blank one is ignored, and so is a repeat of the newest one in the database."""
        self._store.require_writable()
        trimmed = strip_js(prompt)
        if not trimmed:
            return
        given = _Waiting(as_column(trimmed), int(time.time()), _column(cwd), _column(session_id))
        with self._lock:
            self._waiting.append(given)
            if self._thread is None:
                self._is_due.clear()
                self._thread = threading.Thread(target=self._write_later, name="sessiondb history", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """When this returns, every prompt added before is committed. Raises what kept it from that; it waits still."""
        with self._writing:
            self._write_waiting()

    def close(self) -> None:
        """Flush, and end the thread that writes."""
        self._is_due.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        atexit.unregister(self._at_exit)
        self.flush()

    def _write_later(self) -> None:
        self._is_due.wait(DELAY_SECONDS)
        with self._lock:
            self._thread = None  # what is added from here on has another
        try:
            self.flush()
        except SessionDBError as error:
            log.warning("%d prompts are not in the history yet: %s", len(self._waiting), error)
            if self._on_error is not None:
                self._on_error(error)

    def _write_waiting(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            with self._errors(), zeroing(self._db), transaction(self._db):
                for given in batch:
                    if given.prompt != select_value(self._db, SELECT_NEWEST_PROMPT):
                        insert_prompt(self._db, given.prompt, given.created_at, given.cwd, given.session_id)
        except BaseException:
            with self._lock:
                self._waiting = batch + self._waiting
            raise

    # -- looking -------------------------------------------------------------------------------------------------

    def get_recent(
        self, limit: float = DEFAULT_LIMIT, *, cwd: str | None = None, session_id: str | None = None
    ) -> Prompts:  # fmt: skip
        """The newest prompts, of one working directory or session if that is given.

        At most `limit`, which is cut to 0…1000; no number and infinity are 0, as in xcsh.
        """
        return self._read(SELECT_RECENT, limit, cwd, session_id, [], {})

    def search(
        self, query: str, limit: float = DEFAULT_LIMIT, *, cwd: str | None = None, session_id: str | None = None
    ) -> Prompts:  # fmt: skip
        """The newest prompts in which every word of `query` begins a word; nothing in it is an operator.

        Words of scripts without spaces, and symbols, are found anywhere. Limits as for `get_recent`.
        """
        terms = terms_of(query, prefixes=True)
        if not terms:
            return Prompts()
        indexed = [term for term in terms if is_tokenized_alike(term)]
        others = [_folded(term.given) for term in terms if term not in indexed]
        match = {"match": expression_of(indexed)} if indexed else {}
        return self._read(SELECT_MATCHING if indexed else SELECT_RECENT, limit, cwd, session_id, others, match)

    def _read(
        self, statement: str, limit: float, cwd: str | None, session_id: str | None, parts: list[str],
        more: dict[str, Any],
    ) -> Prompts:  # fmt: skip
        count = _clamped(limit)
        scope = {"cwd": _column(cwd), "session_id": _column(session_id)}
        values = scope | more | {"parts": json.dumps(parts), "limit": count + 1}
        with self._errors():
            found = Prompts(Prompt(*row) for row in select(self._db, statement, values))
        found.cut = len(found) > count
        del found[count:]
        return found

    # -- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, prompt: int | str) -> int:
        """Remove a prompt by its id, or every one with exactly this text; how many were.

        Row, index entry and bytes go, from the database and its log, as far as no other connection still reads them.
        What sessions hold of it stays.
        """
        self._store.require_writable()
        self.flush()
        with self._errors():
            keys = [prompt] if isinstance(prompt, int) else self._ids_of(prompt)
            with zeroing(self._db), transaction(self._db):
                gone = [pk for key in keys for (pk,) in list(select(self._db, DELETE_PROMPT, {"id": key}))]
                if gone:  # until then a word's bytes stay in the index
                    self._db.execute("INSERT INTO history_fts (history_fts) VALUES ('optimize')")
            if gone:
                _empty_log(self._db)
        return len(gone)

    def _ids_of(self, prompt: str) -> list[int]:
        values = {"prompt": as_column(strip_js(prompt))}
        return [pk for (pk,) in select(self._db, SELECT_SAME_PROMPTS, values)]

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _db(self) -> apsw.Connection:
        return self._store.connection

    def _errors(self) -> AbstractContextManager[None]:
        return sqlite_errors(str(self._store.database))


@contextmanager
def zeroing(db: apsw.Connection) -> Iterator[None]:
    """Pages and rows that are given up inside the block are overwritten: merging the index leaves copies of words, and
    whoever forgets a prompt later would not find them."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF")


def insert_prompt(
    db: apsw.Connection, prompt: str, created_at: int, cwd: str | None, session_id: str | None
) -> None:  # fmt: skip
    """Add a row, in the caller's transaction. Text as columns take it."""
    row_id = select_value(db, INSERT_PROMPT, {"prompt": prompt, "created_at": created_at, "cwd": cwd})
    if session_id is not None:
        db.execute(INSERT_SCOPE, {"id": row_id, "session_id": session_id})


def _flush_at_exit(history: weakref.ref[HistoryStorage]) -> None:
    alive = history()
    if alive is not None:
        try:
            alive.flush()
        except SessionDBError as error:
            log.warning("prompts are lost with the process: %s", error)


def _empty_log(db: apsw.Connection) -> None:
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        log.warning("a reader keeps forgotten prompts in the write-ahead log until the next checkpoint")


def _clamped(limit: float) -> int:
    return max(0, min(math.floor(limit), LONGEST)) if math.isfinite(limit) else 0


def _column(text: str | None) -> str | None:
    return None if text is None else as_column(text)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", as_column(text)).casefold()

