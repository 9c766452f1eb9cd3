"""PEP 249 over apsw: what SQLAlchemy and alembic need to use the one SQLite library this package opens databases with.

SQLite drops its file locks when any other copy of the library in the same process closes the file, so the standard
library's driver must never be loaded next to apsw: commits are lost and pages mixed up. This module is the replacement.
It differs from the standard driver on purpose:

* Nothing begins a transaction behind the caller's back. `Connection.begin` does when asked (SQLAlchemy's dialect asks
  at every start of a transaction), so DDL, SELECT and SAVEPOINT are part of the transaction like everything else.
* A statement that writes and returns rows (RETURNING, a PRAGMA) has run to its end when `Cursor.execute` returns.
* A string that holds a second statement is refused before the first one runs.

Errors of apsw become errors of this module in one place (`_translated`), by class; the original is the `__cause__`.
What is no database error keeps its Python type: OverflowError for an integer beyond 64 bits, UnicodeEncodeError for a
lone surrogate, KeyError for a missing named parameter, and whatever a function given to `create_function` raises.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import apsw

apilevel = "2.0"
threadsafety = 1  # a connection may move between threads, but two at once is an error
paramstyle = "qmark"
version = apsw.apsw_version()
sqlite_version = apsw.sqlite_lib_version()
sqlite_version_info = tuple(int(part) for part in sqlite_version.split("."))

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

# --- errors -----------------------------------------------------------------------------------------------------------


class Warning(Exception):  # noqa: A001, N818  # PEP 249 fixes the name
    """PEP 249's class for important warnings; never raised here."""


class Error(Exception):
    """Root of the errors of this module.

    `sqlite_errorcode` is SQLite's extended result code, None when the error did not come from SQLite.
    """

    sqlite_errorcode: int | None = None


class InterfaceError(Error):
    """The driver was used in a way that SQLite's interface does not allow."""


class DatabaseError(Error):
    """The database file is damaged or no database at all; also the root of the classes below."""


class DataError(DatabaseError):
    """A value is too large."""


class OperationalError(DatabaseError):
    """The statement could not be carried out: busy, locked, read-only, disk full, no such table, interrupted."""


class IntegrityError(DatabaseError):
    """A constraint refused the change."""


class InternalError(DatabaseError):
    """SQLite reports a fault of its own."""


class ProgrammingError(DatabaseError):
    """Asked wrongly: a closed connection, wrong parameters, two statements in one string."""


class NotSupportedError(DatabaseError):
    """This build of SQLite lacks what was asked for."""


# Everything that is not listed is an OperationalError, as in the standard driver.
_ERROR_BY_APSW_CLASS: dict[type[apsw.Error], type[Error]] = {
    apsw.ConstraintError: IntegrityError,
    apsw.MismatchError: IntegrityError,
    apsw.TooBigError: DataError,
    apsw.CorruptError: DatabaseError,
    apsw.NotADBError: DatabaseError,
    apsw.FormatError: DatabaseError,
    apsw.InternalError: InternalError,
    apsw.NotFoundError: InternalError,
    apsw.MisuseError: InterfaceError,
    apsw.RangeError: InterfaceError,
    apsw.BindingsError: ProgrammingError,
    apsw.ConnectionClosedError: ProgrammingError,
    apsw.CursorClosedError: ProgrammingError,
    apsw.IncompleteExecutionError: ProgrammingError,
    apsw.ThreadingViolationError: ProgrammingError,
    apsw.NoFTS5Error: NotSupportedError,
    apsw.NoLFSError: NotSupportedError,
}


def _translated(error: apsw.Error) -> Error:
    translation = _ERROR_BY_APSW_CLASS.get(type(error), OperationalError)(str(error))
    translation.sqlite_errorcode = getattr(error, "extendedresult", None)
    return translation


