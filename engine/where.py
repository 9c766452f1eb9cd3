"""Where and how sessions live: the one argument that tells files, a database and memory apart, resolved once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from sessiondb.breadcrumbs import read_breadcrumb
from sessiondb.database_home import new_database_home
from sessiondb.discovery import agent_folder, id_from_name
from sessiondb.errors import SessionNotFoundError
from sessiondb.file_blobs import FileBlobs
from sessiondb.file_home import FileHome, new_file_home, open_file_home, put_aside, read_file_session
from sessiondb.file_storage import FileSessionStorage
from sessiondb.files import absolute
from sessiondb.homes import Home, MemoryHome
from sessiondb.ids import Ids, system_clock
from sessiondb.metadata import Dialect, Metadata, require_dialect
from sessiondb.places import agent_dir_of, file_name, session_dir_for
from sessiondb.recent_files import find_most_recent_for_cwd, find_most_recent_session
from sessiondb.resume import resolve_session_file
from sessiondb.session_lines import SessionLines
from sessiondb.storage import AnyPath, SessionStorage, encode_text
from sessiondb.tree import Entry

if TYPE_CHECKING:
    from sessiondb.store import Store

NEW_SESSION_DIALECT: Final[Dialect] = "xcsh"


class How(TypedDict, total=False):
    """Where a session lives, and how it is written: what `create`, `open` and the other opening methods take.

    It lives in `store`, else in a file: in `session_dir`, else in the agent's folder for the cwd, under `agent_dir` in
    place of the agent's own. `dialect`: "xcsh", "pi" or "omp"; for a new session xcsh unless given. `clock` gives ms
    since 1970, `ids` an id of the kind "entry" or "session": with both the same, what is written is the client's file
    byte for byte. `durability`: "full", or "normal", which leaves it to the system when what was flushed reaches the
    disk. `storage` holds the files in place of the file system.
    """

    session_dir: AnyPath | None
    store: Store | None
    dialect: str | None
    agent_dir: AnyPath | None
    clock: Callable[[], int] | None
    ids: Callable[[str], str] | None
    durability: str
    storage: SessionStorage | None


@dataclass(frozen=True)
class Where:
    """What was asked, resolved; the same for every session of a manager.

    `dialect` None: what a session's lines say, xcsh for a new one.
    """

    dialect: Dialect | None = None
    store: Store | None = None
    storage: SessionStorage | None = None
    session_dir: str | None = None
    agent_dir: str | None = None
    clock: Callable[[], int] = system_clock
    make_id: Callable[[str], str] | None = None
    durable: bool = True
    in_memory: bool = False
    unmarked: Dialect | None = None  # what a file is taken for whose lines and folder do not tell

    @classmethod
    def given(cls, **how: Unpack[How]) -> Where:
        """From what a caller gave; ValueError for what does not fit together, TypeError for what is not known."""
        if unknown := sorted(how.keys() - How.__annotations__.keys()):
            raise TypeError(f"no such argument: {', '.join(unknown)}; there are {', '.join(How.__annotations__)}")
        store, session_dir, storage = how.get("store"), how.get("session_dir"), how.get("storage")
        durability, agent_dir = how.get("durability", "full"), how.get("agent_dir")
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is 'full' or 'normal', not {durability!r}")
        if store is not None and (session_dir is not None or storage is not None):
            raise ValueError("a session lives in a store or in files: give store= or session_dir=, not both")
        return cls(
            dialect=require_dialect(how.get("dialect")),
            store=store,
            storage=storage or FileSessionStorage(),
            session_dir=None if session_dir is None else str(absolute(session_dir)),
            agent_dir=None if agent_dir is None else str(absolute(agent_dir)),
            clock=how.get("clock") or system_clock,
            make_id=how.get("ids"),
            durable=durability == "full",
        )

    @property
    def new_dialect(self) -> Dialect:
        return self.dialect or NEW_SESSION_DIALECT

    def ids(self, dialect: Dialect) -> Ids:
        return Ids(dialect, self.clock, self.make_id)

    def agent_dir_for(self, dialect: Dialect) -> Path:
        return agent_dir_of(dialect, self.agent_dir)

    def folder(self, cwd: str, dialect: Dialect) -> str:
        """Where a new session of this cwd goes; made when something is written there."""
        return self.session_dir or str(session_dir_for(cwd, dialect, self.agent_dir_for(dialect)))

    def beside(self, path: str) -> Where:
        """The same, with new sessions going beside that file unless a folder was asked for."""
        return self if self.session_dir else replace(self, session_dir=os.path.dirname(path))  # noqa: PTH120

    def new(
        self, header: Entry, entries: Iterable[Any] = (), *, dialect: Dialect, path: str | None = None,
        title_slot: bytes | None = None,
    ) -> Home:  # fmt: skip
        """A home for a new session, all of it held; `path` puts it into a file of that name."""
        metadata = Metadata(header["id"], dialect)
        if self.in_memory:
            return MemoryHome(header, entries, metadata)
        if self.store is not None:
            return new_database_home(
                self.store, header, entries, metadata, title_slot=title_slot, durable=self.durable
            )  # fmt: skip
        folder = self.folder(header.get("cwd") or "", dialect)
        path = path or os.path.join(folder, file_name(header["id"], header["timestamp"]))  # noqa: PTH118
        return new_file_home(
            path, folder, self.files, self._file_blobs(dialect), header, entries, metadata,
            title_slot=title_slot, durable=self.durable,
        )  # fmt: skip

    def recent_file(self, cwd: str) -> str | None:
        """The session file last used for this cwd: in this terminal (xcsh), else the one that was written last."""
        dialect = self.new_dialect
        if dialect == "xcsh" and self.uses_file_system:
            path = read_breadcrumb(self.agent_dir_for(dialect), cwd)
            if path is not None:
                return str(path)
        if self.session_dir is not None:
            return find_most_recent_session(self.session_dir, self.files)
        return find_most_recent_for_cwd(cwd, dialect=dialect, agent_dir=self.agent_dir, storage=self.files)

    @property
    def uses_file_system(self) -> bool:
        return isinstance(self.storage, FileSessionStorage)

    def exists(self, path: str) -> bool:
        return self.files.exists(path)

    def cwd_folder(self, cwd: str, dialect: Dialect) -> str:
        """Where the sessions of this cwd are, whatever folder was asked for."""
        return str(session_dir_for(cwd, dialect, self.agent_dir_for(dialect)))

    def read_file(self, path: str) -> SessionLines | None:
        """The session in a file, migrated, images put back; nothing is written. None when there is none."""
        if not self.files.exists(path):
            return None
        metadata = self._metadata_of(path)
        raw = encode_text(self.files.read_text(path))
        return read_file_session(raw, path, self._blobs_beside(path), metadata, self._new_entry_id)

    def open_file(self, path: str) -> Home | None:
        """The home of the session in a file; None when the file is missing or has no valid header first.

        In memory the session is read, and the file is left alone.
        """
        if not self.files.exists(path):
            return None
        if self.in_memory:
            session = self.read_file(path)
            if session is None or session.header is None:
                return None
            return MemoryHome(session.header, session.entries, self._metadata_of(path))
        folder = self.session_dir or os.path.dirname(path)  # noqa: PTH120
        return open_file_home(
            path, folder, self.files, self._blobs_beside(path), self._metadata_of(path), durable=self.durable,
            new_entry_id=self._new_entry_id,
        )  # fmt: skip

    def _metadata_of(self, path: str) -> Metadata:
        folder = agent_folder(Path(path))
        if folder is None:
            sessions = self.agent_dir_for(self.new_dialect) / "sessions"
            here = self.new_dialect if Path(path).is_relative_to(sessions) else self.unmarked
            folder = None if here is None else f".{here}"
        return Metadata(id_from_name(Path(path)), self.dialect, folder)

    @property
    def _new_entry_id(self) -> Callable[[], str] | None:
        return None if self.make_id is None else partial(self.make_id, "entry")

    def fresh_file(self, path: str, header: Entry, dialect: Dialect) -> Home:
        """A fresh session in the file at `path`; what it holds goes beside it first, unless it is empty.

        A file that is there gets its header at once, as from the clients; one that is not, when the gate opens.
        """
        home = self.new(header, dialect=dialect, path=path)
        if isinstance(home, FileHome) and self.files.exists(path):
            raw = encode_text(self.files.read_text(path))
            home.undo = partial(self.files.write_text, path, "")
            if raw:
                home.undo = partial(self.files.rename, put_aside(self.files, path), path)
            home.note_file(raw, keeps_bytes=True)
            try:
                home.rewrite()
            except BaseException:
                home.undo()
                raise
        return home

    def resolve_file(self, ref: str, cwd: str) -> str:
        """The path of the session file that `ref` names; SessionNotFoundError or AmbiguousSessionError."""
        if not self.uses_file_system:
            raise SessionNotFoundError(ref)
        return str(resolve_session_file(ref, cwd, self.session_dir, dialect=self.new_dialect, agent_dir=self.agent_dir))

    @property
    def files(self) -> SessionStorage:
        """The storage of the session files."""
        assert self.storage is not None
        return self.storage

    def _file_blobs(self, dialect: Dialect, *others: Path) -> FileBlobs:
        return FileBlobs(self.agent_dir_for(dialect) / "blobs", *others, storage=self.files)

    def _blobs_beside(self, path: str) -> FileBlobs:
        """The blobs for a file: those of the agent in whose folder it lies, else of the one asked for.

        Images are looked for in every folder beside that may have them.
        """
        beside = [parent / "blobs" for parent in list(Path(path).parents)[:4]]
        own = Path(path).parent.parent.parent / "blobs"  # <agent>/sessions/<folder>/<file>
        if self.files.exists(own) and own.with_name("sessions") in Path(path).parents:
            return FileBlobs(own, *beside, storage=self.files)
        dialect = self._metadata_of(path).dialect[0] if self.dialect is None else self.dialect
        return self._file_blobs(dialect, *beside)
