"""Random sequences of operations, against the real pi 0.73.1: same bytes, same tree, same context in every home.

Deliberate differences are the rules in clients/rules.mjs and compare.py; whatever else differs is a failure.
SESSIONDB_SEQUENCES says how many sequences the slow tests run in each home.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from sessiondb import Store
from tests.clients.compare import RULES, differences, expected_of, script, shrunk
from tests.clients.homes import HOMES, Home, run_ours
from tests.clients.oracle import Arg, Job, Oracle, Reply, Resume, Step
from tests.clients.sequences import BEGINNINGS, Sequences, value
from tests.clients.session_files import encoded, session_file
from tests.clients.texts import START_MS
from tests.support import dump, entry, header

SEQUENCES = int(os.environ.get("SESSIONDB_SEQUENCES", "300"))
A_STORE = 50
"""So many sequences share a database, before it is checked and another begun."""

BEGINS = {"file": [*BEGINNINGS, "empty"], "database": BEGINNINGS, "memory": ["new"]}
counts = pytest.mark.parametrize("sequences", [10, pytest.param(SEQUENCES, marks=pytest.mark.slow)])


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@contextmanager
def new_store() -> Iterator[Store]:
    """A store in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "sessions.db") as store:
        yield store


# ---- one writer ----

TryAgain = Callable[[list[Step]], list[str]]


def job_of(home: Home, seed: int, folder: Path) -> Job:
    """The sequence of a seed; `folder` is where pi and then ours work."""
    made = Sequences(seed, first_step=1000 * seed)
    steps, files = made.beginning(made.rng.choice(BEGINS[home]))
    steps += made.steps(made.rng.randrange(5, 60))
    kind = "memory" if home == "memory" else "file"
    return Job(home=kind, dir=str(folder / str(seed)), steps=steps, rules=RULES[home], files=files)


def unlike_pi(home: Home, job: Job, theirs: Reply, store: Store) -> list[str]:
    """What ours does otherwise than pi, in the folder that pi left empty."""
    found = run_ours(home, job, store if home == "database" else None)
    shutil.rmtree(job["dir"])
    return list(differences(expected_of(home, job, theirs), found, job["steps"]))


def unlike_pi_alone(oracle: Oracle, home: Home, job: Job) -> list[str]:
    """The same in a store of its own, whose check must find nothing either."""
    with new_store() as store:
        return unlike_pi(home, job, oracle.run(job), store) + [f"check: {problem}" for problem in store.check()]


def fail(seed: str, home: str, files: dict[str, str], steps: list[Step], try_again: TryAgain) -> None:
    """Fail with what differs, and the fewest steps that still do."""
    fewest = shrunk(steps, lambda some: bool(try_again(some)))
    what = "\n".join(try_again(fewest)[:3])
    pytest.fail(f"seed {seed}: pi does otherwise\n{what}\n{script(home, files, fewest)}", pytrace=False)


def fail_for(home: Home, job: Job) -> None:
    with Oracle() as another:

        def try_again(steps: list[Step]) -> list[str]:
            return unlike_pi_alone(another, home, {**job, "steps": steps})

        if try_again(job["steps"]):
            fail(Path(job["dir"]).name, home, job.get("files", {}), job["steps"], try_again)


@counts
@pytest.mark.parametrize("home", HOMES)
def test_random_sequences_give_what_pi_gives(home: Home, sequences: int, oracle: Oracle, tmp_path: Path) -> None:
    answers = oracle.run_all(job_of(home, seed, tmp_path) for seed in range(sequences))
    fired: Counter[str] = Counter()
    for _ in range(0, sequences, A_STORE):
        with new_store() as store:
            jobs = []
            for job, theirs in islice(answers, A_STORE):
                jobs.append(job)
                fired.update(theirs["fired"])
                if what := unlike_pi(home, job, theirs, store):
                    fail_for(home, job)
                    pytest.fail(f"only beside other sessions, seed {Path(job['dir']).name}: {what[0]}")
            if problems := store.check():
                for job in jobs:
                    fail_for(home, job)
                pytest.fail(f"check, only with all sessions up to {Path(jobs[-1]['dir']).name}: {problems}")
    assert next(answers, None) is None
    if sequences >= 300:
        assert set(fired) == set(RULES[home]), "a rule that no sequence meets proves nothing"


