"""Runs the oracle's jobs on sessiondb, in each home, with the same clock and ids, and answers in the same form."""

from __future__ import annotations

import base64
import io
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from sessiondb import SessionDBError, SessionManager, Store, build_session_context
from sessiondb.errors import SessionNotFoundError
from sessiondb.jsonl import UNSET, encode_entry, parse_line
from tests.clients.oracle import Arg, Job, Reply, Step

Home = Literal["file", "database", "memory"]
HOMES: tuple[Home, ...] = ("file", "database", "memory")
IDS_A_STEP = 4096
SKIPPED = object()


class Ours:
    """One job's run. `store` is where the database home keeps its sessions."""

    def __init__(self, home: Home, job: Job, store: Store | None = None) -> None:
        self.home, self.folder = home, Path(job["dir"])
        self.store = store
        self.manager: Any = None  # as the oracle does, calls are looked up by name
        self.pool: list[str] = []
        self.brought: list[str] = []  # ids of imported sessions
        self.ids: dict[str, str] = {}
        self.now = self.n = self.entries = self.sessions = 0
        self.clashing: list[str] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in job.get("files", {}).items():
            self.bring(name, base64.b64decode(content))
        if "resume" in job:
            self.pool = list(job["resume"]["pool"])
            self.now, self.n = job["steps"][0]["at"], job["steps"][0]["n"]
            self.entries = self.sessions = IDS_A_STEP // 2
            self.use(self.open(job["resume"]["at"]))

    def bring(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.write_bytes(content)
        if self.store is not None:
            self.store.import_paths([path])
            self.brought.append(self.store.session(path).id)

    # ---- the clock and the ids are the job's ----

    def clock(self) -> int:
        return self.now

    def new_id(self, kind: str) -> str:
        if kind == "session":
            self.sessions += 1
            at = f"{self.now:012x}"
            return f"{at[:8]}-{at[8:]}-7000-8000-{self.n * IDS_A_STEP + self.sessions:012x}"
        if self.clashing:
            return self.clashing.pop()
        self.entries += 1
        return f"{(self.n * IDS_A_STEP + self.entries) * 0x9E3779B1 & 0xFFFFFFFF:08x}"

    # ---- one step ----

    def step(self, step: Step) -> dict[str, Any]:
        try:
            return self.said(step)
        except Exception as error:  # noqa: BLE001  # no answer at all is a difference like others, to be cut down
            return {"crashed": "".join(traceback.format_exception(error)[-3:])}

    def said(self, step: Step) -> dict[str, Any]:
        self.now, self.n, self.entries, self.sessions, self.clashing = step["at"], step["n"], 0, 0, []
        args = [self.value(arg) for arg in step["args"]]
        if "clash" in step and self.manager is not None and (entries := self.manager.get_entries()):
            self.clashing = [entries[step["clash"] % len(entries)]["id"]]
        said = self.attempt(OPERATIONS[step["op"]], args)
        said["leaf"] = None if self.manager is None else self.manager.get_leaf_id()
        if step["look"] and self.manager is not None:
            said["look"] = self.look()
        return said

    def attempt(self, operation: Callable[..., Any], args: list[Any]) -> dict[str, Any]:
        try:
            result = operation(self, *args)
        except SessionDBError as error:
            return {"error": str(error)}
        return {"skipped": True} if result is SKIPPED else {"result": text(result)}

    def value(self, arg: Arg) -> Any:
        if "json" in arg:
            return parse_line(arg["json"].encode())
        if "session" in arg:
            return self.pool[arg["session"] % len(self.pool)] if self.pool else UNSET
        if "entry" in arg:
            return pick(self.manager.get_entries(), arg["entry"])
        if "path" in arg:
            return pick(self.manager.get_branch(), arg["path"])
        return UNSET

    # ---- operations that are more than a call of the manager ----

    @property
    def place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"dialect": "pi", "clock": self.clock, "ids": self.new_id}
        if self.home == "file":
            place["session_dir"] = str(self.folder)
        elif self.home == "database":
            place["store"] = self.store
        return place

    def use(self, manager: SessionManager) -> str | None:
        if self.manager is not None:
            self.manager.close()
        self.manager = manager
        return self.met(manager.get_session_file())

    def met(self, location: str | None) -> str | None:
        if location is not None:
            if location not in self.pool:
                self.pool.append(location)
            self.ids[location] = self.manager.get_session_id()
        return location

    def create(self, cwd: str) -> str | None:
        make = SessionManager.in_memory if self.home == "memory" else SessionManager.create
        return self.use(make(cwd, **self.place))

    def open(self, location: str) -> SessionManager:
        return SessionManager.open(location, **self.place)

    def open_file(self, name: str) -> str | None:
        return self.use(self.open(self.location_of(name)))

    def location_of(self, name: str) -> str:
        path = str(self.folder / name)
        return path if self.store is None else self.store.session(path).id

    def is_there(self, location: str) -> bool:
        if self.store is None:
            return self.home == "file" and os.path.exists(location)
        try:
            self.store.session(location)
        except SessionNotFoundError:
            return False
        return True

    def reopen(self, location: str) -> Any:
        return self.use(self.open(location)) if self.is_there(location) else SKIPPED

    def set_session_file(self, location: str) -> Any:
        if not self.is_there(location):
            return SKIPPED
        self.manager.set_session_file(location)
        return self.met(location)

    def fork_from(self, location: str, cwd: str) -> Any:
        return SKIPPED if self.home == "memory" else self.use(SessionManager.fork_from(location, cwd, **self.place))

    def fork_file(self, name: str, cwd: str) -> Any:
        return self.fork_from(self.location_of(name), cwd)

    def new_session(self, options: Any) -> Any:
        parent = {} if options is UNSET else {"parent_session": options["parentSession"]}
        self.manager.new_session(**parent)
        return self.met(self.manager.get_session_file())

    def create_branched_session(self, leaf: Any) -> Any:
        return self.met(self.manager.create_branched_session(leaf))

    def continue_recent(self, newest: int, cwd: str) -> Any:
        if self.store is not None:  # see the rule continueInCwd
            one = len(self.store.sessions(cwd=cwd)) < 2
            return self.use(SessionManager.continue_recent(cwd, **self.place)) if one else SKIPPED
        present = [location for location in self.pool if self.is_there(location)]
        if not present:
            return SKIPPED
        for path in self.folder.iterdir():
            os.utime(path, (0, 0))
        for i, location in enumerate(present):
            os.utime(location, (0, 1 + (i - 1 - newest) % len(present)))
        return self.use(SessionManager.continue_recent(cwd, **self.place))

    def context_at(self, leaf: Any) -> Any:
        return build_session_context(self.manager.get_entries(), leaf, dialect="pi")

    # ---- what there is to see ----

    def look(self) -> dict[str, Any]:
        m = self.manager
        entries = m.get_entries()
        labels = {entry["id"]: m.get_label(entry["id"]) for entry in entries}
        values = {
            "id": m.get_session_id(),
            "path": m.get_session_file(),
            "cwd": m.get_cwd(),
            "persisted": m.is_persisted(),
            "header": m.get_header(),
            "entries": entries,
            "tree": m.get_tree(),
            "labels": {entry_id: label for entry_id, label in labels.items() if label is not None},
            "leafEntry": m.get_leaf_entry(),
            "branch": m.get_branch(),
            "context": m.build_session_context(),
            "name": m.get_session_name(),
            "roots": m.get_children(None),
        }
        m.flush()
        return {name: text(value) for name, value in values.items()} | {"file": self.content(m.get_session_file())}

    def content(self, location: str | None) -> str | None:
        """The bytes of a session, when it is anywhere."""
        if location is None or not self.is_there(location):
            return None
        if self.store is None:
            return Path(location).read_bytes().decode()
        out = io.BytesIO()
        self.store.export(location, out, form="as-is")
        return out.getvalue().decode()

    def finish(self) -> dict[str, str]:
        """The bytes of every session, by file name, or by id in a database."""
        if self.manager is not None:
            self.manager.close()
        if self.store is None:
            return {path.name: path.read_bytes().decode() for path in sorted(self.folder.iterdir())}
        found = {location: self.content(location) for location in {*self.pool, *self.brought}}
        return {location: content for location, content in found.items() if content is not None}


