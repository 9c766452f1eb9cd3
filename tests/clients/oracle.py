"""Starts the driver around the real pi (session-oracle.mjs) and hands it jobs; the driver's head says what they are."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NotRequired, TypedDict

import pytest

HERE = Path(__file__).resolve().parent
PI = HERE / "node_modules" / "@mariozechner" / "pi-coding-agent"
VERSION = "0.73.1"
ANSWER_WITHIN_S = 60
AHEAD = 32
"""How many jobs are handed over before the first answer is awaited: pi works on one core while we use the other."""

Arg = dict[str, Any]


class Step(TypedDict):
    """One operation; `n` and `at` decide the ids and the time it gives out: it means the same in any sequence."""

    op: str
    args: list[Arg]
    n: int
    at: int
    look: bool
    clash: NotRequired[int]  # which entry's id the first new one is made to have
    turn: NotRequired[int]  # which writer's, where writers take turns


class Resume(TypedDict):
    """Where another writer stopped: the session files it met, and the one it was at."""

    pool: list[str]
    at: str


class Job(TypedDict):
    """Steps to run in a folder."""

    home: str
    dir: str
    steps: list[Step]
    rules: list[str]
    files: NotRequired[dict[str, str]]  # name: base64
    resume: NotRequired[Resume]
    keep: NotRequired[bool]


class Reply(TypedDict):
    """What came of a job; every value as the text JSON.stringify gives for it."""

    steps: list[dict[str, Any]]
    files: dict[str, str]
    pool: list[str]
    at: str | None
    ids: dict[str, str]
    fired: dict[str, int]


class Oracle:
    """A running pi. A context manager; one thread uses it."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [require_pi(), HERE / "session-oracle.mjs", PI], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._jobs: IO[bytes] = self._child.stdin
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True).start()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.kill()
        self._child.wait()
        self._jobs.close()

    def run(self, job: Job) -> Reply:
        """One job's reply."""
        self._send(job)
        return self._receive()

    def run_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Reply]]:
        """Each job with its reply, in order; pi is kept some jobs ahead of the caller."""
        waiting = iter(jobs)
        sent: list[Job] = []
        while True:
            for job in islice(waiting, AHEAD - len(sent)):
                self._send(job)
                sent.append(job)
            if not sent:
                return
            yield sent.pop(0), self._receive()

    def _send(self, job: Job) -> None:
        self._jobs.write(json.dumps(job).encode() + b"\n")
        self._jobs.flush()

    def _receive(self) -> Reply:
        try:
            line = self._lines.get(timeout=ANSWER_WITHIN_S)
        except queue.Empty:
            raise AssertionError(f"pi did not answer within {ANSWER_WITHIN_S} s") from None
        assert line, f"the driver of pi ended with code {self._child.wait()}"
        reply: dict[str, Any] = json.loads(line)
        assert "failed" not in reply, reply["failed"]
        return reply  # type: ignore[return-value]  # the driver's own form

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(b"")


def require_pi() -> str:
    """The path of node, when it and pi are there; else the test is skipped, or fails in CI."""
    if missing := _missing():
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    node = shutil.which("node")
    assert node is not None
    return node


def _missing() -> str | None:
    node = shutil.which("node")
    if node is None:
        return "node is not installed; sequences are compared with the real pi, which runs on it"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if (found := re.match(r"v(\d+)", version)) is None or int(found[1]) < 20:
        return f"pi needs node 20 or newer, and {node} is {version}"
    if not (PI / "package.json").exists():
        return "the real pi is not installed: run `npm ci` in tests/clients"
    installed = json.loads((PI / "package.json").read_text())["version"]
    return None if installed == VERSION else f"pi {installed} is installed, not {VERSION}: `npm ci` in tests/clients"
