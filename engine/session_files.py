"""Session files where the agents keep them: reads one, finds the newest, lists them, finds the one that is meant.

Nothing here writes. Where the clients hide a file that they cannot read, it is named: in `SessionList.skipped`, or by a
SessionDBWarning where the answer has no place for it.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from sessiondb.discovery import SUFFIX, find
from sessiondb.errors import AmbiguousSessionError, SessionDBWarning, SessionNotFoundError
from sessiondb.files import CHUNK, open_regular
from sessiondb.jsonl import (
    UNSET,
    Fault,
    header_with_slot,
    parse_line,
    parse_time,
    split_lines,
    strip_bom,
    strip_js,
)
from sessiondb.metadata import Dialect, Metadata, text_of
from sessiondb.places import agent_dir_of, real_path, session_dirs_for
from sessiondb.storage import FileSessionStorage, SessionStorage

AnyPath = str | os.PathLike[str]
Entry = dict[str, Any]

PREFIX_BYTES: Final = 4096
"""How much of a file tells whether it is a session and what its name is, as in xcsh (pi: 512 bytes)."""

DISK: Final = FileSessionStorage()

NO_HEADER: Final = "no session header first"

LONGEST_SHOWN_NAME: Final = 40
"""UTF-16 units of a name in a list of recent sessions."""


# --- one file


def load_entries_from_file(path: AnyPath, storage: SessionStorage = DISK) -> list[Any]:
    """The session's header and entries in the order of the file, not migrated; never writes.

    [] when the file is missing or its first value is no header (type `session`, a string id). Lines that are no JSON
    are passed over, what can be recovered from glued and torn ones is taken, `null` is no entry, and a title slot is
    put into the header as omp does. Raises OSError when the file cannot be read.
    """
    try:
        stream = _open(path, storage)
    except FileNotFoundError:
        return []
    with stream:
        return list(_session_values(stream))


def _session_values(stream: BinaryIO, chunk_size: int = CHUNK) -> Iterator[Any]:
    """The header, then every other value; nothing at all when there is no valid header first."""
    values = _values(stream, chunk_size)
    header = next(values, None)
    slot = None
    if type(header) is dict and header.get("type") == "title" and type(header.get("title")) is str:
        slot, header = header, next(values, None)
    if type(header) is dict and header.get("type") == "session" and type(header.get("id")) is str:
        yield header if slot is None else header_with_slot(header, slot)
        yield from values


def _values(stream: BinaryIO, chunk_size: int) -> Iterator[Any]:
    for number, raw in enumerate(split_lines(stream, chunk_size=chunk_size)):
        value = parse_line(raw if number else strip_bom(raw))
        if isinstance(value, Fault):
            yield from value.entries
        elif value is not None:
            yield value


# --- the newest


class RecentSession(NamedTuple):
    """A session for a short list: `name` as it is shown, `mtime` of the file in ms."""

    path: str
    name: str
    mtime: int


def find_most_recent_session(session_dir: AnyPath, storage: SessionStorage = DISK) -> str | None:
    """The file changed last of those in the folder whose first 4,096 bytes hold a valid header."""
    return next((begun.path for begun in _newest_first([session_dir], storage)), None)


def find_most_recent_for_cwd(
    cwd: str, *, dialect: Dialect = "xcsh", agent_dir: AnyPath | None = None, storage: SessionStorage = DISK
) -> str | None:
    """The session of this working directory whose file was changed last, in the agent's folders for it.

    The header's cwd decides, as in `list_sessions`; the clients take whatever their folder holds.
    """
    is_here = _CwdCheck(cwd)
    folders = session_dirs_for(cwd, dialect, agent_dir_of(dialect, agent_dir))
    return next((begun.path for begun in _newest_first(folders, storage) if is_here(begun.header)), None)


def get_recent_sessions(session_dir: AnyPath, limit: int = 3, storage: SessionStorage = DISK) -> list[RecentSession]:
    """The sessions in the folder whose files were changed last, named from their first 4,096 bytes as xcsh does.

    The name is the title, else the first user text, else the id, else the file's name: its first line without control
    characters, cut to 39 UTF-16 units and `…` when it is longer than 40.
    """
    newest = islice(_newest_first([session_dir], storage), max(limit, 0))
    return [RecentSession(begun.path, _shown_name(begun), begun.mtime) for begun in newest]


class _Begun(NamedTuple):
    """A session as far as the first bytes of its file tell; `values` are those behind the header."""

    path: str
    mtime: int
    header: Entry
    values: Iterator[Any]


def _newest_first(folders: Iterable[AnyPath], storage: SessionStorage) -> Iterator[_Begun]:
    """The sessions in the folders by the time of their files; of equal times the last name comes first."""
    dated: list[tuple[float, str]] = []
    for folder in folders:
        with _warned(folder):
            for path in _files_in(folder, storage):
                with _warned(path):
                    dated.append((storage.stat(path).mtime_ms, path))
    for mtime_ms, path in sorted(dated, reverse=True):
        prefix = ""
        with _warned(path):
            prefix = storage.read_text_prefix(path, PREFIX_BYTES)
        values = _session_values(io.BytesIO(_to_bytes(prefix)))
        if (header := next(values, None)) is not None:
            yield _Begun(path, int(mtime_ms), header, values)


@contextmanager
def _warned(path: AnyPath) -> Iterator[None]:
    """Passes over what cannot be read, and says so."""
    try:
        yield
    except OSError as error:
        _warn(path, _reason(error))


def _warn(path: AnyPath, reason: str) -> None:
    warnings.warn(f"{os.fspath(path)} cannot be read and was passed over: {reason}", SessionDBWarning, stacklevel=2)


def _shown_name(begun: _Begun) -> str:
    names = (text_of(begun.header.get("title")), _first_prompt(begun.values), begun.header["id"], _stem(begun.path))
    name = next((clean for clean in map(_clean, names) if clean), "")
    units = name.encode("utf-16-le", "surrogatepass")
    if len(units) <= 2 * LONGEST_SHOWN_NAME:
        return name
    # xcsh may cut an emoji in half; half a pair cannot be printed, so it goes
    return units[: 2 * (LONGEST_SHOWN_NAME - 1)].decode("utf-16-le", "ignore") + "…"


def _first_prompt(values: Iterable[Any]) -> str | None:
    """The first text in the first user message that has one."""
    for value in values:
        message = value.get("message") if type(value) is dict and value.get("type") == "message" else None
        if type(message) is dict and message.get("role") == "user":
            content = message.get("content")
            blocks = content if type(content) is list else [{"text": content}]
            texts = (block.get("text") for block in blocks if type(block) is dict)
            if (text := next((text for text in texts if type(text) is str), None)) is not None:
                return text
    return None


def _clean(name: str | None) -> str:
    first_line = (name or "").partition("\n")[0]
    return strip_js(re.sub(r"[\x00-\x1f\x7f]", "", first_line))


# --- lists


@dataclass(frozen=True, slots=True)
class FileSessionInfo:
    """A row of `list_sessions`. Times in ms since 1970; `created` None when the header tells none.

    `name` is pi's, `title` that of xcsh and omp. `parent_session_path` is whatever the header has, UNSET without.
    """

    path: str
    id: str
    cwd: str
    name: str | None
    title: str | None
    parent_session_path: Any
    created: int | None
    modified: int
    message_count: int
    first_message: str
    all_messages_text: str

    def to_dict(self) -> dict[str, Any]:
        """The row with the client's keys, in its order; those it leaves out are left out."""
        optional = {"name": self.name, "title": self.title}
        row: dict[str, Any] = {"path": self.path, "id": self.id, "cwd": self.cwd}
        row |= {key: value for key, value in optional.items() if value is not None}
        if self.parent_session_path is not UNSET:
            row["parentSessionPath"] = self.parent_session_path
        return row | {
            "created": self.created,
            "modified": self.modified,
            "messageCount": self.message_count,
            "firstMessage": self.first_message,
            "allMessagesText": self.all_messages_text,
        }


