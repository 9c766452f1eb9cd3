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


class SessionImportError(SessionDBError, ValueError):
    """A file was not taken in; `reason` says why. Nothing was changed."""

    def __init__(self, file_path: str, reason: str) -> None:
        self.file_path, self.reason = file_path, reason
        super().__init__(f"{file_path} was not taken in: {reason}")


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


class MissingSessionCwdError(SessionDBError, LookupError):
    """The working directory that a session was used in is gone (the text is pi's). Ask, and give another one.

    `session_file` is the session's path or id, `session_cwd` the missing directory, `fallback_cwd` the one in use now;
    `issue` has the three under the client's names.
    """

    def __init__(self, session_file: str, session_cwd: str, fallback_cwd: str) -> None:
        self.session_file, self.session_cwd, self.fallback_cwd = session_file, session_cwd, fallback_cwd
        self.issue = {"sessionFile": session_file, "sessionCwd": session_cwd, "fallbackCwd": fallback_cwd}
        super().__init__(
            f"Stored session working directory does not exist: {session_cwd}\nSession file: {session_file}\n"
            f"Current working directory: {fallback_cwd}"
        )


class SessionImportFileNotFoundError(SessionDBError, FileNotFoundError):
    """There is no file to import at `file_path` (the text is pi's)."""

    def __init__(self, file_path: str) -> None:
        self.file_path = file_path
        super().__init__(f"File not found: {file_path}")


class ForkEntryError(SessionDBError, ValueError):
    """The live session cannot be forked there: no such entry, or before what is no user message (the text is pi's)."""

    def __init__(self, entry_id: object) -> None:
        self.entry_id = entry_id
        super().__init__("Invalid entry ID for forking")


class SessionForkError(SessionDBError, RuntimeError):
    """The fork could not be written; its `__cause__` says why (the text is pi's). The live session is as it was."""

    def __init__(self) -> None:
        super().__init__("Failed to create forked session")


class ReplacementInProgressError(SessionDBError, RuntimeError):
    """A handler or callback of a running replacement asked for another, which would wait for itself."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(
            f"{call} was called from inside a replacement of the live session; call it when that is done, "
            "from another task for one"
        )


class SessionReplacementError(SessionDBError, RuntimeError):
    """The live session ended and none took its place: `cause` came in between.

    `session_ref` is the session that was live, a path or id. `await runtime.recover()` makes it live again.
    """

    def __init__(self, cause: BaseException, session_ref: str) -> None:
        self.cause, self.session_ref = cause, session_ref
        what = str(cause) or type(cause).__name__
        super().__init__(
            f"no session is live: the one before, {session_ref}, ended and the next was not made ({what}); "
            "await runtime.recover() makes it live again"
        )


class RuntimeDisposedError(SessionDBError, RuntimeError):
    """The runtime was disposed of; its last session can be looked at, but not replaced."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"{call}: the runtime was disposed of; make another one")


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
