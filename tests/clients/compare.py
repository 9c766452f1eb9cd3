"""Holds what sessiondb made of a job against what pi made of it, and cuts a failing job down to what matters."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.oracle import Job, Reply, Step

RULES: dict[str, list[str]] = {
    "file": ["rechain", "writeOnce", "migrateForks", "showOnce"],
    "database": ["rechain", "writeOnce", "migrateForks", "showOnce", "deriveIds", "continueInCwd"],
    "memory": ["rechain"],
}
"""The deliberate differences that rules.mjs puts into pi for each home, see there."""

SHOWN = 600
"""So many characters of a difference are shown."""


def expected_of(home: str, job: Job, reply: Reply) -> Reply:
    """pi's answer as it must be in this home."""
    return database_names(imported_lines_stay(job, reply)) if home == "database" else reply


def imported_lines_stay(job: Job, reply: Reply) -> Reply:
    """pi migrates a file when it opens it; a database keeps the lines as imported until something is appended."""
    first = reply["steps"][0].get("look") or {}
    given = [base64.b64decode(content).decode() for content in job.get("files", {}).values()]
    if job["steps"][0]["op"] != "openFile" or first.get("file") in given:
        return reply

    def kept(content: Any) -> Any:
        return given[0] if content == first["file"] else content

    def seen(said: dict[str, Any]) -> dict[str, Any]:
        look = said.get("look")
        return {**said, "look": {**look, "file": kept(look["file"])}} if look else said

    files = {name: kept(content) for name, content in reply["files"].items()}
    return {**reply, "steps": [seen(said) for said in reply["steps"]], "files": files}


def database_names(reply: Reply) -> Reply:
    """In a database a session's place, and what parentSession names, is its id: put it for every path."""

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            for path, session_id in reply["ids"].items():
                value = value.replace(path, session_id)
            return value
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if isinstance(value, dict):
            return {name: renamed(item) for name, item in value.items()}
        return value

    id_of = {path.rpartition("/")[2]: session_id for path, session_id in reply["ids"].items()}
    files = {id_of[name]: renamed(content) for name, content in reply["files"].items() if name in id_of}
    return {**reply, "steps": renamed(reply["steps"]), "files": files}


def differences(expected: Reply, found: Reply, steps: list[Step]) -> Iterator[str]:
    """Every place where the two answers are not the same, the first step's first."""
    for step, theirs, ours in zip(steps, expected["steps"], found["steps"], strict=True):
        where = f"step {step['n']} {step['op']}"
        yield from _unlike(where, {**theirs, "look": None}, {**ours, "look": None})
        yield from _unlike(where, theirs.get("look") or {}, ours.get("look") or {})
    yield from _unlike("at the end, file", expected["files"], found["files"])


def _unlike(where: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    for name in {**theirs, **ours}:
        a, b = theirs.get(name), ours.get(name)
        if a != b:
            yield f"{where}: {name}\n  pi   {_around(a, b)}\n  ours {_around(b, a)}"


def _around(shown: Any, other: Any) -> str:
    if not isinstance(shown, str) or not isinstance(other, str):
        return repr(shown)[:SHOWN]
    at = next((i for i, (a, b) in enumerate(zip(shown, other, strict=False)) if a != b), min(len(shown), len(other)))
    start = max(0, at - SHOWN // 3)
    return f"[{start}:] {shown[start : start + SHOWN]!r}"


def shrunk(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Steps, as few as still fail: halves, quarters … single ones are left out as long as that goes."""
    looking = [Step(**{**step, "look": True}) for step in steps]
    steps = looking if fails(looking) else steps
    size = len(steps) // 2
    while size:
        at = 1  # the first step makes the session
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def script(home: str, files: dict[str, str], steps: list[Step]) -> str:
    """Python text that can be pasted into `test_pi_client.REPRODUCED`."""
    plain = {name: base64.b64decode(content) for name, content in files.items()}
    listed = "".join(f"    {step!r},\n" for step in steps)
    return f"(({home!r},), {plain!r}, [\n{listed}])"