# ---- what is otherwise on purpose ----


def steps_of(*operations: tuple[str, *tuple[Arg, ...]]) -> list[Step]:
    return [Step(op=op, args=args, n=n, at=START_MS + n, look=True) for n, (op, *args) in enumerate(operations)]


CWD = value("/w/project")
V3_NAME = "2026-01-01T00-00-00-000Z_s-3.jsonl"
OLD_NAME, OLD_FILE = session_file(4, version=1, cwd="/w")
USER, ASSISTANT = {"json": '{"role":"user","content":"hi"}'}, {"json": '{"role":"assistant","content":[]}'}
CREATE: tuple[str, Arg] = ("create", CWD)
ON_PURPOSE: dict[str, tuple[Home, dict[str, bytes], list[Step]]] = {
    "rechain": (
        "file",
        {},
        steps_of(
            *(CREATE, ("appendMessage", ASSISTANT), ("appendLabelChange", {"path": 0}, value("mark"))),
            *(("appendMessage", USER), ("createBranchedSession", {"unset": True})),
        ),
    ),
    "writeOnce": (
        "file",
        {"empty.jsonl": b""},
        steps_of(("openFile", value("empty.jsonl")), ("appendMessage", USER), ("appendMessage", ASSISTANT)),
    ),
    "showOnce": (
        "file",
        {V3_NAME: header("s-3") + entry(1) + entry(2, 1) + entry(2, 1)},
        steps_of(("openFile", value(V3_NAME))),
    ),
    "continueInCwd": (
        "database",
        {},
        steps_of(
            *(CREATE, ("appendMessage", ASSISTANT), ("create", value("/w/other")), ("appendMessage", ASSISTANT)),
            ("continueRecent", value(1), CWD),
        ),
    ),
    "deriveIds": ("database", {OLD_NAME: OLD_FILE}, steps_of(("openFile", value(OLD_NAME)))),
    "migrateForks": (
        "file",
        {OLD_NAME: OLD_FILE},
        steps_of(CREATE, ("forkFile", value(OLD_NAME), CWD)),
    ),
}


def test_each_rule_is_shown_alone() -> None:
    assert set(ON_PURPOSE) == {rule for rules in RULES.values() for rule in rules}


@pytest.mark.parametrize("rule", ON_PURPOSE)
def test_pi_does_otherwise_where_we_do_so_on_purpose(rule: str, oracle: Oracle, tmp_path: Path) -> None:
    home, files, steps = ON_PURPOSE[rule]
    job = Job(home="file", dir=str(tmp_path / "s"), steps=steps, files=encoded(files), rules=RULES[home])
    assert oracle.run(job)["fired"][rule] > 0
    assert unlike_pi_alone(oracle, home, job) == []
    assert unlike_pi_alone(oracle, home, {**job, "rules": [name for name in RULES[home] if name != rule]}) != []


# ---- what once was otherwise ----

V1_NAME = "2026-01-01T00-00-00-000Z_s-1.jsonl"
FORWARD = (
    b'{"type":"session","id":"s-1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'
    b'{"type":"compaction","timestamp":"2026-01-01T00:00:01.000Z","summary":"S","firstKeptEntryIndex":2,"tokensBefore":9}\n'
    b'{"type":"message","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"hi"}}\n'
)
TIMES = header("s-3") + b"".join(
    dump({"type": "branch_summary", "id": str(n), "parentId": "0" if n else None, "timestamp": time, "summary": "S"})
    for n, time in enumerate(["2026-01-01T00:00:01.000Z", 0, None, "", "2026"])
)
ODD: list[object] = [[], {}, "0", 0, False]
TRUE_IN_JAVASCRIPT = header("s-3") + b"".join(
    dump({"type": kind, "id": str(n), "parentId": str(n - 1), "targetId": str(n), name: ODD[n % len(ODD)]})
    for n, (kind, name) in enumerate([("label", "label")] * len(ODD) + [("branch_summary", "summary")] * len(ODD))
)
REPRODUCED: dict[str, tuple[tuple[Home, ...], dict[str, bytes], list[Step]]] = {
    "the fork of a session without an assistant waits for one": (
        ("file", "database"),
        {V3_NAME: header("s-3") + entry(1)},
        steps_of(CREATE, ("forkFile", value(V3_NAME), CWD), ("appendMessage", USER), ("appendMessage", ASSISTANT)),
    ),
    "a compaction of version 1 that keeps from a later entry has no such id yet": (
        ("file", "database"),
        {V1_NAME: FORWARD},
        steps_of(("openFile", value(V1_NAME)), ("forkFile", value(V1_NAME), CWD)),
    ),
    "an empty working directory is one": (
        ("file", "database"),
        {},
        steps_of(
            *(CREATE, ("appendMessage", ASSISTANT), ("forkFrom", {"session": 0}, value(""))),
            *(("setSessionFile", {"session": 0}), ("reopen", {"session": 1})),
        ),
    ),
    "a timestamp that is no text is what a JavaScript Date makes of it": (
        ("file", "database"),
        {V3_NAME: TIMES},
        steps_of(("openFile", value(V3_NAME)), *(("contextAt", {"entry": n}) for n in range(5))),
    ),
    "an empty list as a label or a summary is one": (
        ("file", "database"),
        {V3_NAME: TRUE_IN_JAVASCRIPT},
        steps_of(("openFile", value(V3_NAME))),
    ),
}
"""Sequences that a failure printed, cut down; those of the random tests go here when they are understood."""