class SessionList(NamedTuple):
    """The rows, newest first, and the files that gave none.

    `skipped`: path and reason of what cannot be read or is no session. `elsewhere`: path and cwd of sessions that only
    share a folder with the working directory asked for.
    """

    rows: list[FileSessionInfo]
    skipped: list[tuple[str, str]]
    elsewhere: list[tuple[str, str]]


def list_sessions(
    cwd: str, session_dir: AnyPath | None = None, dialect: Dialect = "xcsh", *, agent_dir: AnyPath | None = None,
    storage: SessionStorage = DISK,
) -> SessionList:  # fmt: skip
    """The sessions of a working directory, newest first, with the rows of the dialect's client.

    With `session_dir`, all that this folder holds. Without, those in the agent's folders for the cwd whose header names
    it (links resolved) or names none, for folder names collide. Files are read in full. `modified` is the newest user
    or assistant message in pi, else the header's time; the file's time in xcsh and omp.
    """
    if session_dir is not None:
        return _list([session_dir], dialect, storage)
    return _list(session_dirs_for(cwd, dialect, agent_dir_of(dialect, agent_dir)), dialect, storage, _CwdCheck(cwd))


def list_all_sessions(*, dialect: Dialect = "xcsh", agent_dir: AnyPath | None = None) -> SessionList:
    """The sessions of every working directory: those in the folders right below `sessions/`, in xcsh at any depth."""
    files, skipped = _all_files(dialect, agent_dir)
    return _rows(files, skipped, dialect, DISK, None)


