"""The only place that opens the database. Each setting is a function that says why it is set.

apsw carries its own SQLite; a second SQLite library on the same file in this process, or a plain open() and close() of
it, would drop the POSIX locks of the first (seen: lost commits, malformed pages). So nothing else opens these files.
"""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import apsw

from sessiondb.errors import DatabaseUnavailableError, NotADatabaseError, SessionDBWarning, sqlite_errors
from sessiondb.files import make_folder
from sessiondb.schema import APPLICATION_ID

PAGE_SIZE = 8192
"""Measured: 8 KiB pages beat 4 KiB by a quarter on import and cost nothing on point reads."""

SELECT_TABLES = """
SELECT s.sql
FROM pragma_table_list t CROSS JOIN sqlite_schema s ON s.name = t.name
WHERE t.schema = 'main' AND t.type IN ('table', :virtual) AND s.sql IS NOT NULL
ORDER BY s.name
"""

SMALLEST_DATABASE = 512
"""Bytes of the smallest page."""

COUNT_OBJECTS = "SELECT count(*) FROM sqlite_schema"

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_creating = threading.Lock()


def default_path() -> Path:
    """Where the database is when nobody names one: $SESSIONDB_DB, else under $XDG_DATA_HOME."""
    if named := os.environ.get("SESSIONDB_DB"):
        return Path(os.path.expanduser(named))  # noqa: PTH111 - Path.expanduser() raises for ~somebody who is not here
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.expanduser(data), "sessiondb", "sessions.db")  # noqa: PTH111


class StoreConnection(apsw.Connection):
    """A connection and what SQLite would have to be asked for at every append."""

    is_durable = False  # whether commits are synced; see `live_transaction`
    is_watched = False  # whether checkpoints are made beside it; see `checkpoints.py`


def open_database(path: Path, *, read_only: bool = False, timeout: float = 10.0) -> StoreConnection:
    """Open `path` with every setting below; a missing file is created (mode 0600) unless `read_only`.

    `timeout` in seconds is how long any statement waits for another process. Raises DatabaseUnavailableError,
    DatabaseBusyError, NotADatabaseError or DamagedDatabaseError; the file is then as it was.
    """
    name = os.path.abspath(path)  # noqa: PTH100 - links stay links; and `:memory:` is a name like others
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DatabaseUnavailableError(f"{name!r} is no name in UTF-8, which SQLite needs; name another") from None
    if not read_only:
        _create_private(path)
    elif not path.exists():
        raise DatabaseUnavailableError(f"{name} does not exist; `sessiondb import` makes it")
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    with sqlite_errors(name):
        db = StoreConnection(name, flags=flags, statementcachesize=128)
        try:
            _wait_for_others(db, timeout)
            _refuse_what_is_not_ours(db, name)  # before anything below writes to the file
            _distrust_the_file(db)
            _enforce_references(db)
            if not read_only:
                _choose_page_size(db)
                _log_ahead(db, name, timeout)
        except BaseException:
            db.close(True)
            raise
    return db


def open_foreign(path: Path) -> apsw.Connection:
    """Another program's database, to read: nothing is written to it, and its program may go on meanwhile.

    DatabaseUnavailableError or NotADatabaseError.
    """
    if not path.is_file():
        raise DatabaseUnavailableError(f"{path} does not exist, or is no regular file")
    with sqlite_errors(str(path)):
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _wait_for_others(db, 10.0)
            _distrust_the_file(db)
            db.execute("PRAGMA query_only = ON")
            select_value(db, COUNT_OBJECTS)  # whether it is a database is seen when it is read
        except BaseException:
            db.close(True)
            raise
    return db


def open_scratch(like: apsw.Connection, *, with_indices: bool = False) -> apsw.Connection:
    """An empty database with the tables of another, in memory or in a file without a name; gone when it is closed.

    `with_indices`: its full-text tables, too.
    """
    scratch = apsw.Connection("")
    for (create,) in select(like, SELECT_TABLES, {"virtual": "virtual" if with_indices else "table"}):
        scratch.execute(create)
    scratch.execute("BEGIN")  # what is written to it needs to be seen by nobody else, and is never kept
    return scratch


