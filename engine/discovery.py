"""Finds session files: under folders, at paths that were named, and where the agents keep them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sessiondb.metadata import AGENT_FOLDERS

SUFFIX: Final = ".jsonl"

LEFTOVER = re.compile(r"\.jsonl\b.*\.(tmp|bak)$")
"""Names of a rewrite that was interrupted: xcsh `.NAME.jsonl.ID.tmp`, omp `NAME.jsonl.ID.bak`."""


@dataclass(slots=True)
class Found:
    """What a search came across. Paths are absolute, links in them not resolved."""

    files: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)


AGENT_PLACES: Final = (
    "$PI_CODING_AGENT_DIR/sessions",
    "~/.pi/agent/sessions",
    "~/.omp/agent/sessions",
    "~/.xcsh/agent/sessions",
    "$PI_CODING_AGENT_SESSION_DIR",
    "~/.openclaw/agents/*/sessions",
)
"""What `agent_roots` looks at, for people."""


def agent_roots() -> list[Path]:
    """Folders and files where the installed agents keep sessions; only those that exist.

    The variable PI_CODING_AGENT_DIR names the agent folder of every client of the family.
    """
    home = Path.home()
    agents = [home / ".pi/agent", home / ".omp/agent", home / ".xcsh/agent"]
    if named := os.environ.get("PI_CODING_AGENT_DIR"):
        agents.insert(0, Path(named).expanduser())
    roots = [agent / "sessions" for agent in agents]
    if named := os.environ.get("PI_CODING_AGENT_SESSION_DIR"):
        roots.append(Path(named).expanduser())
    roots += sorted(home.glob(".openclaw/agents/*/sessions"))
    roots += [file for agent in agents for file in sorted(agent.glob("*" + SUFFIX))]  # pi moves these at its next start
    return list(dict.fromkeys(root for root in roots if os.path.exists(root)))  # noqa: PTH110 - never raises


def find(paths: Iterable[Path]) -> Found:
    """Every session file at or under absolute paths, each once, in a stable order. Folder links too are followed once.

    A path that was named is taken whatever it is called; in a folder only names ending in .jsonl are, the others are
    counted by ending, and leftovers of interrupted rewrites are listed.
    """
    found = Found()
    seen_files: set[Path] = set()
    seen_folders: set[tuple[int, int]] = set()
    for path in paths:
        for file in _walk(path, found, seen_folders) if os.path.isdir(path) else [path]:  # noqa: PTH112 - never raises
            if file not in seen_files:
                seen_files.add(file)
                found.files.append(file)
    return found


def _walk(top: Path, found: Found, seen: set[tuple[int, int]]) -> Iterator[Path]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            found.unreadable.append((folder, error.strerror or str(error)))
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.endswith(SUFFIX) and not _is_folder(entry):
                yield folder / entry.name
            elif _is_folder(entry):
                waiting.append(folder / entry.name)
            elif LEFTOVER.search(entry.name):
                found.leftovers.append(folder / entry.name)
            else:
                found.ignored["in blobs/" if folder.name == "blobs" else _ending(entry.name)] += 1


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _ending(name: str) -> str:
    return Path(name).suffix or "no ending"


def id_from_name(path: Path) -> str:
    """The id of a session without a header: what follows the last `_` of the file's name, else the name."""
    name = os.fsencode(path.name).decode("utf-8", "replace")  # an id is text, whatever bytes the file is called
    for ending in (".tmp", ".bak"):
        name = name.removesuffix(ending)
    stem = name.partition(SUFFIX)[0] or name
    return stem.rpartition("_")[2] or stem


def agent_folder(path: Path) -> str | None:
    """The agent's folder that the path lies in, such as `.pi`; the innermost of several."""
    return next((part for part in reversed(path.parts) if part in AGENT_FOLDERS), None)
