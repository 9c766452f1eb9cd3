"""The session files that were changed last, told by the first bytes of each."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessiondb.discovery import SUFFIX
from sessiondb.jsonl import strip_js
from sessiondb.metadata import Dialect, text_of
from sessiondb.places import agent_dir_of, session_dirs_for
from sessiondb.session_files import DISK, PREFIX_BYTES, CwdCheck, files_in, session_values, warned
from sessiondb.storage import AnyPath, SessionStorage, encode_text
from sessiondb.tree import Entry

LONGEST_SHOWN_NAME: Final = 40
"""UTF-16 units of a name in a list of recent sessions."""


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
    is_here = CwdCheck(cwd)
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
        with warned(folder):
            for path in files_in(folder, storage):
                with warned(path):
                    dated.append((storage.stat(path).mtime_ms, path))
    for mtime_ms, path in sorted(dated, reverse=True):
        prefix = ""
        with warned(path):
            prefix = storage.read_text_prefix(path, PREFIX_BYTES)
        values = session_values(io.BytesIO(encode_text(prefix)))
        if (header := next(values, None)) is not None:
            yield _Begun(path, int(mtime_ms), header, values)


def _shown_name(begun: _Begun) -> str:
    stem = Path(begun.path).name.removesuffix(SUFFIX)
    names = (text_of(begun.header.get("title")), _first_prompt(begun.values), begun.header["id"], stem)
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