class _CwdCheck:
    """Tells whether a header's session belongs to the working directory; remembers how paths resolved."""

    def __init__(self, cwd: str) -> None:
        self._cwd, self._real = cwd, real_path(cwd)
        self._known: dict[str, bool] = {cwd: True}

    def __call__(self, header: Entry) -> bool:
        cwd = header.get("cwd")
        if type(cwd) is not str or not cwd:
            return True
        if cwd not in self._known:
            self._known[cwd] = real_path(cwd) == self._real
        return self._known[cwd]


def _list(
    folders: Iterable[AnyPath], dialect: Dialect, storage: SessionStorage, is_here: _CwdCheck | None = None
) -> SessionList:
    files: list[str] = []
    skipped: list[tuple[str, str]] = []
    for folder in folders:
        try:
            files += _files_in(folder, storage)
        except OSError as error:
            skipped.append((os.fspath(folder), _reason(error)))
    return _rows(files, skipped, dialect, storage, is_here)


def _all_files(dialect: Dialect, agent_dir: AnyPath | None) -> tuple[list[str], list[tuple[str, str]]]:
    """Session files below sessions/, as deep as the client looks, and what could not be looked into."""
    root = agent_dir_of(dialect, agent_dir).absolute() / "sessions"
    if not root.is_dir():
        return [], []
    found = find([root])
    # in xcsh those of subagents too, in folders beside their session
    files = [str(file) for file in found.files if dialect == "xcsh" or file.parent.parent == root]
    return files, [(str(path), reason) for path, reason in found.unreadable]


def _rows(
    files: Iterable[str], skipped: list[tuple[str, str]], dialect: Dialect, storage: SessionStorage,
    is_here: _CwdCheck | None,
) -> SessionList:  # fmt: skip
    listed = SessionList([], skipped, [])
    for path in files:
        try:
            _add_row(listed, path, dialect, storage, is_here)
        except OSError as error:
            skipped.append((path, _reason(error)))
    listed.rows.sort(key=lambda row: (row.modified, row.created or 0, row.path), reverse=True)
    return listed


def _add_row(
    listed: SessionList, path: str, dialect: Dialect, storage: SessionStorage, is_here: _CwdCheck | None
) -> None:
    mtime_ms = int(storage.stat(path).mtime_ms)
    with _open(path, storage) as stream:
        values = _session_values(stream)
        header = next(values, None)
        if header is None:
            listed.skipped.append((path, NO_HEADER))
        elif is_here is not None and not is_here(header):
            listed.elsewhere.append((path, header["cwd"]))
        else:
            listed.rows.append(_fold(path, mtime_ms, dialect, header, values))


def _fold(path: str, mtime_ms: int, dialect: Dialect, header: Entry, values: Iterable[Any]) -> FileSessionInfo:
    known = Metadata("", dialect)
    known.note_header(header, 0)
    spoken: list[tuple[str, str]] = []
    null_messages = 0
    for value in values:
        if type(value) is dict:
            known.note_entry(value, parse_time(value.get("timestamp")))
            if value.get("type") == "message":
                null_messages += value.get("message") is None
                spoken += _spoken(value.get("message"))
    is_pi = dialect == "pi"
    return FileSessionInfo(
        path=path,
        id=header["id"],
        cwd=known.cwd or "",
        name=known.title if is_pi else None,
        title=None if is_pi else known.title,
        parent_session_path=header.get("parentSession", UNSET),
        created=known.created_ms,
        modified=_modified(known, mtime_ms) if is_pi else mtime_ms,
        message_count=known.message_count - (null_messages if dialect == "xcsh" else 0),
        first_message=next((text for role, text in spoken if role == "user"), "(no messages)"),
        all_messages_text=" ".join(text for _, text in spoken),
    )


def _modified(known: Metadata, mtime_ms: int) -> int:
    """pi's rule: the newest message, else the header's time, else the file's."""
    if known.active_ms is not None and known.active_ms > 0:
        return known.active_ms
    return mtime_ms if known.created_ms is None else known.created_ms


