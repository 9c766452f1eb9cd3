"""What can go wrong, one class for each situation, all under SessionDBError.

Three kinds, never mixed: the caller asked wrongly (LookupError, ValueError), try again (DatabaseBusyError), and damage
(NotADatabaseError, DamagedDatabaseError). Each builds its own message from the facts it carries and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from sessiondb.jsonl import UNSET


class SessionDBError(Exception):
    """Root of every error that sessiondb raises on purpose."""


class SessionNotFoundError(SessionDBError, LookupError):
    """No session answers to the reference `ref`."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        super().__init__(f"no session answers to {ref!r}: give an id, the start of one, or a path it was seen under")


class AmbiguousSessionError(SessionDBError, LookupError):
    """Several sessions answer to `ref`; `candidates` are lines for people that tell them apart."""

    def __init__(self, ref: str, candidates: Sequence[str]) -> None:
        self.ref, self.candidates = ref, tuple(candidates)
        shown = "".join(f"\n  {line}" for line in self.candidates)
        super().__init__(f"{ref!r} fits {len(self.candidates)} sessions; give more of the id, or a path:{shown}")


class EntryNotFoundError(SessionDBError, LookupError):
    """The session has no entry of that id (the text is the clients', with JavaScript's words for no id at all)."""

    def __init__(self, entry_id: object) -> None:
        self.entry_id = entry_id
        shown = "null" if entry_id is None else "undefined" if entry_id is UNSET else entry_id
        super().__init__(f"Entry {shown} not found")


class ExportExistsError(SessionDBError, FileExistsError):
    """The target of an export is there already and was left as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists and was left as it is; choose another name, or force it to be replaced")


class UnknownFormError(SessionDBError, ValueError):
    """There is no such form of an export."""

    def __init__(self, form: str, forms: Sequence[str]) -> None:
        self.form = form
        super().__init__(f"there is no form {form!r}; choose one of {', '.join(forms)}")


class NotSupportedError(SessionDBError, NotImplementedError):
    """The dialect's client has no such call, or its bytes are not known well enough yet to write them."""

    def __init__(self, call: str, dialect: str, known: Sequence[str]) -> None:
        self.call, self.dialect = call, dialect
        others = f"; {' and '.join(known)} sessions have it" if known else ""
        super().__init__(f"{call} is not supported for {dialect} sessions{others}")


class ForkSourceError(SessionDBError, ValueError):
    """The session to fork is missing, empty or invalid; nothing was written (the text is pi's)."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(f"Cannot fork: source session file is empty or invalid: {source}")


class SessionWriteError(SessionDBError, OSError):
    """A session's file could not be written. The first such error of a session is kept and raised again by each call
    that would write, until the manager is given another session; what was not written is still in memory."""

    def __init__(self, path: str, error: BaseException) -> None:
        self.path = path
        what = getattr(error, "strerror", None) or str(error)
        super().__init__(getattr(error, "errno", None), f"{path} could not be written: {what}")

    def __str__(self) -> str:
        return str(self.strerror)


class SessionWriteConflictError(SessionDBError, OSError):
    """Another program wrote to a session's file since it was read; it was left as it is."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(
            f"Session file changed before rewrite: {path} (expected {expected} bytes, found {found} bytes). "
            "It was left as it is; open it again"
        )


class UnknownDialectError(SessionDBError, ValueError):
    """There is no such dialect."""

    def __init__(self, dialect: str, dialects: Sequence[str]) -> None:
        self.dialect = dialect
        super().__init__(f"there is no dialect {dialect!r}; choose one of {', '.join(dialects)}")


class BadQueryError(SessionDBError, ValueError):
    """SQLite refused the text of a query, or the query would write."""


class DatabaseBusyError(SessionDBError, TimeoutError):
    """Another process held the database longer than the timeout; nothing was changed."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is in use by another process that took too long; nothing was changed, try again")


class DatabaseUnavailableError(SessionDBError, OSError):
    """The database cannot be opened or written: missing, no permission, disk full."""


class ReadOnlyError(SessionDBError, PermissionError):
    """A write was asked of a database that was opened read-only."""


class NotADatabaseError(SessionDBError, ValueError):
    """The file is no SQLite database, or one of another program. It was left as it is."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(f"{path} {what}; it was left as it is. Name another file with --db or SESSIONDB_DB")


class SchemaTooNewError(SessionDBError, ValueError):
    """The database was written by a newer sessiondb whose tables this one cannot read."""

    def __init__(self, path: str, revision: str) -> None:
        self.path, self.revision = path, revision
        super().__init__(f"{path} has schema {revision}, too new for this version to read; upgrade sessiondb")


class DamagedDatabaseError(SessionDBError, ValueError):
    """SQLite found damage in the file."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged ({what}); keep it and its -wal file, and export what can still be read")


class SessionDBWarning(UserWarning):
    """Something to know that did not stop the work."""


class sqlite_errors:  # noqa: N801 - used as a statement; a class, since it stands around every append
    """Turn what apsw raises inside the block into ours; the only place where that happens."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error):
            raise _translated(error, self._path) from error


def _translated(error: apsw.Error, path: str) -> SessionDBError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return DatabaseBusyError(path)
    if isinstance(error, apsw.NotADBError):
        return NotADatabaseError(path, "is no SQLite database")
    if isinstance(error, apsw.CorruptError | apsw.FormatError):
        return DamagedDatabaseError(path, str(error))
    if isinstance(error, apsw.ReadOnlyError):
        return ReadOnlyError(f"{path} is open read-only or may not be written: {error}")
    # cannot open, no permission, disk full, an I/O error, a value too big …
    return DatabaseUnavailableError(f"{path} cannot be used: {error}")
