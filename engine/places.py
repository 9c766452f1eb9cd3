"""Where the agents keep sessions: their folders, the folder of a working directory, the names of files.

Nothing here makes a folder, whereas the clients make one by merely asking for it; ours appears with its first file.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from sessiondb.files import absolute

UNSAFE_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
LONGEST_NAME: Final = 200
"""Bytes of a file name we make; file systems take 255, and endings are still to come."""

LONGEST_FOLDER_NAME: Final = 255
"""Up to here an agent's own folder exists, and ours must be the same."""


def agent_dir_of(dialect: str, given: str | os.PathLike[str] | None = None) -> Path:
    """The agent's folder: the one given, else $PI_CODING_AGENT_DIR (for every client of the family), else in home."""
    named = given or os.environ.get("PI_CODING_AGENT_DIR")
    return absolute(named) if named else Path.home() / f".{dialect}" / "agent"


def session_dir_for(cwd: str, dialect: str, agent_dir: Path) -> Path:
    """The folder for a new session of this working directory, under the agent's; it need not exist.

    pi, omp: the client's. xcsh: `--<cwd>--` of the absolute path, as its document says, unless the folder that its code
    chooses is there already.
    """
    root = agent_dir / "sessions"
    if dialect == "xcsh" and cwd:
        clients = root / _bounded(client_folder(cwd, dialect), LONGEST_FOLDER_NAME)
        return clients if clients.is_dir() else root / folder_for_cwd(_resolved(cwd), dialect)
    return root / folder_for_cwd(cwd, dialect)


def session_dirs_for(cwd: str, dialect: str, agent_dir: Path) -> list[Path]:
    """Every folder, there or not, in which an agent of the dialect may have put sessions of this working directory.

    First the one for a new session. Names collide: each can hold sessions of other working directories too.
    """
    names = (client_folder(cwd, dialect), _dashed(cwd), _dashed(_resolved(cwd)))
    others = (agent_dir / "sessions" / _bounded(name, LONGEST_FOLDER_NAME) for name in names)
    return list(dict.fromkeys([session_dir_for(cwd, dialect, agent_dir), *others]))


def folder_for_cwd(cwd: str | None, dialect: str) -> str:
    """The name of the folder, under an agent's sessions/, for sessions of this working directory.

    As `client_folder`, but `--<cwd>--` for xcsh (see `session_dir_for`), and never longer than file systems take.
    """
    if not cwd:
        return "--no-cwd--"
    return _bounded(_dashed(cwd) if dialect == "xcsh" else client_folder(cwd, dialect), LONGEST_FOLDER_NAME)


def client_folder(cwd: str, dialect: str) -> str:
    """The folder's name as the dialect's client makes it, whatever its length.

    pi: `--` + path as given without its first separator, every `/`, `\\` and `:` as `-`, + `--`. xcsh and omp: on the
    real path, below home `-…`, below the temporary folder `-tmp-…`, else as pi. The encoding is not reversible and
    collides (`/a-b/c` and `/a/b-c`, `~/tmp` and `/tmp`); only the header tells the cwd.
    """
    if dialect == "pi":
        return _dashed(cwd)
    real = real_path(cwd)
    for base, prefix in ((str(Path.home()), "-"), (tempfile.gettempdir(), "-tmp")):
        relative = os.path.relpath(real, real_path(base))
        if relative == ".":
            return prefix
        if not relative.startswith(".."):  # as the clients: a child called `..x` counts as outside
            return (prefix if prefix == "-" else prefix + "-") + re.sub(r"[/\\:]", "-", relative)
    return _dashed(real)


def real_path(path: str) -> str:
    """The absolute path with its links resolved; where it does not exist, with none of them resolved, as in Node."""
    path = path.replace("\0", "-")
    try:
        return os.path.realpath(path, strict=True)
    except (OSError, ValueError):  # a name that no file can have is a ValueError
        return _resolved(path)


def file_name(session_id: str, timestamp: str | None) -> str:
    """The session's file name: header time with `:` and `.` as `-`, `_`, id; without a time the id alone.

    Characters of an id outside A-Z a-z 0-9 . _ - become `_`.
    """
    safe_id = UNSAFE_IN_ID.sub("_", session_id) or "_"
    stamp = UNSAFE_IN_ID.sub("_", timestamp.replace(":", "-").replace(".", "-")) + "_" if timestamp else ""
    name = _bounded(stamp + safe_id, LONGEST_NAME)
    # A leading dot would hide the file from a shell's *, a leading dash would be an option to the next command.
    return ("_" + name[1:] if name[0] in ".-" else name) + ".jsonl"


def _dashed(path: str) -> str:
    inner = path[1:] if path[:1] in ("/", "\\") else path
    return "--" + re.sub(r"[/\\:\0]", "-", inner) + "--"


def _resolved(path: str) -> str:
    absolute = os.path.abspath(path)  # noqa: PTH100 - Path.resolve() would follow links
    return "/" + absolute.lstrip("/") if absolute.startswith("//") else absolute  # POSIX lets two slashes stand


def _bounded(name: str, longest: int) -> str:
    """The name, or its start and a hash when a file system would refuse its length."""
    raw = name.encode("utf-8", "replace")
    if len(raw) <= longest:
        return raw.decode()
    return raw[: longest - 17].decode("utf-8", "ignore") + "-" + hashlib.sha256(raw).hexdigest()[:16]
