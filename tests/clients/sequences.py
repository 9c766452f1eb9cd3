"""Random sequences of operations on sessions, each from one seed.

Targets are named by number ("the k-th entry, modulo how many there are"), so every part of a sequence is a sequence
too: steps can be taken out of a failing one until nothing more can be spared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.clients.oracle import Arg, Step
from tests.clients.session_files import encoded, session_file
from tests.clients.texts import LEVELS, MODELS, NAMES, ODD, START_MS, TEXTS, Texts


class Sequences:
    """Makes the steps of one sequence."""

    def __init__(self, seed: int, *, first_step: int = 0) -> None:
        self.rng = random.Random(seed)
        self.n = first_step
        self.at = START_MS + first_step
        self.cwd = f"/w/project {first_step}"
        self.texts = Texts(self.rng, talkative=self.rng.choice([0.02, 0.3, 0.6]))
        self.makers: list[Callable[[], tuple[str, list[Arg]]]] = []
        for weight, maker in (
            *((30, self.message), (4, self.thinking_level), (4, self.model), (6, self.compaction)),
            *((4, self.custom_entry), (4, self.custom_message), (12, self.label), (3, self.session_info)),
            *((9, self.branch), (1, self.reset_leaf), (5, self.branch_with_summary)),
            *((4, self.create_branched_session), (2, self.fork_from), (4, self.reopen), (1, self.continue_recent)),
            *((1, self.new_session), (1, self.set_session_file), (6, self.question)),
        ):
            self.makers += [maker] * weight

    def steps(self, count: int) -> list[Step]:
        """The next `count` steps; every few of them the whole state is looked at, and after the last."""
        steps = []
        until_look = self.rng.randrange(2, 9)
        for left in range(count - 1, -1, -1):
            op, args = self.rng.choice(self.makers)()
            until_look -= 1
            steps.append(self.step(op, *args, look=left == 0 or until_look == 0))
            if until_look == 0:
                until_look = self.rng.randrange(2, 9)
        return steps

    def step(self, op: str, *args: Arg, look: bool = False) -> Step:
        self.n += 1
        self.at += self.rng.choice([0, 0, 1, 7, 1000, 61_000, 86_400_000, -1, -5000])
        step = Step(op=op, args=list(args), n=self.n, at=self.at, look=look)
        if op.startswith(("append", "branchWith", "createBranched")) and self.rng.random() < 0.03:
            step["clash"] = self.k()
        return step

    def beginning(self, kind: str) -> tuple[list[Step], dict[str, str]]:
        """The first steps, and the files (encoded as a job carries them) that they need."""
        if kind == "empty":
            return [self.step("openFile", value("empty.jsonl"), look=True)], {"empty.jsonl": ""}
        if kind == "new":
            return [self.step("create", value(self.cwd))], {}
        cwd = "/w/source" if kind.startswith("fork") else self.cwd  # so that nothing else opens a source
        name, content = session_file(self.rng.randrange(2**40), version=int(kind[-1]), cwd=cwd)
        files = encoded({name: content})
        if kind.startswith("fork"):
            return [self.step("create", value(self.cwd)), self.step("forkFile", value(name), value("/w/other"))], files
        return [self.step("openFile", value(name), look=True)], files

    # ---- operations ----

    def message(self) -> tuple[str, list[Arg]]:
        return "appendMessage", [{"json": self.texts.message()}]

    def thinking_level(self) -> tuple[str, list[Arg]]:
        return "appendThinkingLevelChange", [value(self.rng.choice(LEVELS))]

    def model(self) -> tuple[str, list[Arg]]:
        provider, model_id = self.rng.choice(MODELS)
        return "appendModelChange", [value(provider), value(model_id)]

    def compaction(self) -> tuple[str, list[Arg]]:
        kept = self.one_of(self.on_path, self.on_path, self.on_path, self.anywhere, self.missing, self.null, self.unset)
        tokens = {"json": self.rng.choice(["50000", "0", "1.5", "-1", *ODD[:3]])}
        return "appendCompaction", [self.text(), kept, tokens, self.maybe_odd(), self.from_hook()]

    def custom_entry(self) -> tuple[str, list[Arg]]:
        return "appendCustomEntry", [self.text(), self.maybe_odd()]

    def custom_message(self) -> tuple[str, list[Arg]]:
        content = {"json": self.one_of(self.texts.content, self.texts.odd)}
        return "appendCustomMessageEntry", [self.text(), content, value(self.rng.random() < 0.5), self.maybe_odd()]

    def label(self) -> tuple[str, list[Arg]]:
        target = self.one_of(self.anywhere, self.anywhere, self.anywhere, self.on_path, self.on_path, self.missing)
        label = self.rng.choice([value("mark"), value("other mark"), self.text(), value(""), self.unset(), value(None)])
        return "appendLabelChange", [target, label]

    def session_info(self) -> tuple[str, list[Arg]]:
        return "appendSessionInfo", [value(self.rng.choice(NAMES))]

    def branch(self) -> tuple[str, list[Arg]]:
        return "branch", [self.one_of(self.anywhere, self.anywhere, self.anywhere, self.on_path, self.missing)]

    def reset_leaf(self) -> tuple[str, list[Arg]]:
        return "resetLeaf", []

    def branch_with_summary(self) -> tuple[str, list[Arg]]:
        target = self.one_of(self.anywhere, self.anywhere, self.on_path, self.null, self.missing, self.empty)
        return "branchWithSummary", [target, self.text(), self.maybe_odd(), self.from_hook()]

    def create_branched_session(self) -> tuple[str, list[Arg]]:
        leaf = self.one_of(self.unset, self.anywhere, self.anywhere, self.on_path, self.on_path, self.missing)
        return "createBranchedSession", [leaf]

    def fork_from(self) -> tuple[str, list[Arg]]:
        return "forkFrom", [{"session": self.k()}, value(self.rng.choice([self.cwd, "/w/other", ""]))]

    def reopen(self) -> tuple[str, list[Arg]]:
        return "reopen", [{"session": self.k()}]

    def continue_recent(self) -> tuple[str, list[Arg]]:
        return "continueRecent", [value(self.k()), value(self.cwd)]

    def new_session(self) -> tuple[str, list[Arg]]:
        parent = self.rng.choice(["some session", "/a/path_of-another.jsonl"])
        return "newSession", [self.rng.choice([self.unset(), value({"parentSession": parent})])]

    def set_session_file(self) -> tuple[str, list[Arg]]:
        return "setSessionFile", [{"session": self.k()}]

    def question(self) -> tuple[str, list[Arg]]:
        op = self.rng.choice(["getBranch", "getChildren", "getLabel", "getEntry", "contextAt"])
        targets = [self.anywhere, self.on_path, self.missing, self.empty]
        if op in ("getBranch", "contextAt"):
            targets.append(self.unset)
        if op in ("getChildren", "contextAt"):
            targets.append(self.null)
        return op, [self.one_of(*targets)]

    # ---- arguments ----

    def k(self) -> int:
        return self.rng.randrange(1000)

    def anywhere(self) -> Arg:
        return {"entry": self.k()}

    def on_path(self) -> Arg:
        return {"path": self.k()}

    def missing(self) -> Arg:
        return value(self.rng.choice(["deadbeef", "nothing like an id", "__proto__", "漢"]))

    def null(self) -> Arg:
        return value(None)

    def empty(self) -> Arg:
        return value("")

    def unset(self) -> Arg:
        return {"unset": True}

    def text(self) -> Arg:
        return value(self.rng.choice(TEXTS))

    def from_hook(self) -> Arg:
        return self.rng.choice([self.unset(), self.unset(), value(True), value(False)])

    def maybe_odd(self) -> Arg:
        return self.unset() if self.rng.random() < 0.5 else {"json": self.texts.odd()}

    def one_of(self, *makers: Callable[[], Any]) -> Any:
        return self.rng.choice(makers)()


BEGINNINGS = ["new"] * 10 + ["open v1", "open v2", "open v3", "open v3", "fork v1", "fork v2", "fork v3"]
"""How sequences begin, each as often as it stands here."""


def value(of: object) -> Arg:
    """An argument that is this value."""
    return {"json": json.dumps(of)}
