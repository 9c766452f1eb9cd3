"""Lists of session files, with the rows that the dialect's client shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sessiondb.jsonl import UNSET, parse_time
from sessiondb.metadata import Dialect, Metadata
from sessiondb.places import agent_dir_of, session_dirs_for
from sessiondb.session_files import (
    DISK,
    CwdCheck,
    all_session_files,
    files_in,
    open_session_file,
    reason_of,
    session_values,
)
from sessiondb.storage import AnyPath, SessionStorage
from sessiondb.tree import Entry

NO_HEADER: Final = "no session header first"


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
    return _list(session_dirs_for(cwd, dialect, agent_dir_of(dialect, agent_dir)), dialect, storage, CwdCheck(cwd))


def list_all_sessions(*, dialect: Dialect = "xcsh", agent_dir: AnyPath | None = None) -> SessionList:
    """The sessions of every working directory: those in the folders right below `sessions/`, in xcsh at any depth."""
    files, skipped = all_session_files(dialect, agent_dir)
    return _rows(files, skipped, dialect, DISK, None)


def _list(
    folders: Iterable[AnyPath], dialect: Dialect, storage: SessionStorage, is_here: CwdCheck | None = None
) -> SessionList:
    files: list[str] = []
    skipped: list[tuple[str, str]] = []
    for folder in folders:
        try:
            files += files_in(folder, storage)
        except OSError as error:
            skipped.append((os.fspath(folder), reason_of(error)))
    return _rows(files, skipped, dialect, storage, is_here)


def _rows(
    files: Iterable[str], skipped: list[tuple[str, str]], dialect: Dialect, storage: SessionStorage,
    is_here: CwdCheck | None,
) -> SessionList:  # fmt: skip
    listed = SessionList([], skipped, [])
    for path in files:
        try:
            _add_row(listed, path, dialect, storage, is_here)
        except OSError as error:
            skipped.append((path, reason_of(error)))
    listed.rows.sort(key=lambda row: (row.modified, row.created or 0, row.path), reverse=True)
    return listed


def _add_row(
    listed: SessionList, path: str, dialect: Dialect, storage: SessionStorage, is_here: CwdCheck | None
) -> None:
    mtime_ms = int(storage.stat(path).mtime_ms)
    with open_session_file(path, storage) as stream:
        values = session_values(stream)
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