class _Translating:
    """Raises this module's error for apsw's. A class, because contextlib's generators cost a microsecond each."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, apsw.Error):
            raise _translated(error) from error


_translating = _Translating()

# --- types ------------------------------------------------------------------------------------------------------------

Binary = memoryview
Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802  # PEP 249 fixes the name
    """The local date at `ticks` seconds since the epoch."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802  # PEP 249 fixes the name
    """The local time of day at `ticks` seconds since the epoch."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802  # PEP 249 fixes the name
    """The local date and time at `ticks` seconds since the epoch, without a time zone."""
    return Timestamp(*time.localtime(ticks)[:6])


class _TypeObject:
    """Equal to the declared column types (second item of a description) that contain one of its words.

    SQLite declares types freely and derives their affinity by such words (https://sqlite.org/datatype3.html, 3.1).
    An expression has no declared type and equals none.
    """

    def __init__(self, *words: str) -> None:
        self._words = words

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and any(word in other.upper() for word in self._words))

    __hash__ = None  # type: ignore[assignment]  # equal to many strings, so no hash can agree


STRING = _TypeObject("CHAR", "CLOB", "TEXT")
BINARY = _TypeObject("BLOB")
NUMBER = _TypeObject("INT", "REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")
DATETIME = _TypeObject("DATE", "TIME")
ROWID = _TypeObject("INTEGER")


def _bind_datetime(_cursor: apsw.Cursor, position: int, value: object) -> str:
    """ISO text for dates and times, date and time parted by a space as in SQLite's own functions.

    apsw calls this for every value that is not None, int, float, str or bytes.
    """
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise ProgrammingError(f"parameter {position} has type {type(value).__name__}, which SQLite cannot store")


# --- connection -------------------------------------------------------------------------------------------------------

_BEGIN_BY_ISOLATION_LEVEL = {
    "": "BEGIN",
    "DEFERRED": "BEGIN DEFERRED",
    "IMMEDIATE": "BEGIN IMMEDIATE",
    "EXCLUSIVE": "BEGIN EXCLUSIVE",
}


def connect(
    database: str,
    *,
    timeout: float = 5.0,
    isolation_level: str | None = "",
    uri: bool = False,
    cached_statements: int = 128,
) -> Connection:
    """Opens the database file `database` (made when missing; ":memory:" for one in memory) and wraps it.

    `timeout` is how long to wait for another's lock, in seconds. It is set before anything else is asked of the
    database: a first statement can already meet a lock. `uri` reads `database` as an SQLite URI.

    Raises OperationalError when the file cannot be opened. That it is no database is noticed by the first statement.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | (apsw.SQLITE_OPEN_URI if uri else 0)
    with _translating:
        handle = apsw.Connection(database, flags=flags, statementcachesize=cached_statements)
        handle.set_busy_timeout(round(timeout * 1000))
    return Connection.wrap(handle, isolation_level=isolation_level)


class Connection:
    """A PEP 249 connection on an open apsw connection.

    Made by `connect`, or by `wrap` around a connection that was opened and set up elsewhere.
    """

    def __init__(self, handle: apsw.Connection, isolation_level: str | None) -> None:
        self._handle = handle
        self.isolation_level = isolation_level

    @classmethod
    def wrap(cls, handle: apsw.Connection, *, isolation_level: str | None = "") -> Connection:
        """Gives `handle` the PEP 249 methods.

        No setting of `handle` is changed, so it can go on being used directly, inside the same transaction.
        `close` closes it.
        """
        return cls(handle, isolation_level)

    @property
    def apsw(self) -> apsw.Connection:
        """The wrapped connection."""
        return self._handle

    @property
    def isolation_level(self) -> str | None:
        """What `begin` does: None nothing (autocommit), "" a plain BEGIN, DEFERRED, IMMEDIATE or EXCLUSIVE that kind.

        A change counts from the next `begin`. Any other value is a ValueError.
        """
        return self._isolation_level

    @isolation_level.setter
    def isolation_level(self, level: str | None) -> None:
        if level is not None and level not in _BEGIN_BY_ISOLATION_LEVEL:
            raise ValueError(f"isolation_level is None or one of {[*_BEGIN_BY_ISOLATION_LEVEL]}, not {level!r}")
        self._isolation_level = level

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. Raises ProgrammingError on a closed connection."""
        with _translating:
            return self._handle.in_transaction

    def begin(self) -> None:
        """Begins a transaction as `isolation_level` says; does nothing when one is open or the level is None.

        Raises OperationalError when IMMEDIATE or EXCLUSIVE does not get its lock within the timeout.
        """
        if self._isolation_level is not None and not self.in_transaction:
            self._run(_BEGIN_BY_ISOLATION_LEVEL[self._isolation_level])

    def commit(self) -> None:
        """Commits the open transaction, if there is one. After an OperationalError (busy) it is still open."""
        if self.in_transaction:
            self._run("COMMIT")

    def rollback(self) -> None:
        """Takes the open transaction back, if there is one (SQLite itself may have, after a full disk)."""
        if self.in_transaction:
            self._run("ROLLBACK")

    def _run(self, statement: str) -> None:
        with _translating:
            self._handle.execute(statement)

    def close(self) -> None:
        """Closes the wrapped connection; an open transaction is taken back. A second call does nothing."""
        with _translating:
            self._handle.close(True)  # results that nobody fetched are no reason to fail

    def cursor(self) -> Cursor:
        """A new cursor. Raises ProgrammingError on a closed connection."""
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters = ()) -> Cursor:
        """`Cursor.execute` on a new cursor, as event hooks written for SQLite expect it."""
        return self.cursor().execute(operation, parameters)

    def create_function(self, name: str, narg: int, func: Any, *, deterministic: bool = False) -> None:
        """Makes the Python function `func` of `narg` arguments (-1: any number) callable from SQL as `name`.

        `deterministic` promises the same result for the same arguments. An exception in `func` reaches the caller of
        `execute` or of a fetch as it is.
        """
        with _translating:
            self._handle.create_scalar_function(name, func, narg, deterministic=deterministic)


# --- cursor -----------------------------------------------------------------------------------------------------------

# As SQLite reads blanks: an open comment reaches to the end. Possessive (?>, *+), or a comment could be read as longer.
_BLANKS = r"(?>[ \t\n\f\r]+|--[^\n]*+|/\*(?>.*?(?:\*/|\Z)))*+"
_NOTHING_MORE = re.compile(rf"(?:{_BLANKS};)*+{_BLANKS}\Z", re.DOTALL)
_CHANGES_ROWS = re.compile(rf"{_BLANKS}(?:(INSERT|REPLACE|WITH)|UPDATE|DELETE)\b", re.DOTALL | re.IGNORECASE)


class Cursor:
    """A PEP 249 cursor. It may be used again after a result was not fetched to its end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        with _translating:
            self._cursor = connection.apsw.cursor()
            self._cursor.convert_binding = _bind_datetime
        self._start("")

    def _start(self, operation: str) -> None:
        self._operation = operation
        self._rows: Iterator[Row] | None = None
        self._writes = False
        self.description: tuple[Row, ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    def execute(self, operation: str, parameters: Parameters = ()) -> Cursor:
        """Runs one statement and returns this cursor.

        When it returns, a statement that writes is done, its rows (RETURNING) kept for fetching. `rowcount` is the
        number of rows that an INSERT, UPDATE, DELETE or REPLACE changed itself, those of triggers left out, and -1 for
        anything else. `lastrowid` is set by INSERT and REPLACE.

        Raises Error or a subclass; ProgrammingError, before anything ran, for more than one statement.
        """
        self._start(operation)
        with _translating:
            self._cursor.exec_trace = self._inspect
            try:
                self._cursor.execute(operation, parameters)
            finally:
                self._cursor.exec_trace = None  # else a cycle keeps every unclosed cursor alive
            if self.description is not None:
                # Rows left unread would leave the write unfinished, and its savepoint or transaction not closable.
                self._rows = iter(self._cursor.fetchall()) if self._writes else self._cursor
            verb = _CHANGES_ROWS.match(operation) if self._writes else None
            if verb:
                self.rowcount = self.connection.apsw.changes()
                if verb[1]:
                    self.lastrowid = self.connection.apsw.last_insert_rowid()
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Runs one statement for each item and returns this cursor; `rowcount` is the sum of the single ones.

        Raises what `execute` raises, and ProgrammingError for a statement that returns rows. The changes of the items
        before the failing one stay until the transaction is taken back.
        """
        self._start(operation)
        cursor, handle = self._cursor, self.connection.apsw
        changed = 0

        def counted() -> Iterator[Parameters]:
            # apsw asks for the next item when the one before is done: the only moment when that one's own count shows.
            # The running total of the connection would add what triggers and foreign keys changed.
            nonlocal changed
            for parameters in seq_of_parameters:
                yield parameters
                changed += handle.changes()
                cursor.exec_trace = None  # the first item has shown all there is to see

        with _translating:
            cursor.exec_trace = self._inspect_rowless
            try:
                cursor.executemany(operation, counted())
            finally:
                cursor.exec_trace = None
        if self._writes and _CHANGES_ROWS.match(operation):
            self.rowcount = changed
        return self

    def _inspect(self, cursor: apsw.Cursor, statement: str, _parameters: object) -> bool:
        """Called by apsw between preparing a statement and running it: the only time an empty result is described."""
        if len(statement) < len(self._operation) and not _NOTHING_MORE.match(self._operation, len(statement)):
            raise ProgrammingError("only one statement can be executed at a time")
        self._writes = not cursor.is_readonly
        self.description = cursor.description or None
        return True

    def _inspect_rowless(self, cursor: apsw.Cursor, statement: str, parameters: object) -> bool:
        self._inspect(cursor, statement, parameters)
        if self.description is not None:
            raise ProgrammingError("executemany cannot run a statement that returns rows")
        return True

    def fetchone(self) -> Row | None:
        """The next row, or None after the last. Raises ProgrammingError when the last statement returns no rows."""
        rows = self._require_rows()
        with _translating:
            return next(rows, None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next `size` rows (`arraysize` when None), fewer at the end. Raises as `fetchone`."""
        rows = self._require_rows()
        with _translating:
            return [row for _, row in zip(range(self.arraysize if size is None else size), rows, strict=False)]

    def fetchall(self) -> list[Row]:
        """All rows that are left. Raises as `fetchone`."""
        rows = self._require_rows()
        with _translating:
            return list(rows)

    def _require_rows(self) -> Iterator[Row]:
        if self._rows is None:
            raise ProgrammingError("there is no result to fetch from")
        return self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchone, None)

    def close(self) -> None:
        """Gives the result up. Using the cursor afterwards raises ProgrammingError; closing it again does nothing."""
        with _translating:
            self._cursor.close(True)
        self._rows = self._cursor  # closed, so that it is the one that refuses a fetch

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Does nothing, as PEP 249 allows: SQLite needs no sizes."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 allows: SQLite needs no sizes."""
