"""Folder and file names as the agents choose them, for exports that an agent can find."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

UNSAFE_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
LONGEST_NAME: Final = 200
"""Bytes of a name we make; file systems take 255, and endings are still to come."""


def folder_for_cwd(cwd: str | None, dialect: str) -> str:
    """The name of the folder, under an agent's sessions/, for sessions of this working directory.

    pi and xcsh: `--` + path without its first separator, every `/`, `\\` and `:` as `-`, + `--` (xcsh's own document;
    its code shortens as omp's does). omp: below home `-…`, below the temporary folder `-tmp-…`, else the same on the
    real path. The encoding is not reversible and collides; only the header tells the cwd.
    """
    if not cwd:
        return "--no-cwd--"
    return _bounded(_omp_folder(cwd) if dialect == "omp" else _dashed(cwd))


def file_name(session_id: str, timestamp: str | None) -> str:
    """The session's file name: header time with `:` and `.` as `-`, `_`, id; without a time the id alone.

    Characters of an id outside A-Z a-z 0-9 . _ - become `_`.
    """
    safe_id = UNSAFE_IN_ID.sub("_", session_id) or "_"
    stamp = UNSAFE_IN_ID.sub("_", timestamp.replace(":", "-").replace(".", "-")) + "_" if timestamp else ""
    name = _bounded(stamp + safe_id)
    # A leading dot would hide the file from a shell's *, a leading dash would be an option to the next command.
    return ("_" + name[1:] if name[0] in ".-" else name) + ".jsonl"


def _dashed(path: str) -> str:
    inner = path[1:] if path[:1] in ("/", "\\") else path
    return "--" + re.sub(r"[/\\:\0]", "-", inner) + "--"


def _omp_folder(cwd: str) -> str:
    real = os.path.realpath(cwd.replace("\0", "-"))
    for base, prefix in ((str(Path.home()), "-"), (tempfile.gettempdir(), "-tmp")):
        relative = os.path.relpath(real, os.path.realpath(base))
        if relative == ".":
            return prefix
        if not relative.startswith(".."):
            return (prefix if prefix == "-" else prefix + "-") + re.sub(r"[/\\:]", "-", relative)
    return _dashed(real)


def _bounded(name: str) -> str:
    """The name, or its start and a hash when a file system would refuse its length."""
    raw = name.encode("utf-8", "replace")
    if len(raw) <= LONGEST_NAME:
        return raw.decode()
    return raw[: LONGEST_NAME - 17].decode("utf-8", "ignore") + "-" + hashlib.sha256(raw).hexdigest()[:16]
