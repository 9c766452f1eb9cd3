"""Prompts from elsewhere: an agent's own history.db, and what users said in the sessions that are held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from sessiondb.connection import as_column, open_foreign, select, select_value, transaction
from sessiondb.errors import NotADatabaseError, sqlite_errors
from sessiondb.history import insert_prompt, zeroing
from sessiondb.jsonl import strip_js
from sessiondb.lines import read_slot
from sessiondb.texts import texts_of

if TYPE_CHECKING:
    from sessiondb.store import Store

SELECT_FOREIGN_COLUMNS = "SELECT name FROM pragma_table_info('history') ORDER BY cid"

# The tables of xcsh, and of oh-my-pi, which knows the session.
FOREIGN_PROMPTS: Final = "SELECT prompt, created_at, cwd, NULL FROM history ORDER BY created_at, id"
FOREIGN_PROMPTS_WITH_SESSION: Final = "SELECT prompt, created_at, cwd, session_id FROM history ORDER BY created_at, id"

IS_KNOWN = """
SELECT EXISTS (
  SELECT 1 FROM history WHERE created_at = :created_at AND prompt = :prompt AND cwd IS :cwd
)
"""

SELECT_SAID = """
SELECT e.time_ms, s.cwd, s.id, CAST(l.raw AS BLOB)
FROM entry e
CROSS JOIN session s ON s.pk = e.session_pk
CROSS JOIN line l ON l.pk = e.pk
WHERE e.role = 'user' AND s.staged_by IS NULL
ORDER BY e.time_ms, e.pk
"""

BATCH: Final = 1_000
"""Prompts in one transaction."""


@dataclass(slots=True)
class HistoryReport:
    """What came of taking prompts in: `added`, `known` already (the same text, second and directory), `skipped` since
    they are blank or have no time that can be read."""

    source: str
    added: int = 0
    known: int = 0
    skipped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


def import_history(store: Store, path: Path) -> HistoryReport:
    """Take in an agent's history.db (xcsh, oh-my-pi), which is only read, also while the agent runs.

    Again as often as you like. NotADatabaseError for a file that is no such database, DatabaseUnavailableError for
    none.
    """
    report = HistoryReport(str(path))
    with closing(open_foreign(path)) as theirs, sqlite_errors(str(path)):
        columns = {name for (name,) in select(theirs, SELECT_FOREIGN_COLUMNS)}
        if not {"id", "prompt", "created_at", "cwd"} <= columns:
            raise NotADatabaseError(str(path), "has no table history(id, prompt, created_at, cwd)")
        rows = select(theirs, FOREIGN_PROMPTS_WITH_SESSION if "session_id" in columns else FOREIGN_PROMPTS)
        _take_in(store, report, rows)
    return report


def backfill_history(store: Store) -> HistoryReport:
    """Take in what users said in the sessions of the store."""
    report = HistoryReport(str(store.database))
    with sqlite_errors(str(store.database)):
        said = list(_prompts_said(store.connection))
        _take_in(store, report, said)
    return report


def _prompts_said(db: apsw.Connection) -> Iterator[tuple[Any, ...]]:
    for time_ms, cwd, session_id, raw in select(db, SELECT_SAID):
        value = read_slot(raw)
        said = texts_of(value).get("text") if type(value) is dict else None
        yield said, None if time_ms is None else time_ms // 1000, cwd, session_id


def _take_in(store: Store, report: HistoryReport, rows: Iterable[tuple[Any, ...]]) -> None:
    store.require_writable()
    store.history.flush()
    waiting: list[tuple[str, int, str | None, str | None]] = []
    for prompt, created_at, cwd, session_id in rows:
        if type(prompt) is not str or not strip_js(prompt) or type(created_at) is not int:
            report.skipped += 1
            continue
        waiting.append((as_column(strip_js(prompt)), created_at, _text(cwd), _text(session_id)))
        if len(waiting) == BATCH:
            _write(store, report, waiting)
            waiting = []
    _write(store, report, waiting)


def _text(value: Any) -> str | None:
    return as_column(value) if type(value) is str else None


def _write(store: Store, report: HistoryReport, prompts: list[tuple[str, int, str | None, str | None]]) -> None:
    db = store.connection
    with sqlite_errors(str(store.database)), zeroing(db), transaction(db):
        for prompt, created_at, cwd, session_id in prompts:
            if select_value(db, IS_KNOWN, {"prompt": prompt, "created_at": created_at, "cwd": cwd}):
                report.known += 1
            else:
                insert_prompt(db, prompt, created_at, cwd, session_id)
                report.added += 1
