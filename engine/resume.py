"""Which session file a person means: the one to resume, open or fork."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sessiondb.discovery import SUFFIX
from sessiondb.errors import AmbiguousSessionError, SessionNotFoundError
from sessiondb.metadata import Dialect, text_of
from sessiondb.places import agent_dir_of, session_dirs_for
from sessiondb.session_files import (
    DISK,
    PREFIX_BYTES,
    CwdCheck,
    all_session_files,
    files_in,
    open_session_file,
    session_values,
    warn_passed_over,
    warned,
)
from sessiondb.storage import AnyPath


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
        with warned(folder):
            own += files_in(folder, DISK)
    yield _candidates(own, CwdCheck(cwd) if session_dir is None else None)
    if session_dir is None or dialect == "pi":
        files, unreadable = all_session_files(dialect, agent)
        for path, reason in unreadable:
            warn_passed_over(path, reason)
        yield _candidates(files)


def _candidates(files: Iterable[str], is_here: CwdCheck | None = None) -> Iterator[_Candidate]:
    for path in files:
        header = None
        with warned(path), open_session_file(path, DISK) as stream:
            header = next(session_values(stream, PREFIX_BYTES), None)
        if header is not None and (is_here is None or is_here(header)):
            yield _Candidate(path, header["id"], text_of(header.get("cwd")))


def _matches(ref: str, sessions: Iterable[_Candidate], fold: Callable[[str], str]) -> list[_Candidate]:
    """Those that the ref names whole; when there is none, those it is the start of."""
    wanted = fold(ref)
    whole: list[_Candidate] = []
    begun: list[_Candidate] = []
    for session in sessions:
        name = fold(Path(session.path).name)
        stem = name.removesuffix(SUFFIX)
        answers = [fold(session.id), name] + ([stem.rpartition("_")[2]] if "_" in stem else [])
        if wanted in (*answers, stem):
            whole.append(session)
        elif any(answer.startswith(wanted) for answer in answers):
            begun.append(session)
    return whole or begun
