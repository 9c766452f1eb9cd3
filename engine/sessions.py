"""The list of sessions and the ways to name one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import apsw
import orjson

from sessiondb.connection import as_column, select, select_value
from sessiondb.errors import AmbiguousSessionError, SessionNotFoundError
from sessiondb.files import absolute
from sessiondb.jsonl import format_time
from sessiondb.metadata import Dialect
from sessiondb.sources import to_column

COLUMNS: Final = """
  s.pk, s.id, s.dialect, s.dialect_reason, s.version, s.cwd, s.title, s.first_message, s.parent_session, s.created_ms,
  s.modified_ms, s.message_count, s.entry_count, s.line_count, s.fault_count, s.byte_count, s.imported_bytes,
  s.grown_from, s.replaced_from, s.superseded, s.imported_ms, s.parent_pk
"""

MATCHES: Final = """
  s.staged_by IS NULL
  AND s.superseded <= :superseded
  AND (:cwd IS NULL OR s.cwd = :cwd)
  AND (:since IS NULL OR s.modified_ms >= :since)
  AND (:until IS NULL OR s.modified_ms < :until)
  AND (:query IS NULL OR instr(casefold(coalesce(s.title, '') || char(10) || coalesce(s.first_message, '')), :query))
"""

# A time that lies ahead is a clock gone wrong or another unit: it must not hide what is really new.
SELECT_PAGE = f"""
SELECT {COLUMNS} FROM session s
WHERE {MATCHES}
ORDER BY s.modified_ms IS NULL OR s.modified_ms > :horizon, s.modified_ms DESC, s.id, s.pk
LIMIT :limit OFFSET :offset
"""

COUNT_MATCHES = f"SELECT count(*) FROM session s WHERE {MATCHES}"

SELECT_BY_KEY = f"SELECT {COLUMNS} FROM session s WHERE s.pk = :pk AND s.staged_by IS NULL"

SELECT_BY_ID = f"""
SELECT {COLUMNS} FROM session s
WHERE s.id = :ref AND s.staged_by IS NULL
ORDER BY s.superseded, s.pk
"""

SELECT_BY_PREFIX = f"""
SELECT {COLUMNS} FROM session s
WHERE substr(s.id, 1, length(:ref)) = :ref AND s.staged_by IS NULL
ORDER BY s.superseded, s.pk
"""

SELECT_BY_PATH = f"""
SELECT {COLUMNS} FROM source o JOIN session s ON s.pk = o.session_pk
WHERE o.path = :path AND s.staged_by IS NULL
"""

SELECT_PATHS = """
SELECT o.session_pk, o.path FROM json_each(:keys) k CROSS JOIN source o ON o.session_pk = k.value
ORDER BY o.session_pk, o.gone_ms IS NOT NULL, o.path
"""

SELECT_ALL_PATHS = "SELECT session_pk, path FROM source ORDER BY session_pk, gone_ms IS NOT NULL, path"

ONE_DAY_MS: Final = 86_400_000
ASK_BY_KEY_UP_TO: Final = 200


class SessionInfo(NamedTuple):  # a tuple: a thousand of them are made in a millisecond, dataclasses take seven
    """One session as a list shows it. Times are ms since the epoch in UTC, None where no line tells.

    `modified_ms` is the newest activity in the lines, never a file's time. `paths` are all under which its bytes were
    seen, those still there first (bytes that are no UTF-8 as Python's surrogate escapes). `grown_from` and
    `replaced_from` are keys of other sessions: one whose lines this one continues, one whose file this one's bytes took
    over. `superseded` says that the latter happened to this one. `parent_pk` is the key of the session that
    `parent_session`, an id or a path, names here; None where that cannot be told.
    """

    pk: int
    id: str
    dialect: Dialect
    dialect_reason: str
    version: int
    cwd: str | None
    title: str | None
    first_message: str | None
    parent_session: str | None
    created_ms: int | None
    modified_ms: int | None
    message_count: int
    entry_count: int
    line_count: int
    fault_count: int
    byte_count: int
    imported_bytes: int
    grown_from: int | None
    replaced_from: int | None
    superseded: bool
    imported_ms: int
    parent_pk: int | None
    paths: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it; times also as ISO text under `created` and `modified`."""
        row = self._asdict()
        row["superseded"] = bool(self.superseded)
        row["paths"] = list(self.paths)
        row["created"] = None if self.created_ms is None else format_time(self.created_ms)
        row["modified"] = None if self.modified_ms is None else format_time(self.modified_ms)
        return row

    @property
    def label(self) -> str:
        """A line for people that tells this session from another of the same id."""
        return f"{self.id}  {self.paths[0] if self.paths else 'no file'}  ({self.line_count:,} lines)"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions to list. `query` is looked for in title and first message, letter case aside; times in ms."""

    cwd: str | None = None
    query: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    superseded: bool = False

    def values(self) -> dict[str, Any]:
        return {
            "cwd": None if self.cwd is None else as_column(self.cwd),
            "query": as_column(self.query.casefold()) if self.query else None,
            "since": self.since_ms,
            "until": self.until_ms,
            "superseded": int(self.superseded),
        }


def list_sessions(
    db: apsw.Connection, which: Filter, *, now_ms: int, limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    """The sessions that match, newest activity first; those whose time lies ahead of now by a day come last."""
    page = {"horizon": now_ms + ONE_DAY_MS, "limit": -1 if limit is None else limit, "offset": offset}
    return _infos(db, list(select(db, SELECT_PAGE, which.values() | page)))


def count_sessions(db: apsw.Connection, which: Filter) -> int:
    """How many sessions match, whatever page is shown."""
    return int(select_value(db, COUNT_MATCHES, which.values()))


def resolve(db: apsw.Connection, ref: str) -> SessionInfo:
    """The one session that answers to `ref`: a path it was seen under, its id, or the start of its id.

    Of several with the same id those that are superseded stand back. Raises SessionNotFoundError, or
    AmbiguousSessionError with the candidates.
    """
    infos = _candidates(db, ref)
    current = [info for info in infos if not info.superseded]
    if len(current) == 1 or len(infos) == 1:
        return (current or infos)[0]
    if not infos:
        raise SessionNotFoundError(ref)
    raise AmbiguousSessionError(ref, [info.label for info in infos])


def by_key(db: apsw.Connection, pk: int) -> SessionInfo:
    """The session of that key, read anew."""
    infos = _infos(db, list(select(db, SELECT_BY_KEY, {"pk": pk})))
    if not infos:
        raise SessionNotFoundError(str(pk))
    return infos[0]


def _candidates(db: apsw.Connection, ref: str) -> list[SessionInfo]:
    try:
        ref.encode()
    except UnicodeEncodeError:  # a path whose bytes are no UTF-8, or half of a surrogate pair
        return _by_path(db, ref)
    for query in (SELECT_BY_ID, SELECT_BY_PREFIX) if ref else ():
        if found := list(select(db, query, {"ref": ref})):
            return _infos(db, found)
    return _by_path(db, ref)


def _by_path(db: apsw.Connection, ref: str) -> list[SessionInfo]:
    path = absolute(ref)
    return _infos(db, list(select(db, SELECT_BY_PATH, {"path": to_column(path)})))


def _infos(db: apsw.Connection, found: list[tuple[Any, ...]]) -> list[SessionInfo]:
    paths = _paths(db, [row[0] for row in found])
    return [SessionInfo._make((*row, tuple(paths.get(row[0], ())))) for row in found]


def _paths(db: apsw.Connection, keys: Iterable[int]) -> dict[int, list[str]]:
    wanted = list(keys)
    if len(wanted) <= ASK_BY_KEY_UP_TO:
        found = select(db, SELECT_PATHS, {"keys": orjson.dumps(wanted).decode()})
    else:
        found = select(db, SELECT_ALL_PATHS)
    paths: dict[int, list[str]] = {}
    for pk, path in found:
        paths.setdefault(pk, []).append(os.fsdecode(path))
    return paths