def run_ours(home: Home, job: Job, store: Store | None = None) -> Reply:
    """What the oracle says of pi, of ours."""
    run = Ours(home, job, store)
    steps = [run.step(step) for step in job["steps"]]
    at = None if run.manager is None else run.manager.get_session_file()
    return Reply(steps=steps, files=run.finish(), pool=run.pool, at=at, ids=run.ids, fired={})


def text(value: Any) -> str:
    return encode_entry(None if value is UNSET else value).decode()


def pick(entries: list[Any], k: int) -> Any:
    return entries[k % len(entries)]["id"] if entries else "00000000"


def _compaction(run: Ours, summary: Any, kept: Any, tokens: Any, details: Any, from_hook: Any) -> Any:
    return run.manager.append_compaction(summary, kept, tokens, details, from_extension=from_hook)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "create": Ours.create,
    "openFile": Ours.open_file,
    "reopen": Ours.reopen,
    "setSessionFile": Ours.set_session_file,
    "forkFrom": Ours.fork_from,
    "forkFile": Ours.fork_file,
    "newSession": Ours.new_session,
    "createBranchedSession": Ours.create_branched_session,
    "continueRecent": Ours.continue_recent,
    "contextAt": Ours.context_at,
    "appendMessage": lambda run, message: run.manager.append_message(message),
    "appendThinkingLevelChange": lambda run, level: run.manager.append_thinking_level_change(level),
    "appendModelChange": lambda run, provider, model: run.manager.append_model_change(f"{provider}/{model}"),
    "appendCompaction": _compaction,
    "appendCustomEntry": lambda run, kind, data: run.manager.append_custom_entry(kind, data),
    "appendCustomMessageEntry": lambda run, *args: run.manager.append_custom_message_entry(*args),
    "appendLabelChange": lambda run, target, label: run.manager.append_label_change(target, label),
    "appendSessionInfo": lambda run, name: run.manager.append_session_info(name),
    "branch": lambda run, target: run.manager.branch(target),
    "resetLeaf": lambda run: run.manager.reset_leaf(),
    "branchWithSummary": lambda run, *args: run.manager.branch_with_summary(*args),
    "getBranch": lambda run, *args: run.manager.get_branch(*args),
    "getChildren": lambda run, parent: run.manager.get_children(parent),
    "getLabel": lambda run, target: run.manager.get_label(target),
    "getEntry": lambda run, target: run.manager.get_entry(target),
}
