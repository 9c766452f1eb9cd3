"""The live session is replaced as by pi 0.73.1: its 31 recorded scenarios, in files and in the database."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sessiondb import MissingSessionCwdError, SessionDBError, SessionManager, create_agent_session_runtime
from tests.runtime_host import Host
from tests.support import GOLDEN_ROOT, OpenStore, dump
from tests.test_live_tree import Home, assistant, user

RECORDED = {
    step["scenario"]: step for step in map(json.loads, (GOLDEN_ROOT / "runtime-pi073.ndjson").read_text().splitlines())
}

AUTO = "$HOME/sessions/<auto>.jsonl"


def talk(manager: SessionManager) -> list[str]:
    messages = (user("one"), assistant("1"), user("two"), assistant("2"))
    return [manager.append_message(message) for message in messages]


def two_users_then_bot(manager: SessionManager) -> list[str]:
    return [manager.append_message(message) for message in (user("one"), user("two"), assistant("2"))]


def two_users(manager: SessionManager) -> list[str]:
    return [manager.append_message(message) for message in (user("one"), user("two"))]


Act = Callable[[Host, list[str]], Awaitable[Any]]


class Scenario(NamedTuple):
    act: Act
    build: Callable[[SessionManager], list[str]] = talk
    in_memory: bool = False


def foreign(host: Host, name: str, cwd: str | None = None) -> str:
    """A session in a file elsewhere; in a database home it is in the database, too."""
    path = host.root / "ext" / name
    path.parent.mkdir(exist_ok=True)
    head = {"type": "session", "version": 3, "id": "ext", "timestamp": "2025-01-01T00:00:00.000Z"}
    said = {"type": "message", "id": "a1", "parentId": None, "timestamp": "2025-01-01T00:00:00.000Z"}
    path.write_bytes(dump({**head, "cwd": cwd or str(host.project)}) + dump({**said, "message": user("x")}))
    return str(path)


def known(host: Host, name: str, cwd: str | None = None) -> str:
    path = foreign(host, name, cwd)
    if host.home.in_database:
        host.home.store.import_paths([path])
    return path


def cancel(event_type: str, act: Act) -> Act:
    def acting(host: Host, ids: list[str]) -> Awaitable[Any]:
        host.hooks[event_type] = lambda event: {"cancel": True}
        return act(host, ids)

    return acting


async def new_with_setup(host: Host, ids: list[str]) -> Any:
    def setup(manager: SessionManager) -> None:
        host.log.append({"call": "setup"})
        manager.append_message(user("seeded"))

    return await host.runtime.new_session(parent_session="/p.jsonl", setup=setup)


async def new_unheard(host: Host, ids: list[str]) -> Any:
    host.handlers = ()
    return await host.runtime.new_session()


async def new_failing(host: Host, ids: list[str]) -> Any:
    def fail(given: Any) -> None:
        raise RuntimeError("factory failed")

    host.hooks["createRuntime"] = fail
    return await host.runtime.new_session()


async def import_over_a_name(host: Host, ids: list[str]) -> Any:
    host.home.folder.mkdir(exist_ok=True)
    (host.home.folder / "imp.jsonl").write_text("OLD\n")
    result = await host.runtime.import_from_jsonl(foreign(host, "imp.jsonl"))
    host.log.append({"existing": (host.home.folder / "imp.jsonl").read_text()[:3]})
    return result


async def import_no_session(host: Host, ids: list[str]) -> Any:
    path = host.root / "ext" / "junk.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"hello":1}\n')
    return await host.runtime.import_from_jsonl(path)


def gone(host: Host) -> str:
    return str(host.root / "gone")


SCENARIOS: dict[str, Scenario] = {
    "new": Scenario(lambda h, ids: h.runtime.new_session(with_session=h.with_session)),
    "new, parentSession and setup": Scenario(new_with_setup),
    "new, cancelled": Scenario(cancel("session_before_switch", lambda h, ids: h.runtime.new_session())),
    "new, no handlers": Scenario(new_unheard),
    "new, factory fails": Scenario(new_failing),
    "new, in memory": Scenario(lambda h, ids: h.runtime.new_session(), in_memory=True),
    "switch": Scenario(lambda h, ids: h.runtime.switch_session(known(h, "a.jsonl"), with_session=h.with_session)),
    "switch, cancelled": Scenario(
        cancel("session_before_switch", lambda h, ids: h.runtime.switch_session(known(h, "a.jsonl")))
    ),
    "switch, stored cwd missing": Scenario(lambda h, ids: h.runtime.switch_session(known(h, "b.jsonl", gone(h)))),
    "switch, stored cwd missing, override": Scenario(
        lambda h, ids: h.runtime.switch_session(known(h, "b.jsonl", gone(h)), cwd_override=h.project)
    ),
    "switch, file does not exist": Scenario(lambda h, ids: h.runtime.switch_session(h.root / "ext" / "none.jsonl")),
    "fork before first user message": Scenario(lambda h, ids: h.runtime.fork(ids[0], with_session=h.with_session)),
    "fork before second user message": Scenario(lambda h, ids: h.runtime.fork(ids[2])),
    "fork at assistant": Scenario(lambda h, ids: h.runtime.fork(ids[1], position="at")),
    "fork before assistant": Scenario(lambda h, ids: h.runtime.fork(ids[1])),
    "fork unknown id": Scenario(lambda h, ids: h.runtime.fork("nope")),
    "fork cancelled": Scenario(cancel("session_before_fork", lambda h, ids: h.runtime.fork(ids[2]))),
    "fork cancelled even for unknown id": Scenario(
        cancel("session_before_fork", lambda h, ids: h.runtime.fork("nope"))
    ),
    "fork, branch without assistant": Scenario(lambda h, ids: h.runtime.fork(ids[1]), two_users_then_bot),
    "fork, session never saved": Scenario(lambda h, ids: h.runtime.fork(ids[1]), two_users),
    "fork, in memory": Scenario(lambda h, ids: h.runtime.fork(ids[2]), in_memory=True),
    "fork before first, in memory": Scenario(lambda h, ids: h.runtime.fork(ids[0]), in_memory=True),
    "import": Scenario(lambda h, ids: h.runtime.import_from_jsonl(foreign(h, "imp.jsonl"))),
    "import, missing file": Scenario(lambda h, ids: h.runtime.import_from_jsonl(h.root / "ext" / "none.jsonl")),
    "import, cancelled": Scenario(
        cancel("session_before_switch", lambda h, ids: h.runtime.import_from_jsonl(foreign(h, "imp.jsonl")))
    ),
    "import, stored cwd missing": Scenario(
        lambda h, ids: h.runtime.import_from_jsonl(foreign(h, "imp2.jsonl", gone(h)))
    ),
    "import over an existing name": Scenario(import_over_a_name),
    "import a file already in the session dir": Scenario(
        lambda h, ids: h.runtime.import_from_jsonl(h.manager.get_session_file() or "")
    ),
    "import a file that is not a session": Scenario(import_no_session),
    "dispose": Scenario(lambda h, ids: h.runtime.dispose()),
}

IMP_1 = "$HOME/sessions/imp-1.jsonl"

DIFFERENT: dict[str, Callable[[dict[str, Any]], None]] = {}
"""What differs from the recording on purpose, by scenario; the rows are in engine/DESIGN.md."""


def different(name: str) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    def put(change: Callable[[dict[str, Any]], None]) -> None:
        DIFFERENT[name] = change

    return put


@different("new, factory fails")
def _(expected: dict[str, Any]) -> None:
    expected["error"] = (
        f"no session is live: the one before, {AUTO}, ended and the next was not made (factory failed); "
        "await runtime.recover() makes it live again"
    )
    for key in ("sessionReplaced", "currentEntries", "currentFileExists"):
        del expected[key]


@different("new, in memory")
def _(expected: dict[str, Any]) -> None:
    _, shutdown, _, _, created, _ = expected["log"]
    del shutdown["emit"]["targetSessionFile"], created["file"]


@different("fork, branch without assistant")
def _(expected: dict[str, Any]) -> None:
    created = expected["log"][4]
    created |= {"cwd": "$HOME/project", "entries": 1, "leaf": "message", "parentSession": AUTO}
    expected["currentEntries"] = 1


@different("import, stored cwd missing")
def _(expected: dict[str, Any]) -> None:
    expected["filesInSessionDir"] = ["<auto>.jsonl"]


@different("import over an existing name")
def _(expected: dict[str, Any]) -> None:
    before, shutdown, _, _, created, _, existing = expected["log"]
    before["emit"]["targetSessionFile"] = shutdown["emit"]["targetSessionFile"] = created["file"] = IMP_1
    existing["existing"] = "OLD"
    expected["filesInSessionDir"] = ["<auto>.jsonl", "imp-1.jsonl", "imp.jsonl"]


@different("import a file that is not a session")
def _(expected: dict[str, Any]) -> None:
    expected["filesInSessionDir"] = ["<auto>.jsonl", "junk.jsonl", "junk.jsonl.invalid-<time>"]


async def play(host: Host, name: str) -> dict[str, Any]:
    """What is seen of a scenario, in the recording's terms. In a database a session's id stands for its file."""
    scenario = SCENARIOS[name]
    manager = SessionManager.in_memory(host.project, dialect="pi") if scenario.in_memory else None
    ids = await host.start(manager, scenario.build)
    before, result, error = host.runtime.session, None, None
    try:
        result = await scenario.act(host, ids)
    except (SessionDBError, OSError) as raised:
        error = str(raised)
    seen: dict[str, Any] = {"log": [step for step in host.log if step.get("call") != "setMessages"]}
    seen |= {"result": result, "error": error, "filesInSessionDir": files_of(host)}
    if name != "new, factory fails":
        file = host.runtime.session.session_file
        seen["sessionReplaced"] = host.runtime.session is not before
        seen["currentEntries"] = len(host.manager.get_entries())
        seen["currentFileExists"] = file is not None and exists(host, file)
    return seen


def exists(host: Host, ref: str) -> bool:
    if not host.home.in_database:
        return os.path.exists(ref)
    return any(session.id == ref for session in host.home.store.sessions())


def files_of(host: Host) -> list[str]:
    if host.home.in_database:
        return sorted(host.shown(session.id) for session in host.home.store.sessions())
    names = os.listdir(host.home.folder) if host.home.folder.exists() else []
    return sorted(re.sub("invalid-.*", "invalid-<time>", host.shown(name)) for name in names)


def expected_of(name: str) -> dict[str, Any]:
    recorded = json.loads(json.dumps(RECORDED[name]))  # the changes below are this test's own
    expected = {key: value for key, value in recorded.items() if key not in ("client", "version", "scenario")}
    expected["error"] = expected["error"] and expected["error"]["message"]
    expected["log"] = [{key: value for key, value in step.items() if value is not None} for step in expected["log"]]
    if name in DIFFERENT:
        DIFFERENT[name](expected)
    return expected


def test_every_recorded_scenario_is_played() -> None:
    assert {*SCENARIOS, "create, stored cwd missing"} == set(RECORDED)
    assert len(RECORDED) == 31


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_session_in_a_file_is_replaced_as_recorded(
    name: str, tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(Home("file", tmp_path, open_store), tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    seen = asyncio.run(play(host, name))
    expected = json.loads(json.dumps(expected_of(name)).replace('"/tmp"', '"$HOME/here"'))
    assert [host.shown(step) for step in seen.pop("log")] == expected.pop("log")
    assert {key: host.shown(value) if value is not None else None for key, value in seen.items()} == expected


NOT_IN_A_DATABASE = {
    "switch, file does not exist": "no session answers to '<ref>'",
    "import a file already in the session dir": "File not found: ",  # it is an id
}
"""Scenarios that end otherwise in a database, and how."""


def without_refs(value: Any) -> Any:
    """One word for each way to name a session: a path in files, an id in the database."""
    ref = r"\$HOME/(sessions|ext)/[\w<>-]+\.jsonl|<session>|\b(ext|junk)\b"
    return json.loads(re.sub(ref, "<ref>", json.dumps(value)))


@pytest.mark.parametrize("name", [name for name in SCENARIOS if not SCENARIOS[name].in_memory])
def test_a_session_in_the_database_is_replaced_as_recorded(name: str, tmp_path: Path, open_store: OpenStore) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)
    seen = asyncio.run(play(host, name))
    log = without_refs([host.shown(step) for step in seen["log"]])
    expected = expected_of(name)
    if name in NOT_IN_A_DATABASE:
        assert without_refs(host.shown(seen["error"])).startswith(NOT_IN_A_DATABASE[name])
        assert log == without_refs(expected["log"])[: len(log)]
        assert not seen["sessionReplaced"]
        return
    if name == "import a file that is not a session":  # taken in as a session without a header, its line kept
        expected["log"][4] |= {"entries": 1, "cwd": os.getcwd()}
        expected["currentEntries"] = 1
    del expected["filesInSessionDir"], seen["filesInSessionDir"]
    assert log == without_refs(expected.pop("log"))
    seen["error"], expected["error"] = without_refs(host.shown(seen["error"])), without_refs(expected["error"])
    assert {**seen, "log": None} == {**expected, "log": None}


async def refs_in_the_log(host: Host, act: Act) -> list[Any]:
    """The references that events and the factory are given, in order, and the session that was live before."""
    ids = await host.start(None, talk)
    previous = host.manager.get_session_id()
    await act(host, ids)
    found: list[Any] = [previous]
    for step in host.log:
        if "emit" in step:
            found.append(step["emit"].get("targetSessionFile"))
        elif step["call"] == "createRuntime":
            found += [step["file"], step["sessionStartEvent"]["previousSessionFile"], step["parentSession"]]
    return found


def test_in_a_database_sessions_are_named_by_id(tmp_path: Path, open_store: OpenStore) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)
    path = str(tmp_path / "ext/imp.jsonl")

    def refs(act: Act) -> list[Any]:
        return asyncio.run(refs_in_the_log(host, act))

    previous, *named = refs(lambda h, ids: h.runtime.switch_session(known(h, "imp.jsonl")))
    assert named == [path, "ext", "ext", previous, None]
    previous, *named = refs(lambda h, ids: h.runtime.switch_session("ex"))
    assert named == ["ex", "ext", "ext", previous, None]
    previous, *named = refs(lambda h, ids: h.runtime.import_from_jsonl(path))
    assert named == [path, "ext", "ext", previous, None]
    previous, *named = refs(lambda h, ids: h.runtime.fork(ids[2]))
    forked = host.manager.get_session_id()
    assert named == [None, forked, forked, previous, previous]
    assert host.home.store.session(forked).parent_session == previous


def test_the_first_session_is_not_made_when_its_directory_is_gone(tmp_path: Path, open_store: OpenStore) -> None:
    recorded = RECORDED["create, stored cwd missing"]["error"]
    host = Host(Home("file", tmp_path, open_store), tmp_path)
    manager = host.home.open(foreign(host, "c.jsonl", gone(host)))
    made = create_agent_session_runtime(host.create_runtime, cwd=host.project, agent_dir="x", session_manager=manager)
    with pytest.raises(MissingSessionCwdError) as raised:
        asyncio.run(made)
    assert host.shown(str(raised.value)) == recorded["message"]
    assert host.shown(raised.value.issue) == recorded["issue"]
    error = raised.value
    assert [error.session_file, error.session_cwd, error.fallback_cwd] == list(error.issue.values())
    assert host.log == []
