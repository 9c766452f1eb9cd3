"""SessionManager: one live session, as the agents' class of that name, in files, in a database or in memory.

Appends make a child of the leaf and move the leaf there; branching moves only the leaf. The rules stand here once, over
a Home that keeps the lines. Names are the clients' in snake_case, dicts have the clients' own keys.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from sessiondb import breadcrumbs, forms
from sessiondb.branching import branched_entries, linear_entries
from sessiondb.context import ContextReport, context_of_path, context_report
from sessiondb.database_home import import_database_home, open_database_home
from sessiondb.discovery import agent_folder
from sessiondb.errors import (
    EntryNotFoundError,
    ExportExistsError,
    ForkSourceError,
    SessionDBError,
    SessionDBWarning,
    SessionImportFileNotFoundError,
    SessionNotFoundError,
    SessionWriteConflictError,
    SessionWriteError,
)
from sessiondb.file_copies import copy_into, copy_path
from sessiondb.file_home import FileHome
from sessiondb.file_storage import FileSessionStorage
from sessiondb.files import absolute
from sessiondb.homes import Home
from sessiondb.jsonl import UNSET, Unset, encode_entry, encode_title_slot, format_time, strip_js
from sessiondb.listed_files import FileSessionInfo, SessionList, list_all_sessions, list_sessions
from sessiondb.metadata import AGENT_FOLDERS, Dialect
from sessiondb.session_lines import encode_line
from sessiondb.sessions import SessionInfo
from sessiondb.size_control import restored
from sessiondb.storage import AnyPath, SessionStorage, write_lines_atomically
from sessiondb.tool_calls import calls_of
from sessiondb.tree import Entry, Label, TreeNode, build_tree, role_of
from sessiondb.usage import usage_statistics
from sessiondb.where import How, Where

if TYPE_CHECKING:
    from sessiondb.store import Store

Leaf = Literal["last", "saved", "latest-message"]

EntryList = list[Any]  # the class below has a method `list`, which would stand for the type there
NodeList = list[TreeNode]


class SessionManager:
    """A session that is being written or read, and its leaf. Made by `create`, `open` and the other class methods.

    Used by one thread at a time. Nothing reaches a file or a database before the *gate* opens: with the first assistant
    message, with `ensure_on_disk`, or when a session is opened that has one (xcsh, omp: any that is opened). From then
    on each `append_…` writes before it returns the new entry's id, and `flush` returns when it is on disk.

    In files the first write error is kept: it is logged, raised as SessionWriteError, and raised again by every call
    that would write. In a database an append that fails changes nothing and may be tried again.
    """

    def __init__(self, where: Where, home: Home, cwd: str) -> None:
        self._where = where
        self._home = home
        self._cwd = cwd
        self._gate_open = False
        self._holds_entries = False
        self._leaf_id: str | None = None
        self._dialect = home.dialect
        self._ids = where.ids(self._dialect)
        self._is_beside = False  # made beside another manager's session, and not live yet

    # -- opening -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, cwd: AnyPath, **how: Unpack[How]) -> SessionManager:
        """A new session for a working directory; nothing is written yet. `how`: see `How`."""
        return cls._create(Where.given(**how), os.fspath(cwd))

    @classmethod
    def in_memory(cls, cwd: AnyPath | None = None, **how: Unpack[How]) -> SessionManager:
        """A new session that is never written. Of `how` only dialect, clock and ids mean something here."""
        where = replace(Where.given(**how), in_memory=True)
        return cls._create(where, _or_process_cwd(None if cwd is None else os.fspath(cwd)))

    @classmethod
    def open(
        cls, path_or_ref: AnyPath, *, cwd: AnyPath | None = None, leaf: Leaf = "last", **how: Unpack[How]
    ) -> SessionManager:
        """Go on with a session: a reference to one in `store`, else a file's path, or the start of an id or file name.

        The leaf is the last entry of the file, as in the clients; "latest-message": the end of the branch with the
        newest message; "saved" (database only): where it was when the session was last used. `cwd` overrides the
        header's. A missing path gives a new session that will be written there. Raises SessionNotFoundError or
        AmbiguousSessionError with the candidates for a reference.
        """
        if leaf not in ("last", "saved", "latest-message"):
            raise ValueError(f"leaf is 'last', 'saved' or 'latest-message', not {leaf!r}")
        if leaf == "saved" and how.get("store") is None:
            raise ValueError("only a database remembers the leaf; a file's is its last entry")
        manager = cls._open(Where.given(**how), path_or_ref, None if cwd is None else os.fspath(cwd))
        manager._move_to_leaf(leaf)
        manager.note_use()
        return manager

    @classmethod
    def continue_recent(cls, cwd: AnyPath, **how: Unpack[How]) -> SessionManager:
        """Go on with the session last used in a working directory, or create one.

        In a database that is the one with the newest activity; in files the one that this terminal used last (xcsh),
        else the one whose file was written last.
        """
        where, folder = Where.given(**how), os.fspath(cwd)
        if where.store is not None:
            recent: EntryList = where.store.sessions(cwd=folder, limit=1)
        else:
            found = where.recent_file(folder)
            recent = [] if found is None else [found]
        manager = cls._open(where, recent[0], folder) if recent else cls._create(where, folder)
        manager.note_use()
        return manager

    @classmethod
    def fork_from(cls, source: AnyPath | SessionInfo, cwd: AnyPath, **how: Unpack[How]) -> SessionManager:
        """A new session for `cwd` with all entries of another, migrated, written at once.

        `parentSession` is the source's path (pi) or id (xcsh; in a database always). The title goes along in xcsh.
        Raises ForkSourceError for a source that is missing, empty or invalid, before anything is written.
        """
        where = Where.given(**how)
        own = where.new_dialect
        parent, source_header, entries = _fork_source(where, source)
        forms.require_dialect(own, "fork_from", "xcsh", "pi")
        titles = {} if own == "pi" else _titles(source_header)
        session_id, timestamp = where.ids(own).session(), format_time(where.clock())
        header = forms.header(session_id, timestamp, os.fspath(cwd), parent_session=parent, **titles)
        manager = cls(where, where.new(header, entries, dialect=own), os.fspath(cwd))
        manager._begin(write=True)
        manager.note_use()
        return manager

    @classmethod
    def _create(cls, where: Where, cwd: str) -> SessionManager:
        dialect = where.new_dialect
        header = _new_header(where, dialect, cwd)
        home = where.new(header, dialect=dialect, title_slot=_title_slot(dialect, header))
        return cls(where, home, cwd)

    @classmethod
    def _open(cls, where: Where, ref: AnyPath | SessionInfo, cwd: str | None) -> SessionManager:
        if where.store is None:
            assert not isinstance(ref, SessionInfo)
            path = _path_of(where, ref, cwd)
            return cls._at_path(where.beside(path), path, cwd)
        info = where.store.session(ref)
        home = open_database_home(where.store, info, durable=where.durable, dialect=where.dialect)
        return cls._with_home(where, home, cwd)

    @classmethod
    def _at_path(cls, where: Where, path: str, cwd: str | None) -> SessionManager:
        home: Home | None = where.open_file(path)
        if home is None:
            folder = _or_process_cwd(cwd)
            dialect = where.new_dialect if where.dialect else _dialect_of_folder(path)
            header = _new_header(where, dialect, folder)
            manager = cls(where, where.fresh_file(path, header, dialect), folder)
            manager._begin(write=False)
            return manager
        return cls._with_home(where, home, cwd)

    @classmethod
    def _with_home(cls, where: Where, home: Home, cwd: str | None) -> SessionManager:
        stored = home.header.get("cwd")
        manager = cls(where, home, stored if cwd is None and type(stored) is str else _or_process_cwd(cwd))
        manager._begin(write=False)
        return manager

    def _begin(self, *, write: bool) -> None:
        """Take the home as it is: where the leaf stands, and whether the gate is open. `write`: write it first."""
        last = self._home.tree.last()
        self._leaf_id = None if last is None else last["id"]
        if write:
            self._home.write_held()
        self._gate_open = self._home.is_written and (self._dialect != "pi" or self._home.tree.has_assistant())
        self._holds_entries = not self._home.is_written and len(self._home.tree) > 0

    def _move_to_leaf(self, leaf: Leaf) -> None:
        if leaf == "saved":
            self._leaf_id = self._home.saved_leaf()
        elif leaf == "latest-message":
            self._leaf_id = self._home.tree.latest_message_leaf() or self._leaf_id

    # -- another session in this manager ---------------------------------------------------------------------------

    def new_session(
        self, *, parent_session: str | Unset = UNSET, session_id: str | Unset = UNSET
    ) -> str | None:  # fmt: skip
        """Begin a new session in the same place; where it will be is returned (None in memory).

        Nothing is written yet, but by omp, which writes title slot and header at once.
        """
        self.become(self.successor(parent_session=parent_session, session_id=session_id))
        return self._home.location

    def set_session_file(self, path_or_ref: AnyPath) -> None:
        """Go on with another session: a file, or a reference in the manager's database.

        An invalid file that is not empty is copied to `<name>.invalid-<time>` before a fresh session is put there; a
        missing one is made when the gate opens.
        """
        where = replace(self._where, unmarked=self._dialect)
        if where.store is None:
            self.become(self._at_path(where, str(absolute(path_or_ref)), self._cwd))
        else:
            self.become(self._open(where, path_or_ref, self._cwd))

    def create_branched_session(self, leaf_id: str | Unset | None = UNSET) -> str | None:
        """Go on in a new session that holds only the path to `leaf_id` (default: the leaf); where it is, is returned.

        Labels are set again at its end, what hung on a label hangs on the entry before it. pi writes it once it holds
        an assistant's message, the others at once. In memory None is returned. EntryNotFoundError for an empty path.
        """
        self.become(self.branched(leaf_id))
        return self._home.location

    def fork(self) -> str | None:
        """Go on in a new session with the same entries, whose parentSession is this one's id; None in memory."""
        if not self.is_persisted():
            return None
        forms.require_dialect(self._dialect, "fork", "xcsh", "pi")
        titles = {} if self._dialect == "pi" else _titles(self._home.header)
        session_id, timestamp = self._ids.session(), self._timestamp()
        header = forms.header(
            session_id, timestamp, self._cwd, parent_session=self.get_session_id(), title_first=True, **titles
        )  # fmt: skip
        leaf_id = self._leaf_id
        self.become(self._beside(header, self._home.tree.entries(), write=self._gate_open))
        self._set_leaf(leaf_id)
        return self._home.location

    def move_to(self, cwd: AnyPath) -> None:
        """Let the session belong to another working directory: its file and artifacts move to the folder for that."""
        forms.require_dialect(self._dialect, "move_to", "xcsh", "pi")
        folder = os.fspath(cwd)
        header = {**self._home.header, "cwd": folder}
        if isinstance(self._home, FileHome):
            old = self._home.path
            target = self._where.cwd_folder(folder, self._dialect)
            self._home.move(os.path.join(target, os.path.basename(old)), target, header)  # noqa: PTH118, PTH119
        else:
            self._revise("move_to", header)
        self._cwd = folder
        self.note_use()

    # -- another session beside this one ---------------------------------------------------------------------------

    def successor(
        self, *, cwd: str | None = None, parent_session: str | Unset = UNSET, session_id: str | Unset = UNSET
    ) -> SessionManager:  # fmt: skip
        """A manager of a new session in the same place, as `new_session` begins it; this one stays what it is."""
        own_id = self._ids.session() if session_id is UNSET else session_id
        folder = self._cwd if cwd is None else cwd
        header = forms.header(own_id, self._timestamp(), folder, parent_session=parent_session)
        return self._beside(header, (), write=self._dialect == "omp" and self.is_persisted(), cwd=folder)

    def branched(self, leaf_id: str | Unset | None = UNSET) -> SessionManager:
        """A manager of a new session as `create_branched_session` makes it; this one stays what it is."""
        path = self.get_branch(leaf_id)
        if not path:
            raise EntryNotFoundError(leaf_id)
        labels = self._home.tree.labels()
        parent = self._home.location or UNSET
        header = forms.header(self._ids.session(), self._timestamp(), self._cwd, parent_session=parent)
        if self._dialect == "omp":
            header = forms.omp_branch_header(header, self._home.header)
        entries = branched_entries(path, labels, self._label_again)
        has_assistant = any(role_of(entry) == "assistant" for entry in entries)
        return self._beside(header, entries, write=self._dialect != "pi" or has_assistant)

    def opened(self, path_or_ref: AnyPath, *, cwd: str | None = None) -> SessionManager:
        """A manager of another session that is there, as `open` makes it; this one stays what it is.

        In a database the reference is looked up there. Else it names a file, also from memory, and sessions that are
        new afterwards go beside that.
        """
        where = replace(self._where, unmarked=self._dialect, in_memory=False)
        if where.store is not None:  # it keeps its own dialect: another one would be written to it
            return self._open(replace(where, dialect=None), path_or_ref, cwd)._beside_another()
        path = _path_of(where, path_or_ref, self._cwd)
        folder = os.path.dirname(path)  # noqa: PTH120
        return self._at_path(replace(where, session_dir=folder), path, cwd)._beside_another()

    def imported(self, path: AnyPath, *, cwd: str | None = None) -> SessionManager:
        """A manager of the session in a file elsewhere, taken in where this one's sessions are; that file is only read.

        A database imports it (SessionImportError for a file without a session). A folder gets a copy under a name that
        is free, unless the file lies there already. In memory it is read. `discard` removes a copy; a database keeps
        what it has imported.
        """
        where, source = replace(self._where, unmarked=self._dialect), str(absolute(path))
        if where.store is not None:
            home = import_database_home(where.store, source, durable=where.durable)
            return self._with_home(where, home, cwd)._beside_another()
        if not isinstance(self._home, FileHome):
            return self._at_path(where, source, cwd)._beside_another()
        copy, is_new = copy_into(where.files, source, self._home.folder)
        try:
            manager = self._at_path(replace(where, session_dir=self._home.folder), copy, cwd)
        except BaseException:
            if is_new:
                where.files.unlink(copy)
            raise
        if is_new:
            assert isinstance(manager._home, FileHome)
            manager._home.note_copy()
        return manager._beside_another()

    def import_target(self, path: AnyPath) -> str:
        """What `imported` will open: the path of the copy, or of the file itself where there is none.

        SessionImportFileNotFoundError when there is no such file.
        """
        source = str(absolute(path))
        if not os.path.exists(source) and not self._where.exists(source):  # noqa: PTH110 - Path's raises for long names
            raise SessionImportFileNotFoundError(source)
        return copy_path(self._where.files, source, self._home.folder) if isinstance(self._home, FileHome) else source

    def cwd_stored_in(self, path: AnyPath) -> str | None:
        """The working directory that the header of a session file names; None without one. Nothing is written."""
        try:
            session = replace(self._where, store=None).read_file(str(absolute(path)))
        except OSError:  # whoever opens it is told
            return None
        cwd = None if session is None or session.header is None else session.header.get("cwd")
        return cwd if type(cwd) is str else None

    def become(self, other: SessionManager) -> None:
        """Go on with the session of another manager, made beside this one, in its place; that one is of no use then.

        What goes wrong in leaving this session is logged and ends with it.
        """
        self._leave(self._home)
        self.__dict__.update(other.__dict__)
        self.keep()

    def keep(self) -> None:
        """Let a session that was made beside another be as any other: it is used from now on."""
        self._is_beside = False
        self.note_use()

    def discard(self) -> None:
        """Take back what was made for a session beside another that was not kept: what is new of it goes again.

        Of any other session nothing goes; it is closed.
        """
        if self._is_beside:
            self._home.discard()
        else:
            self._home.close()

    def note_use(self) -> None:
        """Remember the session as the one last used here, where the client does so; "continue" goes on with that."""
        home = self._home
        if self._dialect == "xcsh" and isinstance(home, FileHome) and home.is_written and self._where.uses_file_system:
            breadcrumbs.write_breadcrumb(self._where.agent_dir_for("xcsh"), self._cwd, home.path)

    def _beside(
        self, header: Entry, entries: Iterable[Any], *, write: bool, cwd: str | None = None
    ) -> SessionManager:  # fmt: skip
        copies = [dict(entry) if type(entry) is dict else entry for entry in entries]  # each manager may change its own
        home = self._home.beside(header, copies, title_slot=_title_slot(self._dialect, header))
        if write:
            home.write_held()
        manager = type(self)(self._where, home, self._cwd if cwd is None else cwd)
        manager._begin(write=False)
        return manager._beside_another()

    def _beside_another(self) -> SessionManager:
        self._is_beside = True
        return self

    @staticmethod
    def _leave(home: Home) -> None:
        """Give a session up for another one. What goes wrong is logged and ends with it."""
        try:
            with suppress(SessionWriteError):
                home.flush()
        finally:
            with suppress(SessionWriteError):
                home.close()

    def _label_again(self, parent_id: str | None, target: str, label: Label, taken: set[str]) -> Entry:
        label_id = self._ids.entry(lambda entry_id: entry_id in taken)
        timestamp = label.timestamp if self._dialect == "pi" else self._timestamp()
        return forms.entry("label", label_id, parent_id, timestamp, {"targetId": target, "label": label.text})

    # -- appending -----------------------------------------------------------------------------------------------

    def append_message(self, message: Mapping[str, Any]) -> str:
        """Append a message as it is given: roles, keys and their order are the caller's. The new entry's id.

        TypeError for what is no JSON object; nothing has changed then.
        """
        if not isinstance(message, dict):
            raise TypeError(f"a message is a dict, not {type(message).__name__}")
        return self._append("message", {"message": message})

    def append_thinking_level_change(self, level: str | Unset | None = UNSET, *, configured: Any = UNSET) -> str:
        """Append a change of the thinking level; `configured` is omp's."""
        if configured is not UNSET:
            forms.require_dialect(self._dialect, "configured=", "omp")
        return self._append(
            "thinking_level_change", forms.thinking_level_change(self._dialect, level, configured)
        )  # fmt: skip

    def append_model_change(
        self, model: str, role: str | Unset = UNSET, *, resolved_model_is_fallback: bool = False
    ) -> str:  # fmt: skip
        """Append a change to `provider/model`. pi has no roles (ValueError); the last argument is omp's."""
        fields = forms.model_change(self._dialect, model, role, resolved_model_is_fallback)
        return self._append("model_change", fields)

    def append_compaction(
        self, summary: str, first_kept_entry_id: str | None, tokens_before: int, details: Any = UNSET, *,
        short_summary: str | Unset = UNSET, from_extension: bool | Unset = UNSET, preserve_data: Any = UNSET,
        tokens_after: int | Unset = UNSET, method: str | Unset = UNSET,
        provider_replay_through_entry_id: str | Unset = UNSET,
    ) -> str:  # fmt: skip
        """Append a compaction: the context then is the summary, and the path from `first_kept_entry_id` on.

        ValueError for what the dialect does not write. `from_extension` is written as `fromHook` by pi.
        """
        fields = forms.compaction(
            self._dialect, summary, first_kept_entry_id, tokens_before, details, short_summary=short_summary,
            from_extension=from_extension, preserve_data=preserve_data, tokens_after=tokens_after, method=method,
            replay_through=provider_replay_through_entry_id,
        )  # fmt: skip
        return self._append("compaction", fields)

    def append_custom_entry(self, custom_type: str, data: Any = UNSET) -> str:
        """Append what an extension keeps for itself; no part of the context."""
        return self._append("custom", {"customType": custom_type, "data": data})

    def append_custom_message_entry(
        self, custom_type: Any = UNSET, content: Any = UNSET, display: Any = UNSET, details: Any = UNSET, *,
        attribution: str | Unset = UNSET,
    ) -> str:  # fmt: skip
        """Append an extension's message, part of the context. `attribution` is "agent" unless given; pi has none."""
        if self._dialect != "omp" and UNSET in (custom_type, content, display):  # omp has defaults
            raise TypeError("append_custom_message_entry needs custom_type, content and display")
        fields = forms.custom_message(self._dialect, custom_type, content, display, details, attribution)
        return self._append("custom_message", fields)

    def append_label_change(self, target_id: str, label: str | Unset | None = UNSET) -> str:
        """Set a label on an entry; empty or missing: clear it. EntryNotFoundError when there is no such entry."""
        self._require_entry(target_id)
        return self._append("label", {"targetId": target_id, "label": label})

    def append_session_info(self, name: str) -> str:
        """Append the session's name, trimmed (pi)."""
        forms.require_dialect(self._dialect, "append_session_info", "pi")
        return self._append("session_info", {"name": strip_js(name)})

    def append_mode_change(self, mode: str, data: Any = UNSET) -> str:
        """Append a change of mode, such as plan mode (xcsh, omp)."""
        forms.require_dialect(self._dialect, "append_mode_change", "xcsh", "omp")
        return self._append("mode_change", {"mode": mode, "data": data})

    def append_ttsr_injection(self, rules: Sequence[str]) -> str:
        """Append the names of rules that were injected (xcsh, omp)."""
        forms.require_dialect(self._dialect, "append_ttsr_injection", "xcsh", "omp")
        return self._append("ttsr_injection", {"injectedRules": list(rules)})

    def append_session_init(self, init: Mapping[str, Any]) -> str:
        """Append what a subagent was started with, keys in the caller's order (xcsh, omp)."""
        forms.require_dialect(self._dialect, "append_session_init", "xcsh", "omp")
        return self._append("session_init", dict(init))

    def append_context_change(self, name: Any, tenant: Any, namespace: Any) -> str:
        """Append a change of the active context (xcsh)."""
        forms.require_dialect(self._dialect, "append_context_change", "xcsh")
        return self._append("context_change", {"contextName": name, "tenant": tenant, "namespace": namespace})

    def append_service_tier_change(self, tier: Any) -> str:
        """Append a change of the service tier; None clears it (xcsh, omp)."""
        forms.require_dialect(self._dialect, "append_service_tier_change", "xcsh", "omp")
        return self._append("service_tier_change", {"serviceTier": tier})

    def append_mcp_tool_selection(self, names: Sequence[str]) -> str:
        """Append which MCP tools are selected (xcsh)."""
        forms.require_dialect(self._dialect, "append_mcp_tool_selection", "xcsh")
        return self._append("mcp_tool_selection", {"selectedToolNames": list(names)})

    def append_credential_pin(self, provider: str, hash: str) -> str:  # noqa: A002 - the client's name for it
        """Append which credential the session is pinned to (omp)."""
        forms.require_dialect(self._dialect, "append_credential_pin", "omp")
        return self._append("credential_pin", {"provider": provider, "hash": hash})

    def append_reset_boundary(self) -> str:
        """Append a boundary: the context begins behind it (omp)."""
        forms.require_dialect(self._dialect, "append_reset_boundary", "omp")
        return self._append("reset_boundary", {})

    def append_model_usage(self, usage: Mapping[str, Any], *, parent_id: str | Unset | None = UNSET) -> str:
        """Append usage of a model beside the conversation; the leaf stays (omp)."""
        forms.require_dialect(self._dialect, "append_model_usage", "omp")
        return self._append_off_leaf("model_usage", dict(usage), parent_id)

    def append_message_to_branch(self, message: Mapping[str, Any], parent_id: str | None) -> str:
        """Append a message under another entry; the leaf stays (omp)."""
        forms.require_dialect(self._dialect, "append_message_to_branch", "omp")
        return self._append_off_leaf("message", {"message": message}, parent_id)

    def _append_off_leaf(self, kind: str, fields: dict[str, Any], parent_id: str | Unset | None) -> str:
        leaf_id = self._leaf_id
        if isinstance(parent_id, str):
            self._require_entry(parent_id)
        try:
            return self._append(kind, fields, leaf_id if parent_id is UNSET else parent_id)
        finally:
            self._set_leaf(leaf_id)

    def _append(self, kind: str, fields: dict[str, Any], parent_id: str | Unset | None = UNSET) -> str:
        tree = self._home.tree
        entry_id = self._ids.entry(lambda candidate: candidate in tree)
        parent = self._leaf_id if parent_id is UNSET else parent_id
        return self._take(forms.entry(kind, entry_id, parent, self._timestamp(), fields))

    def _take(self, entry: Entry) -> str:
        """Let an entry become the leaf, in memory and, when the gate is open, where the session lives.

        An entry that cannot be encoded changes nothing; one that a file does not take is in memory all the same.
        """
        entry_id: str = entry["id"]
        if self._gate_open:
            try:
                self._home.append(entry)
            except SessionWriteError:
                if entry_id in self._home.tree:
                    self._leaf_id, self._holds_entries = entry_id, True
                raise
        else:
            encode_line(entry)  # what cannot be written must not wait for its turn
            before = self._leaf_id, self._holds_entries
            self._home.hold(entry)
            self._leaf_id, self._holds_entries = entry_id, True
            try:
                self._open_gate_when_due()
            except SessionDBError:
                if self._home.take_back():
                    self._leaf_id, self._holds_entries = before
                raise
        self._leaf_id = entry_id
        return entry_id

    def _open_gate_when_due(self) -> None:
        if self._holds_entries and not self._gate_open and self._home.tree.has_assistant():
            self.ensure_on_disk()

    def _require_entry(self, entry_id: Any) -> None:
        if type(entry_id) is not str or entry_id not in self._home.tree:
            raise EntryNotFoundError(entry_id)

    def _timestamp(self) -> str:
        return format_time(self._where.clock())

    # -- the leaf ------------------------------------------------------------------------------------------------

    def branch(self, entry_id: str) -> None:
        """Move the leaf to an entry: the next append becomes its child. EntryNotFoundError when there is none."""
        self._require_entry(entry_id)
        self._set_leaf(entry_id)

    def reset_leaf(self) -> None:
        """Move the leaf before the first entry: the next append becomes a root."""
        self._set_leaf(None)

    def branch_with_summary(
        self, entry_id: str | None, summary: str, details: Any = UNSET, from_extension: bool | Unset = UNSET
    ) -> str:  # fmt: skip
        """Move the leaf (None: before the first entry) and append a summary of what was left. The new entry's id."""
        if entry_id is not None:
            self._require_entry(entry_id)
        fields = forms.branch_summary(self._dialect, entry_id, summary, details, from_extension)
        return self._append("branch_summary", fields, entry_id)

    def _set_leaf(self, entry_id: str | None) -> None:
        self._leaf_id = entry_id
        if self._gate_open:
            self._home.note_leaf(entry_id)

    # -- rewriting -----------------------------------------------------------------------------------------------

    def set_session_name(self, name: str, source: str = "auto", trigger: str | Unset = UNSET) -> bool:
        """Name the session; False, and nothing written, for an empty name or an "auto" one after one by the "user".

        xcsh writes the whole file again with the title in its header. pi appends a session_info. omp overwrites its
        title slot and appends a title_change.
        """
        if self._dialect == "pi":
            self.append_session_info(name)
            return True
        title = forms.session_title(name)
        header = self._home.header
        if not title or (source == "auto" and header.get("titleSource") == "user"):
            return False
        previous = header.get("title")
        titled = {**header, "title": title, "titleSource": source}
        if self._dialect == "omp":
            self._rename_in_slot(titled, previous, source, trigger)
        else:
            self._revise("set_session_name", titled)
        return True

    def _rename_in_slot(self, titled: Entry, previous: Any, source: str, trigger: str | Unset) -> None:
        tree = self._home.tree
        entry_id = self._ids.entry(lambda candidate: candidate in tree)
        timestamp = self._timestamp()
        self._home.set_title_slot(encode_title_slot(titled["title"], source, updated_at=timestamp), titled)
        fields = forms.title_change(titled["title"], source, previous, trigger)
        self._take(forms.entry("title_change", entry_id, self._leaf_id, timestamp, fields))

    def rewrite_entries(self, changed: Iterable[Entry] = ()) -> None:
        """Write the session again, atomically: its entries as in memory, those of `changed` in place of their ids'."""
        self._revise("rewrite_entries", self._home.header, changed)

    def rewrite_tool_call_arguments(self, tool_call_id: str, arguments: Mapping[str, Any]) -> bool:
        """Give a tool call other arguments, in memory and by one atomic rewrite; False when there is no such call."""
        found: Entry | None = None
        for entry in self._home.tree.usage_entries():
            if calls_of(entry["message"], tool_call_id):
                found = entry
        if found is None:
            return False
        message = found["message"]
        content = [
            {**block, "arguments": arguments} if block in calls_of(message, tool_call_id) else block
            for block in message["content"]
        ]
        changed = {**found, "message": {**message, "content": content}}
        self._revise("rewrite_tool_call_arguments", self._home.header, [changed])
        return True

    def _revise(self, call: str, header: Entry, changed: Iterable[Entry] = ()) -> None:
        forms.require_dialect(self._dialect, call, "xcsh", "pi")
        changed = list(changed)
        for entry in changed:
            self._require_entry(entry.get("id", UNSET))
        for value in (header, *changed):
            encode_entry(value)  # what cannot be written changes nothing
        before = self._home.header, [dict(self._home.tree.get(entry["id"]) or {}) for entry in changed]
        self._home.revise(header, changed)
        if self._gate_open:
            try:
                self._home.rewrite()
            except SessionWriteConflictError:  # nothing was tried: the session is what it was
                self._home.revise(*before)
                raise

    # -- writing -------------------------------------------------------------------------------------------------

    def ensure_on_disk(self) -> None:
        """Open the gate now: the whole session is written, and from here on each append."""
        if not self.is_persisted() or self._gate_open:
            return
        self._home.write_held()
        self._gate_open, self._holds_entries = True, False
        self.note_use()

    def is_on_disk(self) -> bool:
        """Whether all that was appended is written: False as long as entries wait for the gate."""
        return self._home.is_written and not self._holds_entries

    def is_saved(self) -> bool:
        """Whether others can find the session: its file or row is there."""
        return self._home.is_written

    def is_in_database(self) -> bool:
        """Whether the session lives in a store."""
        return self._where.store is not None and not self._where.in_memory

    def is_persisted(self) -> bool:
        """Whether the session has a place outside of memory."""
        return not self._where.in_memory

    def flush(self) -> None:
        """When this returns, what was appended is on disk. Writes nothing while the gate is closed."""
        self._open_gate_when_due()  # writing may have failed when it was
        self._home.flush()

    def close(self) -> None:
        """Flush and give up what is held open, as far as that goes; the first error is raised."""
        try:
            self.flush()
        finally:
            self._home.close()

    def __enter__(self) -> SessionManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    # -- looking -------------------------------------------------------------------------------------------------

    def get_entry(self, entry_id: str) -> Entry | None:
        """The entry of that id, of several the last; None when there is none."""
        return self._home.tree.get(entry_id)

    def get_entries(self) -> EntryList:
        """All entries in file order, without the header."""
        return self._home.tree.entries()

    def get_branch(self, from_id: str | Unset | None = UNSET) -> EntryList:
        """Root to `from_id` (default: the leaf); empty when there is no such entry."""
        start = self._leaf_id if from_id is UNSET or from_id is None else str(from_id)
        return [] if start is None else self._home.tree.path(start)

    def get_tree(self) -> NodeList:
        """The roots, each `{"entry", "children", "label"?}`, in pi also `labelTimestamp`; see `build_tree`."""
        return build_tree(self._home.tree.entries(), with_label_times=self._dialect == "pi")

    def get_children(self, parent_id: str | None) -> EntryList:
        """The entries with exactly this `parentId`; None gives the roots."""
        return self._home.tree.children(parent_id)

    def get_label(self, entry_id: str) -> Any:
        """The label on an entry, or None."""
        label = self._home.tree.labels().get(entry_id)
        return None if label is None else label.text

    def get_leaf_id(self) -> str | None:
        """Where the next append goes; None: before the first entry."""
        return self._leaf_id

    def get_leaf_entry(self) -> Entry | None:
        """The leaf's entry."""
        return None if self._leaf_id is None else self._home.tree.get(self._leaf_id)

    def get_header(self) -> Entry:
        """The session's header."""
        return self._home.header

    def get_session_id(self) -> str:
        """The header's id."""
        session_id: str = self._home.header["id"]
        return session_id

    def get_session_file(self) -> str | None:
        """The file's path, also before it is written; the session's id in a database; None in memory."""
        return self._home.location

    def get_session_dir(self) -> str:
        """Where new sessions go; empty in memory and in a database."""
        return self._home.folder if isinstance(self._home, FileHome) else ""

    def get_session_name(self) -> str | None:
        """The session's name: pi's last session_info, else the title."""
        if self._dialect == "pi":
            return strip_js(self._home.metadata.info_name or "") or None
        title = self._home.header.get("title")
        return title if type(title) is str else None

    def get_cwd(self) -> str:
        """The working directory the session is used in."""
        return self._cwd

    def get_dialect(self) -> str:
        """Whose session this is: xcsh, pi or omp."""
        return self._dialect

    def get_usage_statistics(self) -> dict[str, Any]:
        """Tokens and cost over the whole file, as xcsh counts them; see `usage_statistics`."""
        return usage_statistics(self._home.tree.usage_entries())

    def build_session_context(self) -> dict[str, Any]:
        """What goes to the model from the leaf, in the dialect's keys; of a stored session only that much is read."""
        above, path = ([], []) if self._leaf_id is None else self._home.tree.window(self._leaf_id)
        return context_of_path(path, above=above, dialect=self._dialect)

    def context_report(self) -> ContextReport:
        """What is amiss with the context: tool calls without a result, entries that cannot be reached."""
        return context_report(self._home.tree.entries(), self._leaf_id, dialect=self._dialect)

    def export_to_jsonl(self, path: AnyPath | None = None, *, force: bool = False) -> str:
        """Write the branch to the leaf as a session file of its own: one line of entries, same id, no parent.

        Default name: `session-<time>.jsonl` in the process's cwd. The path is returned. ExportExistsError for a path
        that is taken, without `force`.
        """
        if path is None:
            path = f"session-{self._timestamp().replace(':', '-').replace('.', '-')}.jsonl"
        target = str(absolute(path))
        if os.path.lexists(target) and not force:
            raise ExportExistsError(Path(target))
        header = forms.header(self.get_session_id(), self._timestamp(), self._cwd)
        storage = FileSessionStorage()
        storage.ensure_dir(os.path.dirname(target))  # noqa: PTH120
        lines = (encode_entry(value) for value in (header, *linear_entries(self.get_branch())))
        write_lines_atomically(storage, target, lines)
        return target

    # -- lists ---------------------------------------------------------------------------------------------------

    @staticmethod
    def list(
        cwd: AnyPath, session_dir: AnyPath | None = None, *, store: Store | None = None, dialect: str | None = None,
        agent_dir: AnyPath | None = None, storage: SessionStorage | None = None,
    ) -> Sequence[Any]:  # fmt: skip
        """The sessions of a working directory, as the dialect's client lists them; of a store, its SessionInfos.

        A file that cannot be listed is named in a SessionDBWarning.
        """
        if store is not None:
            return store.sessions(cwd=os.fspath(cwd))
        where = Where.given(dialect=dialect, agent_dir=agent_dir, storage=storage)
        found = list_sessions(
            os.fspath(cwd), session_dir, dialect=where.new_dialect, agent_dir=where.agent_dir, storage=where.files
        )  # fmt: skip
        return _listed(found)

    @staticmethod
    def list_all(
        *, store: Store | None = None, dialect: str | None = None, agent_dir: AnyPath | None = None
    ) -> Sequence[Any]:  # fmt: skip
        """The sessions of all working directories; see `list`."""
        if store is not None:
            return store.sessions()
        where = Where.given(dialect=dialect, agent_dir=agent_dir)
        return _listed(list_all_sessions(dialect=where.new_dialect, agent_dir=where.agent_dir))


