"""Session files where the agents keep them: reads one, and finds those of a folder or of an agent.

`recent_files`, `listed_files` and `resume` answer with these. Nothing in the four writes. Where the clients hide a file
that they cannot read, it is named: in `SessionList.skipped`, or by a SessionDBWarning where the answer has no place for
it.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from sessiondb.discovery import SUFFIX, find
from sessiondb.errors import SessionDBWarning
from sessiondb.file_storage import FileSessionStorage
from sessiondb.files import CHUNK, open_regular
from sessiondb.jsonl import Fault, header_with_slot, parse_line, split_lines, strip_bom
from sessiondb.metadata import Dialect
from sessiondb.places import agent_dir_of, real_path
from sessiondb.storage import AnyPath, SessionStorage, encode_text
from sessiondb.tree import Entry

PREFIX_BYTES: Final = 4096
"""How much of a file tells whether it is a session and what its name is, as in xcsh (pi: 512 bytes)."""

DISK: Final = FileSessionStorage()


def load_entries_from_file(path: AnyPath, storage: SessionStorage = DISK) -> list[Any]:
    """The session's header and entries in the order of the file, not migrated; never writes.

    [] when the file is missing or its first value is no header (type `session`, a string id). Lines that are no JSON
    are passed over, what can be recovered from glued and torn ones is taken, `null` is no entry, and a title slot is
    put into the header as omp does. Raises OSError when the file cannot be read.
    """
    try:
        stream = open_session_file(path, storage)
    except FileNotFoundError:
        return []
    with stream:
        return list(session_values(stream))


def session_values(stream: BinaryIO, chunk_size: int = CHUNK) -> Iterator[Any]:
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


def open_session_file(path: AnyPath, storage: SessionStorage) -> BinaryIO:
    """The file's bytes; from the disk as a stream, for a file may be larger than memory."""
    if type(storage) is FileSessionStorage:
        return open_regular(Path(path))
    return io.BytesIO(encode_text(storage.read_text(path)))


# --- which files there are


def files_in(folder: AnyPath, storage: SessionStorage) -> list[str]:
    """Paths of what is called *.jsonl in the folder; a missing folder has none."""
    if type(storage) is not FileSessionStorage:
        return storage.list_files(folder)
    try:  # whereas list_files leaves out what is no regular file
        names = os.listdir(folder)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIX)]  # noqa: PTH118 - str stays str


def all_session_files(dialect: Dialect, agent_dir: AnyPath | None) -> tuple[list[str], list[tuple[str, str]]]:
    """Session files below sessions/, as deep as the client looks, and what could not be looked into."""
    root = agent_dir_of(dialect, agent_dir).absolute() / "sessions"
    if not root.is_dir():
        return [], []
    found = find([root])
    # in xcsh those of subagents too, in folders beside their session
    files = [str(file) for file in found.files if dialect == "xcsh" or file.parent.parent == root]
    return files, [(str(path), reason) for path, reason in found.unreadable]


class CwdCheck:
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


@contextmanager
def warned(path: AnyPath) -> Iterator[None]:
    """Passes over what cannot be read, and says so."""
    try:
        yield
    except OSError as error:
        warn_passed_over(path, reason_of(error))


def warn_passed_over(path: AnyPath, reason: str) -> None:
    """Say what is missing from an answer that has no place to tell it."""
    warnings.warn(f"{os.fspath(path)} cannot be read and was passed over: {reason}", SessionDBWarning, stacklevel=2)


def reason_of(error: OSError) -> str:
    """What the system says of it."""
    return error.strerror or str(error)