def _create_private(path: Path) -> None:
    """Make file and folder readable by their owner alone, whatever the umask; -wal and -shm inherit the file's mode."""
    try:
        make_folder(path.parent)
        with _creating:
            # O_EXCL: a descriptor on a database that exists is never opened, since closing it would drop its locks.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            path.chmod(0o600)
    except FileExistsError:
        if not path.is_file():
            raise DatabaseUnavailableError(f"{path} is no regular file; name another with --db") from None
        if 0 < path.stat().st_size < SMALLEST_DATABASE:  # SQLite would take it for an empty one and write over it
            raise NotADatabaseError(str(path), "is no SQLite database") from None
    except OSError as error:
        raise DatabaseUnavailableError(f"{path} cannot be created: {error.strerror}") from error


def _wait_for_others(db: apsw.Connection, timeout: float) -> None:
    # First of all settings: every later one may meet a lock.
    db.set_busy_timeout(int(timeout * 1000))


def _refuse_what_is_not_ours(db: apsw.Connection, name: str) -> None:
    if select_value(db, COUNT_OBJECTS) and db.pragma("application_id") != APPLICATION_ID:
        raise NotADatabaseError(name, "is a SQLite database of another program")


def _distrust_the_file(db: apsw.Connection) -> None:
    # A database from somebody else may hold views, triggers and cells made to harm.
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.execute("PRAGMA cell_size_check = ON")


def _enforce_references(db: apsw.Connection) -> None:
    db.execute("PRAGMA foreign_keys = ON")


def _choose_page_size(db: apsw.Connection) -> None:
    # Takes effect only in a file that has no page yet, and only before write-ahead logging.
    db.execute(f"PRAGMA page_size = {PAGE_SIZE}")


def _log_ahead(db: apsw.Connection, name: str, timeout: float) -> None:
    """Readers never wait for the writer. The switch itself ignores the busy timeout, so it is tried until then."""
    mode = set_journal_mode(db, "wal", timeout)
    if mode != "wal":
        warnings.warn(
            f"{name}: no write-ahead logging here (journal mode {mode}), so readers and writers wait for each other",
            SessionDBWarning,
            stacklevel=5,
        )
    db.execute("PRAGMA synchronous = NORMAL")
    # More than a log that is kept in bounds: cut at every new beginning it would be made longer again at every append.
    db.execute("PRAGMA journal_size_limit = 67108864")


def set_journal_mode(db: apsw.Connection, mode: str, timeout: float = 0.0) -> str:
    """Ask for a journal mode, again while others are in the way and `timeout` lasts; returns the mode in force."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return str(db.pragma("journal_mode", mode))
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                return str(db.pragma("journal_mode"))
            time.sleep(0.01)


def as_column(text: str) -> str:
    """Text as a column has it: U+FFFD for half a surrogate pair, which SQLite cannot hold."""
    return text if text.isascii() else LONE_SURROGATE.sub("\ufffd", text)


def select(db: apsw.Connection, query: str, values: Mapping[str, Any] | None = None) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, as SQLite's loose columns are: of any type."""
    return cast("Iterator[tuple[Any, ...]]", db.execute(query, values))


def select_value(db: apsw.Connection, query: str, values: Mapping[str, Any] | None = None) -> Any:
    """The first column of the first row; None when there is no row."""
    return next(select(db, query, values), (None,))[0]


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Let all queries of the block see one state of the database, whatever others commit meanwhile."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """One write transaction, rolled back when the block raises. IMMEDIATE: a lock taken late fails without waiting."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back on some errors, a full disk among them
            db.execute("ROLLBACK")
        raise


class live_transaction:  # noqa: N801 - used as a statement; a class, since it stands around every append
    """As `transaction`. When it is through, it survives a killed process, and with `durable` a power cut."""

    def __init__(self, db: StoreConnection, *, durable: bool) -> None:
        self._db = db
        self._durable = durable

    def __enter__(self) -> apsw.Connection:
        if self._db.is_durable is not self._durable:  # can be changed outside of transactions only
            self._db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            self._db.is_durable = self._durable
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite itself rolls back on some errors, a full disk among them
                self._db.execute("ROLLBACK")


def checkpoint(db: apsw.Connection) -> None:
    """Move the write-ahead log into the database as far as readers allow; they are no reason to wait or fail."""
    with suppress(apsw.BusyError):
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)  # the pragma form is silently ignored by apsw
