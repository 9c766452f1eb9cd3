"""Where sessions came from: the paths, what was seen there last, and the roots to look under again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import apsw

from sessiondb.connection import select, select_value

SELECT_ALL = """
SELECT o.path, o.session_pk, o.size, o.mtime_ns, o.ctime_ns, o.gone_ms, o.size = s.imported_bytes
FROM source o JOIN session s ON s.pk = o.session_pk
ORDER BY o.path
"""

SELECT_OF_SESSION = """
SELECT o.path, o.session_pk, o.size, o.mtime_ns, o.ctime_ns, o.gone_ms, o.size = s.imported_bytes
FROM session s JOIN source o ON o.session_pk = s.pk
WHERE s.pk = :pk
ORDER BY o.path
"""

SELECT_OTHERS = """
SELECT o.path, o.session_pk, o.size, o.mtime_ns, o.ctime_ns, o.gone_ms, 1
FROM session s JOIN source o ON o.session_pk = s.pk
WHERE s.pk = :pk AND o.size = s.imported_bytes AND o.path <> :path AND o.gone_ms IS NULL
ORDER BY o.path
"""

UPSERT = """
INSERT INTO source (path, session_pk, size, mtime_ns, ctime_ns, seen_ms, gone_ms)
VALUES (:path, :session_pk, :size, :mtime_ns, :ctime_ns, :seen_ms, NULL)
ON CONFLICT (path) DO UPDATE SET
  session_pk = excluded.session_pk, size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,
  seen_ms = excluded.seen_ms, gone_ms = NULL
"""

UPDATE_GONE = "UPDATE source SET gone_ms = :gone_ms WHERE path = :path"

INSERT_ROOT = """
INSERT INTO root (path, dialect_given, added_ms) VALUES (:path, :dialect, :now_ms)
ON CONFLICT (path) DO UPDATE SET dialect_given = coalesce(excluded.dialect_given, dialect_given)
"""

UPSERT_LOOK = """
INSERT INTO state (name, value) VALUES ('last look', :now_ms)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""

# An import that was killed has noted no look, but the sources that it had committed.
SELECT_LOOK = """
SELECT coalesce((SELECT value FROM state WHERE name = 'last look'), (SELECT max(seen_ms) FROM source))
"""

SELECT_ROOTS = "SELECT path, dialect_given FROM root ORDER BY path"


@dataclass(frozen=True, slots=True)
class Source:
    """A path as it was when its bytes were last taken in.

    `is_in_step` says whether its session still ends there: it may have gone on with a twin while this file was away.
    """

    path: Path
    session_pk: int
    size: int
    mtime_ns: int
    ctime_ns: int
    gone_ms: int | None
    is_in_step: bool

    def is_untouched(self) -> bool:
        """Whether the file is there and looks as it did."""
        try:
            return self.matches(self.path.stat())
        except OSError:
            return False

    def matches(self, status: os.stat_result) -> bool:
        """Whether the file looks untouched since. The change time cannot be set back, as the modification time can."""
        return (status.st_size, status.st_mtime_ns, status.st_ctime_ns) == (self.size, self.mtime_ns, self.ctime_ns)


class Sources:
    """The tables `source` and `root` of one database."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def by_path(self) -> dict[Path, Source]:
        """Every path that ever held a session."""
        return {source.path: source for source in self._read(SELECT_ALL, {})}

    def of_session(self, session_pk: int) -> list[Source]:
        """The paths that the session answers to."""
        return self._read(SELECT_OF_SESSION, {"pk": session_pk})

    def others_holding(self, source: Source) -> bool:
        """Whether another path still holds the bytes of this one's session, as far as a look at it tells."""
        others = self._read(SELECT_OTHERS, {"pk": source.session_pk, "path": to_column(source.path)})
        return any(other.is_untouched() for other in others)

    def put(self, path: Path, session_pk: int, size: int, status: os.stat_result, now_ms: int) -> None:
        """Note that the path's first `size` bytes are the session's."""
        self._db.execute(
            UPSERT,
            {
                "path": to_column(path),
                "session_pk": session_pk,
                "size": size,
                "mtime_ns": status.st_mtime_ns,
                "ctime_ns": status.st_ctime_ns,
                "seen_ms": now_ms,
            },
        )

    def note_vanished(self, under: Iterable[Path], now_ms: int) -> list[Path]:
        """Mark the paths under these roots that are there no more; only those not marked before are returned."""
        roots = list(under)
        vanished = [
            source.path
            for source in self._read(SELECT_ALL, {})
            if source.gone_ms is None
            and not os.path.lexists(source.path)
            and any(source.path.is_relative_to(root) for root in roots)
        ]
        for path in vanished:
            self._db.execute(UPDATE_GONE, {"path": to_column(path), "gone_ms": now_ms})
        return vanished

    def add_root(self, path: Path, dialect: str | None, now_ms: int) -> None:
        """Remember a path to look under again."""
        self._db.execute(INSERT_ROOT, {"path": to_column(path), "dialect": dialect, "now_ms": now_ms})

    def roots(self) -> list[tuple[Path, str | None]]:
        """The remembered paths, each with the dialect that was given for it."""
        return [(from_column(path), dialect) for path, dialect in select(self._db, SELECT_ROOTS)]

    def note_look(self, now_ms: int) -> None:
        """Remember that the files were looked at now."""
        self._db.execute(UPSERT_LOOK, {"now_ms": now_ms})

    def last_look_ms(self) -> int | None:
        """When the files were last looked at; None: never."""
        return select_value(self._db, SELECT_LOOK)  # type: ignore[no-any-return]

    def _read(self, query: str, keys: dict[str, object]) -> list[Source]:
        return [Source(from_column(path), *rest) for path, *rest in select(self._db, query, keys)]


def to_column(path: Path) -> str | bytes:
    """A path as text, or as its bytes when they are no UTF-8."""
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def from_column(value: str | bytes) -> Path:
    """The path that `to_column` wrote."""
    return Path(os.fsdecode(value))