@pytest.mark.parametrize(("home", "name"), [(home, name) for name, (homes, *_) in REPRODUCED.items() for home in homes])
def test_a_sequence_that_once_differed_gives_what_pi_gives(
    home: Home, name: str, oracle: Oracle, tmp_path: Path
) -> None:
    _, files, steps = REPRODUCED[name]
    kind = "memory" if home == "memory" else "file"
    job = Job(home=kind, dir=str(tmp_path / "s"), steps=steps, files=encoded(files), rules=RULES[home])
    assert unlike_pi_alone(oracle, home, job) == []


# ---- writers that take turns ----

Writer = Callable[[Job], Reply]


def turns_of(seed: int) -> tuple[list[Step], dict[str, str]]:
    """Steps in turns of a few, and the files they begin with."""
    made = Sequences(seed, first_step=1000 * seed)
    steps, files = made.beginning(made.rng.choice(["new", "new", "open v1", "open v2", "open v3", "empty"]))
    for step in steps:
        step["turn"] = 0
    for turn in range(made.rng.randrange(3, 8)):
        for step in made.steps(made.rng.randrange(2, 10)):
            steps.append({**step, "turn": turn})
    return steps, files


def take_turns(writers: list[Writer], folder: Path, steps: list[Step], files: dict[str, str]) -> list[Reply]:
    """What each turn's writer answers; it opens the session that the one before was at, and goes on."""
    shutil.rmtree(folder, ignore_errors=True)
    replies: list[Reply] = []
    for turn in sorted({step["turn"] for step in steps}):
        some = [step for step in steps if step["turn"] == turn]
        job = Job(home="file", dir=str(folder), steps=some, rules=RULES["file"], keep=True)
        if replies:
            at = replies[-1]["at"]
            assert at is not None
            job["resume"] = Resume(pool=replies[-1]["pool"], at=at)
        else:
            job["files"] = files
        replies.append(writers[turn % len(writers)](job))
    return replies


def unlike_one_writer(
    oracle: Oracle, folder: Path, steps: list[Step], files: dict[str, str], *, first: int
) -> list[str]:
    def ours(job: Job) -> Reply:
        return run_ours("file", job)

    alone = take_turns([oracle.run], folder, steps, files)
    together = take_turns([oracle.run, ours] if first else [ours, oracle.run], folder, steps, files)
    turns = sorted({step["turn"] for step in steps})
    return [
        f"turn {turn}, {what}"
        for turn, theirs, found in zip(turns, alone, together, strict=True)
        for what in differences(theirs, found, [step for step in steps if step["turn"] == turn])
    ]


@counts
def test_pi_and_sessiondb_go_on_with_what_the_other_wrote(sequences: int, oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(sequences):
        steps, files = turns_of(seed)

        def try_again(some: list[Step], seed: int = seed, files: dict[str, str] = files) -> list[str]:
            return unlike_one_writer(oracle, tmp_path / str(seed), some, files, first=seed % 2)

        if try_again(steps):
            fail(str(seed), "in turns", files, steps, try_again)
        shutil.rmtree(tmp_path / str(seed))
