"""The store: one database, and everything that is asked of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO
from weakref import WeakSet

from sessiondb import exporter, sessions
from sessiondb.blobs import BlobStore
from sessiondb.check import find_problems
from sessiondb.checkpoints import Checkpoints
from sessiondb.connection import (
    StoreConnection,
    default_path,
    live_transaction,
    open_database,
    select,
    snapshot,
    transaction,
)
from sessiondb.discovery import agent_roots, find
from sessiondb.entries import read_entries, read_header, read_raw_entry
from sessiondb.errors import (
    DatabaseUnavailableError,
    EntryNotFoundError,
    ReadOnlyError,
    SessionImportError,
    sqlite_errors,
)
from sessiondb.files import absolute
from sessiondb.importer import Options, import_found
from sessiondb.jsonl import UNSET, Unset
from sessiondb.metadata import require_dialect
from sessiondb.query import Result, run_query
from sessiondb.report import ImportReport, OnProgress
from sessiondb.rows import SELECT_SESSIONS, rebuild, remove_abandoned
from sessiondb.sessions import Filter, SessionInfo
from sessiondb.sources import Sources
from sessiondb.text_index import remove_strays
from sessiondb.tree import Entry, TreeNode, build_tree
from sessiondb.upgrade import require_current
from sessiondb.verify import Verdict, verify_session

# What a live session needs is imported where it is asked for: `ls` starts sooner without.
if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sessiondb.context import ContextReport
    from sessiondb.history import HistoryStorage
    from sessiondb.later_branch import LaterBranch
    from sessiondb.search import Order, SearchResult
    from sessiondb.stored_tree import StoredTree

SELECT_FAULTS = "SELECT line, offset, kind, message FROM fault WHERE session_pk = :pk ORDER BY line, offset, pk"

SessionRef = str | os.PathLike[str] | SessionInfo
"""A session in any call: its SessionInfo, its id, the start of its id, or a path it was seen under."""


class Store:
    """One database of sessions. Any thread may use it (each gets a connection of its own); close it, or use `with`."""

    def __init__(self, path: Path, *, read_only: bool, timeout: float) -> None:
        self.database = path
        self.read_only = read_only
        self._timeout = timeout
        self._local = threading.local()
        self._open: WeakSet[StoreConnection] = WeakSet()  # a thread that ends closes its own
        self._is_closed = False
        self._lock = threading.Lock()
        self._checkpoints = Checkpoints(partial(open_database, path, timeout=timeout))
        self._history: HistoryStorage | None = None

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | None = None, *, read_only: bool = False, timeout: float = 10.0
    ) -> Store:  # fmt: skip
        """Open the database at `path` (default: see `default_path`); made when missing, upgraded when older.

        `timeout` in seconds is how long a call waits for another process. A database of a newer version opens
        read-only with a SessionDBWarning. Raises NotADatabaseError, SchemaTooNewError, DatabaseBusyError,
        DatabaseUnavailableError or DamagedDatabaseError; the file is then as it was.
        """
        store = cls(default_path() if path is None else Path(path).expanduser(), read_only=read_only, timeout=timeout)
        try:
            db = store.connection
            writable = require_current(db, store.database, read_only=read_only)
            store.read_only = not writable
            if writable:
                with sqlite_errors(str(store.database)):
                    remove_abandoned(db)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def connection(self) -> StoreConnection:
        """This thread's connection, for the engine's own rooms."""
        db: StoreConnection | None = getattr(self._local, "db", None)
        if db is None:
            if self._is_closed:
                raise DatabaseUnavailableError(f"{self.database} was closed; open the store again")
            db = open_database(self.database, read_only=self.read_only, timeout=self._timeout)
            db.create_scalar_function("casefold", _casefold, 1, deterministic=True)
            self._local.db = db
            with self._lock:
                self._open.add(db)
        return db

    def live_transaction(self, *, durable: bool) -> live_transaction:
        """A transaction of a live session; the checkpoints that follow from it are made beside."""
        db = self.connection
        if not db.is_watched:
            self._checkpoints.watch(db)
            db.is_watched = True
        return live_transaction(db, durable=durable)

    def close(self) -> None:
        """Write what waits for the history, then close every thread's connection. The store is of no use afterwards.

        Raises what keeps prompts from being written; the store is closed all the same.
        """
        try:
            if self._history is not None:
                self._history.close()
        finally:
            self._close()

    def _close(self) -> None:
        with self._lock:
            waiting, self._open = list(self._open), WeakSet()
            self._is_closed = True
        self._checkpoints.close()
        for db in waiting:
            db.close(True)
        self._local = threading.local()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    # -- taking in -----------------------------------------------------------------------------------------------

    def import_paths(
        self, paths: Iterable[str | os.PathLike[str]] | None = None, *, dialect: str | None = None,
        session_id: str | None = None, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> ImportReport:  # fmt: skip
        """Take in session files and folders of them; without paths, the folders of every known agent.

        Idempotent; files are only read. When it returns, all that the report counts as imported is committed. A file
        that cannot be taken in is named in the report and stops nothing. `dialect` and `session_id` (for files
        without a header) go before what the lines and names say. With `dry_run` nothing is written.
        """
        roots = agent_roots() if paths is None else [absolute(path) for path in paths]
        options = Options(require_dialect(dialect), session_id, dry_run, on_progress)
        return self._import(roots, options, remember=not dry_run)

    def import_session(self, path: str | os.PathLike[str], *, dialect: str | None = None) -> SessionInfo:
        """Take in one session file, unless it is held; the session. `refresh` does not look at the file again.

        Raises SessionImportError, with the reason, for a file that cannot be taken in.
        """
        file = absolute(path)
        if file.is_dir():
            raise SessionImportError(str(file), "a folder, not a file")
        report = self._import([file], Options(require_dialect(dialect)), remember=False)
        if report.skipped or report.files == 0:
            raise SessionImportError(str(file), report.skipped[0].reason if report.skipped else "no session file")
        return self.session(file)

    def refresh(self, *, on_progress: OnProgress | None = None) -> ImportReport:
        """Take in what grew or came under the roots of earlier imports; files that did not change cost a stat."""
        with self._errors():
            roots = Sources(self.connection).roots()
        report = ImportReport(str(self.database))
        for dialect in dict.fromkeys([None, *(dialect for _, dialect in roots)]):
            group = [path for path, given in roots if given == dialect]
            report.add(self._import(group, Options(require_dialect(dialect), on_progress=on_progress), remember=False))
        return report

    def _import(self, roots: Sequence[Path], options: Options, *, remember: bool) -> ImportReport:
        if not options.dry_run:
            self.require_writable()
        present = [root for root in roots if remember or os.path.lexists(root)]
        with self._errors():
            db, now_ms = self.connection, int(time.time() * 1000)
            report = import_found(db, self.database, find(present), options)
            if not options.dry_run:
                sources = Sources(db)
                report.vanished = [str(path) for path in sources.note_vanished(roots, now_ms)]
                for root in roots if remember else ():
                    if os.path.exists(root):  # noqa: PTH110 - Path's raises for a name that is too long
                        sources.add_root(root, options.dialect, now_ms)
                sources.note_look(now_ms)
        return report

    def _errors(self) -> AbstractContextManager[None]:
        return sqlite_errors(str(self.database))

    def require_writable(self) -> None:
        """ReadOnlyError unless the store may be written to."""
        if self.read_only:
            raise ReadOnlyError(f"{self.database} is open read-only; open it for writing")

    # -- looking -------------------------------------------------------------------------------------------------

    def sessions(
        self, cwd: str | None = None, query: str | None = None, limit: int | None = None, *, offset: int = 0,
        since_ms: int | None = None, until_ms: int | None = None, superseded: bool = False,
    ) -> list[SessionInfo]:  # fmt: skip
        """The sessions, newest activity first. All filters are applied to all rows before paging.

        `query` is looked for in title and first user text, letter case aside. `superseded` adds those whose file's
        bytes were replaced.
        """
        which = Filter(cwd, query, since_ms, until_ms, superseded)
        now_ms = int(time.time() * 1000)
        with self._errors():
            return sessions.list_sessions(self.connection, which, now_ms=now_ms, limit=limit, offset=offset)

    def count_sessions(self, which: Filter | None = None) -> int:
        """How many sessions match, all pages together."""
        with self._errors():
            return sessions.count_sessions(self.connection, which or Filter())

    def session(self, ref: SessionRef) -> SessionInfo:
        """The one session that answers to `ref`; SessionNotFoundError or AmbiguousSessionError."""
        with self._errors():
            if isinstance(ref, SessionInfo):
                return sessions.by_key(self.connection, ref.pk)
            return sessions.resolve(self.connection, os.fspath(ref))

    def header(self, session: SessionRef) -> Entry | None:
        """The session's header in the client's keys, as its line has it; None when it has none."""
        pk = self.session(session).pk
        with self._errors():
            return read_header(self.connection, pk)

    def entries(self, session: SessionRef) -> list[Any]:
        """All entries in file order, dicts in the client's keys, migrated to version 3; without the header."""
        pk = self.session(session).pk
        with self._errors():
            return read_entries(self.connection, pk)

    def raw_entry(self, session: SessionRef, entry_id: str) -> bytes:
        """The bytes of one entry as its line has them; EntryNotFoundError when there is none of that id."""
        pk = self.session(session).pk
        with self._errors():
            return read_raw_entry(self.connection, pk, entry_id)

    def tree(self, session: SessionRef) -> list[TreeNode]:
        """The roots of the session's tree, each `{"entry", "children", "label"?}`; see `build_tree`."""
        info = self.session(session)
        with self._errors():
            return build_tree(read_entries(self.connection, info.pk), with_label_times=info.dialect == "pi")

    def path(self, session: SessionRef, leaf: str | Unset | None = UNSET) -> list[Entry]:
        """The entries from the root to `leaf`: an entry's id, by default the last entry; None: before the first one.

        EntryNotFoundError for an id that the session does not have.
        """
        tree = self._tree(self.session(session))
        with self._errors():
            leaf_id = _leaf_of(tree, leaf)
            return [] if leaf_id is None else tree.path(leaf_id)

    def context(self, session: SessionRef, leaf: str | Unset | None = UNSET) -> dict[str, Any]:
        """What goes to the model from `leaf` (as in `path`), images put back; costs what the live window costs."""
        from sessiondb.context import context_of_path
        from sessiondb.size_control import restored

        info = self.session(session)
        tree = self._tree(info)
        with self._errors():
            leaf_id = _leaf_of(tree, leaf)
            above, path = ([], []) if leaf_id is None else tree.window(leaf_id)
            whole = [restored(entry, self.blobs, f"session {info.id}") for entry in path]
        return context_of_path(whole, above=above, dialect=info.dialect)

    def context_report(self, session: SessionRef, leaf: str | Unset | None = UNSET) -> ContextReport:
        """What keeps the context at `leaf` from being whole: open tool calls, entries that cannot be reached."""
        from sessiondb.context import context_report

        info = self.session(session)
        tree = self._tree(info)
        with self._errors():
            return context_report(tree.entries(), _leaf_of(tree, leaf), dialect=info.dialect)

    def _tree(self, info: SessionInfo) -> StoredTree:
        from sessiondb.stored_tree import StoredTree

        return StoredTree(self.connection, info.pk)

    def leaf_id(self, session: SessionRef) -> str | None:
        """The id of the last entry that has one: where the client's leaf is when it opens the session."""
        tree = self._tree(self.session(session))
        with self._errors():
            return _leaf_of(tree, UNSET)

    def later_branch(self, session: SessionRef) -> LaterBranch | None:
        """The branch that has later messages than the one the last entry is on; None when there is none."""
        from sessiondb.later_branch import find_later_branch

        info = self.session(session)
        with self._errors():
            return find_later_branch(self.connection, info.pk)

    def search(
        self, text: str, *, kinds: Sequence[str] = (), cwd: str | None = None, session: SessionRef | None = None,
        role: str | None = None, tool: str | None = None, model: str | None = None, since_ms: int | None = None,
        until_ms: int | None = None, fts: bool = False, order: Order = "rank", limit: int | None = 20, offset: int = 0,
        max_chars: int | None = None,
    ) -> SearchResult:  # fmt: skip
        """The entries that hold every word of `text`, best first or "newest" first.

        Any text is taken as words: only a trailing `*` (a prefix) and a closed pair of double quotes (a phrase) are
        operators, unless `fts` says that it is in FTS5's own syntax. All texts of entries are looked at, and the
        sessions' names; `kinds` narrows that to some of `texts.KINDS`, the others to entries (and sessions) of
        exactly that value. `max_chars` bounds the hits' size as JSON. ValueError for an unknown kind or order,
        BadQueryError for wrong syntax.
        """
        from sessiondb.search import Narrowing, search

        if order not in ("rank", "newest"):
            raise ValueError(f"order is 'rank' or 'newest', not {order!r}")
        pk = None if session is None else self.session(session).pk
        where = Narrowing(kinds, cwd, pk, role, tool, model, since_ms, until_ms)
        with self._errors(), snapshot(self.connection):
            return search(
                self.connection, text, where, fts=fts, order=order, limit=limit, offset=offset, max_chars=max_chars
            )  # fmt: skip

    def reindex(self, session: SessionRef | None = None) -> int:
        """Derive everything that is stored beside the lines again, for one session or all; how many that were.

        Each is one transaction; what others append meanwhile is kept. With all of them what belongs to no session goes
        from the text index, and the prompt history is indexed again.
        """
        self.require_writable()
        db = self.connection
        with self._errors():
            keys = [self.session(session).pk] if session else [pk for (pk,) in list(select(db, SELECT_SESSIONS))]
            for pk in keys:
                with transaction(db):
                    rebuild(db, pk)
            if session is None:
                with transaction(db):
                    remove_strays(db)
        return len(keys)

    def faults(self, session: SessionRef) -> list[dict[str, Any]]:
        """What is wrong in the session's lines: `line` (from 1), `offset` (bytes), `kind`, `message`."""
        pk = self.session(session).pk
        names = ("line", "offset", "kind", "message")
        with self._errors():
            return [dict(zip(names, row, strict=True)) for row in select(self.connection, SELECT_FAULTS, {"pk": pk})]

    def last_look_ms(self) -> int | None:
        """When files were last looked at by an import or a refresh, ms since the epoch."""
        with self._errors():
            return Sources(self.connection).last_look_ms()

    # -- giving out ----------------------------------------------------------------------------------------------

    def export(
        self, session: SessionRef, out: str | os.PathLike[str] | BinaryIO, form: exporter.Form = "as-is", *,
        force: bool = False,
    ) -> int:  # fmt: skip
        """Write a session's bytes to a path (atomically, mode 0600) or binary stream; how many is returned.

        Forms: see `exporter.session_bytes`. Raises ExportExistsError for a path that is taken, without `force`.
        """
        info = self.session(session)
        target = Path(out).expanduser() if isinstance(out, str | os.PathLike) else out
        with self._errors():
            return exporter.write_session(self.connection, info, target, form, force=force)

    def export_all(
        self, folder: str | os.PathLike[str], form: exporter.Form = "as-is", *, force: bool = False,
        superseded: bool = False,
    ) -> exporter.ExportReport:  # fmt: skip
        """Recreate an agent's folder with every session and blob; see `exporter.write_all`."""
        infos = sorted(self.sessions(superseded=superseded), key=lambda info: info.pk)
        with self._errors():
            return exporter.write_all(self.connection, infos, Path(folder), form, force=force)

    def verify(self, session: SessionRef | None = None) -> Iterator[Verdict]:
        """Hold one session, or all of them, against their files byte for byte; one verdict for each path."""
        infos = [self.session(session)] if session is not None else self.sessions(superseded=True)
        for info in infos:
            with self._errors():
                yield from verify_session(self.connection, info.pk)

    def check(self) -> list[str]:
        """Problems in the database: pages, references, rows that differ from what the lines give. Empty: none."""
        with self._errors():
            return find_problems(self.connection)

    # -- anything else -------------------------------------------------------------------------------------------

    @property
    def blobs(self) -> BlobStore:
        """The images and other blobs that sessions refer to."""
        return BlobStore(self.connection)

    @property
    def history(self) -> HistoryStorage:
        """The prompt history."""
        from sessiondb.history import HistoryStorage

        with self._lock:
            if self._history is None:
                self._history = HistoryStorage(self)
            return self._history

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """Run one query that only reads; its rows as dicts. BadQueryError when it is wrong or would write."""
        return self.query(query, params).to_dicts()

    def query(self, query: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Result:
        """As `sql`, with the columns' names also when there are no rows."""
        with self._errors():
            db = open_database(self.database, read_only=True, timeout=self._timeout)
            try:
                return run_query(db, query, params)
            finally:
                db.close(True)

    def sqlalchemy_engine(self) -> Engine:
        """A SQLAlchemy engine on the same file, through the same SQLite library."""
        from sqlalchemy import create_engine

        from sessiondb import dbapi

        return create_engine(
            "sqlite+apsw://",
            creator=lambda: dbapi.Connection.wrap(open_database(self.database, read_only=self.read_only)),
        )


def _leaf_of(tree: StoredTree, leaf: str | Unset | None) -> str | None:
    if leaf is UNSET:
        last = tree.last()
        return None if last is None else str(last["id"])
    if leaf is not None and leaf not in tree:
        raise EntryNotFoundError(leaf)
    return leaf


def _casefold(*values: Any) -> Any:
    text = values[0]
    return text.casefold() if isinstance(text, str) else text


__all__ = ["SessionRef", "Store"]