def _spoken(message: Any) -> Iterator[tuple[str, str]]:
    """Role and text of a user's or assistant's message that has text; its blocks are joined by a space."""
    if type(message) is not dict or message.get("role") not in ("user", "assistant"):
        return
    content = message.get("content")
    blocks = content if type(content) is list else [{"type": "text", "text": content}]
    texts = (block.get("text") for block in blocks if type(block) is dict and block.get("type") == "text")
    if text := " ".join(text for text in texts if type(text) is str):
        yield message["role"], text


# --- the one that is meant


def resolve_session_file(
    ref: str, cwd: str, session_dir: AnyPath | None = None, *, dialect: Dialect = "xcsh",
    agent_dir: AnyPath | None = None,
) -> Path:  # fmt: skip
    """The session file that a person means: a path, or the start of an id, a file name, or what follows its last `_`.

    Letter case counts in pi only. The sessions that `list_sessions` has for `cwd` and `session_dir` decide when any of
    them answers, else all of the agent's (with `session_dir` in pi only, as in the clients). A whole id or name goes
    before those that only start with it. Raises SessionNotFoundError, and AmbiguousSessionError with the candidates
    where the clients take the first that comes.
    """
    named = Path(ref).expanduser()
    looks_like_a_path = "/" in ref or "\\" in ref
    if (looks_like_a_path or ref.endswith(SUFFIX)) and os.path.isfile(named):  # noqa: PTH113 - never raises
        return named
    if ref and not looks_like_a_path:
        for sessions in _scopes(cwd, session_dir, dialect, agent_dir):
            matches = _matches(ref, sessions, str if dialect == "pi" else str.lower)
            if len(matches) == 1:
                return Path(matches[0].path)
            if matches:
                raise AmbiguousSessionError(ref, [f"{m.id}  {m.path}  ({m.cwd or 'no cwd'})" for m in matches])
    raise SessionNotFoundError(ref)


class _Candidate(NamedTuple):
    path: str
    id: str
    cwd: str | None


def _scopes(
    cwd: str, session_dir: AnyPath | None, dialect: Dialect, agent_dir: AnyPath | None
) -> Iterator[Iterator[_Candidate]]:
    """The sessions of the project, then all: those are looked for only when needed."""
    agent = agent_dir_of(dialect, agent_dir)
    folders = session_dirs_for(cwd, dialect, agent) if session_dir is None else [session_dir]
    own: list[str] = []
    for folder in folders:
        with _warned(folder):
            own += _files_in(folder, DISK)
    yield _candidates(own, _CwdCheck(cwd) if session_dir is None else None)
    if session_dir is None or dialect == "pi":
        files, unreadable = _all_files(dialect, agent)
        for path, reason in unreadable:
            _warn(path, reason)
        yield _candidates(files)


def _candidates(files: Iterable[str], is_here: _CwdCheck | None = None) -> Iterator[_Candidate]:
    for path in files:
        header = None
        with _warned(path), _open(path, DISK) as stream:
            header = next(_session_values(stream, PREFIX_BYTES), None)
        if header is not None and (is_here is None or is_here(header)):
            yield _Candidate(path, header["id"], text_of(header.get("cwd")))


def _matches(ref: str, sessions: Iterable[_Candidate], fold: Callable[[str], str]) -> list[_Candidate]:
    """Those that the ref names whole; when there is none, those it is the start of."""
    wanted = fold(ref)
    whole: list[_Candidate] = []
    begun: list[_Candidate] = []
    for session in sessions:
        name = fold(Path(session.path).name)
        stem = _stem(name)
        answers = [fold(session.id), name] + ([stem.rpartition("_")[2]] if "_" in stem else [])
        if wanted in (*answers, stem):
            whole.append(session)
        elif any(answer.startswith(wanted) for answer in answers):
            begun.append(session)
    return whole or begun


# --- files of a storage


def _files_in(folder: AnyPath, storage: SessionStorage) -> list[str]:
    """Paths of what is called *.jsonl in the folder; a missing folder has none."""
    if type(storage) is not FileSessionStorage:
        return storage.list_files(folder)
    try:  # whereas list_files leaves out what is no regular file
        names = os.listdir(folder)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIX)]  # noqa: PTH118 - str stays str


def _open(path: AnyPath, storage: SessionStorage) -> BinaryIO:
    """The file's bytes; from the disk as a stream, for a file may be larger than memory."""
    if type(storage) is FileSessionStorage:
        return open_regular(Path(path))
    return io.BytesIO(_to_bytes(storage.read_text(path)))


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _stem(path: str) -> str:
    return Path(path).name.removesuffix(SUFFIX)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