def _or_process_cwd(cwd: str | None) -> str:
    return os.getcwd() if cwd is None else cwd  # noqa: PTH109 - paths are text here


def _new_header(where: Where, dialect: Dialect, cwd: str) -> Entry:
    return forms.header(where.ids(dialect).session(), format_time(where.clock()), cwd)


def _titles(header: Entry) -> dict[str, Any]:
    return {"title": header.get("title", UNSET), "title_source": header.get("titleSource", UNSET)}


def _title_slot(dialect: Dialect, header: Entry) -> bytes | None:
    if dialect != "omp":
        return None
    return encode_title_slot(
        header.get("title", ""), header.get("titleSource", UNSET), updated_at=header["timestamp"]
    )  # fmt: skip


def _path_of(where: Where, ref: AnyPath, cwd: str | None) -> str:
    """The file that a reference names: a path is one (a PathLike, or text with a separator or the suffix)."""
    text = os.fspath(ref)
    looks_like_path = not isinstance(ref, str) or "/" in text or "\\" in text or text.endswith(".jsonl")
    if looks_like_path or where.exists(text):
        return str(absolute(text))
    return where.resolve_file(text, _or_process_cwd(cwd))


def _dialect_of_folder(path: str) -> Dialect:
    """The dialect for a fresh session in a file, when nobody names one: by the agent's folder it lies in, else xcsh."""
    return AGENT_FOLDERS.get(agent_folder(Path(path)) or "", "xcsh")


def _fork_source(where: Where, source: AnyPath | SessionInfo) -> tuple[str, Entry, EntryList]:
    """What the new session names as its parent, the source's header, its entries."""
    named = source.id if isinstance(source, SessionInfo) else os.fspath(source)
    if where.store is not None:
        with suppress(SessionNotFoundError):
            info = where.store.session(source)
            header, entries = where.store.header(info), where.store.entries(info)
            if header is None and not entries:
                raise ForkSourceError(named)
            if where.new_dialect == "pi":  # has no blobs; the others' lines go on referring to those of the store
                entries = [restored(entry, where.store.blobs, named) for entry in entries]
            return info.id, header or {}, entries
    files = replace(where, store=None, dialect=None)
    try:
        session = files.read_file(str(absolute(named)))
    except OSError as error:
        raise ForkSourceError(named) from error
    if session is None or session.header is None:
        raise ForkSourceError(named)
    parent = named if where.store is None and where.new_dialect == "pi" else session.header["id"]
    return parent, session.header, session.entries


def _listed(found: SessionList) -> Sequence[FileSessionInfo]:
    for path, reason in found.skipped:
        warnings.warn(f"{path} is not listed: {reason}", SessionDBWarning, stacklevel=3)
    return found.rows
