"""The live session is replaced whole or not at all: failures, cancellations and calls that meet each other."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from sessiondb import (
    AgentSessionRuntime,
    FileSessionStorage,
    ForkEntryError,
    MissingSessionCwdError,
    ReplacementInProgressError,
    RuntimeDisposedError,
    SessionForkError,
    SessionImportError,
    SessionManager,
    SessionNotFoundError,
    SessionReplacementError,
    create_agent_session_runtime,
)
from sessiondb.breadcrumbs import read_breadcrumb
from tests.runtime_host import EVENTS, Host
from tests.support import OpenStore, dump, header, write
from tests.test_live_tree import Home, assistant, talk, user
from tests.test_runtime_scenarios import foreign, known


@pytest.fixture(params=["file", "database"])
def host(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Host:
    return Host(Home(request.param, tmp_path, open_store), tmp_path)


@pytest.fixture
def in_files(tmp_path: Path, open_store: OpenStore) -> Host:
    return Host(Home("file", tmp_path, open_store), tmp_path)


@pytest.fixture
def in_memory(tmp_path: Path, open_store: OpenStore) -> Host:
    return Host(Home("memory", tmp_path, open_store), tmp_path)


def played(act: Callable[[], Awaitable[Any]]) -> Any:
    async def playing() -> Any:
        async with asyncio.timeout(20):
            return await act()

    return asyncio.run(playing())


def conversation(manager: SessionManager) -> list[str]:
    return talk(manager, "one", "1", "two", "2")


def all_that_is_kept(host: Host) -> dict[str, Any]:
    """Every file's bytes; every session's lines in a database."""
    if host.home.in_database:
        store = host.home.store
        return {session.id: host.home.store.entries(session) for session in store.sessions(superseded=True)}
    folders = [host.home.folder, host.root / "ext"]
    return {str(path): path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_kept(host: Host, kept: dict[str, Any], *, imported: str) -> None:
    """Nothing has come or gone; but a database keeps what was imported."""
    after = all_that_is_kept(host)
    if host.home.in_database:
        after.pop(imported, None)
    assert after == kept


def state(manager: SessionManager) -> dict[str, Any]:
    return {
        "header": manager.get_header(),
        "entries": manager.get_entries(),
        "leaf": manager.get_leaf_id(),
        "cwd": manager.get_cwd(),
        "file": manager.get_session_file(),
        "context": manager.build_session_context(),
        "saved": (manager.is_saved(), manager.is_on_disk()),
    }


class FactoryError(Exception):
    pass


def fail(*_: Any) -> None:
    raise FactoryError("no model")


Replace = Callable[[Host, list[str]], Awaitable[Any]]

REPLACEMENTS: dict[str, Replace] = {
    "new": lambda host, ids: host.runtime.new_session(),
    "switch": lambda host, ids: host.runtime.switch_session(host.root / "ext" / "a.jsonl"),
    "fork": lambda host, ids: host.runtime.fork(ids[2]),
    "import": lambda host, ids: host.runtime.import_from_jsonl(host.root / "ext" / "b.jsonl"),
}

every_replacement = pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=list(REPLACEMENTS))


async def started(host: Host, dialect: str = "pi") -> list[str]:
    """A live session that is written, and sessions to switch to and to import; the ids of its entries."""
    known(host, "a.jsonl")
    write(host.root / "ext" / "b.jsonl", header("b", cwd=str(host.root)))
    manager = host.home.create(str(host.project), dialect=dialect)
    ids: list[str] = await host.start(manager, conversation)
    return ids


def accesses(runtime: AgentSessionRuntime) -> Iterator[str]:
    for name in ("session", "services", "cwd", "diagnostics", "model_fallback_message"):
        with pytest.raises(SessionReplacementError) as raised:
            getattr(runtime, name)
        yield str(raised.value)


# -- the factory fails -----------------------------------------------------------------------------------------------


@every_replacement
def test_when_the_factory_fails_no_session_is_live_until_recover_brings_the_old_one_back(
    host: Host, replace: Replace
) -> None:
    async def act() -> None:
        ids = await started(host)
        manager, before, kept = host.manager, state(host.manager), all_that_is_kept(host)
        host.hooks["createRuntime"] = fail
        with pytest.raises(SessionReplacementError) as raised:
            await replace(host, ids)
        assert isinstance(raised.value.cause, FactoryError)
        assert raised.value.__cause__ is raised.value.cause
        assert raised.value.session_ref == manager.get_session_file()
        assert len(set(accesses(host.runtime))) == 1
        with pytest.raises(SessionReplacementError):
            await host.runtime.new_session()
        assert_kept(host, kept, imported="b")

        del host.hooks["createRuntime"]
        host.log.clear()
        await host.runtime.recover()
        assert host.calls() == ["createRuntime", "rebindSession"]
        created = host.log[0]
        assert created["sameManager"]
        assert created["cwd"] == str(host.project)
        assert created["sessionStartEvent"]["reason"] == "resume"
        assert host.manager is manager
        assert state(manager) == before
        assert host.runtime.services.agent_dir == host.agent_dir
        manager.append_message(user("goes on"))
        manager.flush()
        assert len(host.home.open(manager.get_session_file()).get_entries()) == 5

    played(act)


def test_recover_may_fail_and_be_tried_again(host: Host) -> None:
    async def act() -> None:
        await started(host)
        host.hooks["createRuntime"] = fail
        with pytest.raises(SessionReplacementError):
            await host.runtime.new_session()
        host.hooks["createRuntime"] = lambda given: (_ for _ in ()).throw(OSError("no disk"))
        with pytest.raises(SessionReplacementError, match="no disk"):
            await host.runtime.recover()
        assert all("no disk" in text for text in accesses(host.runtime))
        del host.hooks["createRuntime"]
        await host.runtime.recover()
        assert len(host.manager.get_entries()) == 4
        assert [session.disposed for session in host.made] == [1, 0]

    played(act)


def test_the_override_of_the_directory_outlasts_a_failure(host: Host) -> None:
    async def act() -> None:
        await host.start(None, conversation)
        path = known(host, "gone.jsonl", str(host.root / "gone"))
        await host.runtime.switch_session(path, cwd_override=host.project)
        host.hooks["createRuntime"] = fail
        with pytest.raises(SessionReplacementError):
            await host.runtime.new_session()
        del host.hooks["createRuntime"]
        await host.runtime.recover()  # whose stored directory is not there
        assert (host.runtime.cwd, host.manager.get_cwd()) == (str(host.project), str(host.project))

    played(act)


def test_recover_does_nothing_while_a_session_is_live(host: Host) -> None:
    async def act() -> None:
        await started(host)
        await host.runtime.recover()
        await host.runtime.new_session()
        host.log.clear()
        await host.runtime.recover()
        assert host.log == []

    played(act)


@every_replacement
def test_dispose_after_a_failure_ends_the_session_no_second_time(host: Host, replace: Replace) -> None:
    async def act() -> None:
        ids = await started(host)
        host.hooks["createRuntime"] = fail
        with pytest.raises(SessionReplacementError):
            await replace(host, ids)
        host.log.clear()
        await host.runtime.dispose()
        assert host.log == []
        assert host.made[0].disposed == 1
        assert len(host.manager.get_entries()) == 4

    played(act)


@pytest.mark.parametrize("at", [0, 2], ids=["before the first", "before the second"])
def test_in_memory_a_fork_that_fails_gives_the_manager_its_session_back(in_memory: Host, at: int) -> None:
    host = in_memory

    async def act() -> None:
        ids = await host.start(None, conversation)
        manager, before = host.manager, state(host.manager)
        host.hooks["createRuntime"] = fail
        with pytest.raises(SessionReplacementError) as raised:
            await host.runtime.fork(ids[at])
        assert raised.value.session_ref == manager.get_session_id()
        assert state(manager) == before
        del host.hooks["createRuntime"]
        await host.runtime.recover()
        assert host.manager is manager
        assert state(manager) == before

    played(act)


# -- failures before the live session ends ---------------------------------------------------------------------------


async def unchanged_by(
    host: Host, replacement: Awaitable[Any], error: type[BaseException] | tuple[type[BaseException], ...]
) -> BaseException:  # fmt: skip
    """The error of a replacement that must leave the live session, and all that is kept, as they were."""
    session, before, kept = host.runtime.session, state(host.manager), all_that_is_kept(host)
    with pytest.raises(error) as raised:
        await replacement
    assert host.runtime.session is session
    assert session.disposed == 0
    assert "session_shutdown" not in host.calls()
    assert state(host.manager) == before
    assert all_that_is_kept(host) == kept
    return raised.value


def test_a_missing_directory_leaves_everything_as_it_was(host: Host) -> None:
    async def act() -> None:
        await started(host)
        path = known(host, "c.jsonl", str(host.root / "gone"))
        await unchanged_by(host, host.runtime.switch_session(path), MissingSessionCwdError)
        elsewhere = foreign(host, "d.jsonl", str(host.root / "gone"))
        Path(elsewhere).write_bytes(Path(elsewhere).read_bytes().replace(b'"ext"', b'"d"'))
        await unchanged_by(host, host.runtime.import_from_jsonl(elsewhere), MissingSessionCwdError)
        missing = str(host.root / "neither")
        error = await unchanged_by(
            host, host.runtime.import_from_jsonl(elsewhere, cwd_override=missing), MissingSessionCwdError
        )
        assert isinstance(error, MissingSessionCwdError)
        assert error.session_cwd == missing
        assert (await host.runtime.import_from_jsonl(elsewhere, cwd_override=host.project))["cancelled"] is False
        assert host.runtime.cwd == str(host.project)

    played(act)


def test_a_path_that_is_a_file_is_no_directory_to_work_in(host: Host) -> None:
    async def act() -> None:
        await started(host)
        path = known(host, "c.jsonl", str(write(host.root / "file", b"x")))
        await unchanged_by(host, host.runtime.switch_session(path), MissingSessionCwdError)

    played(act)


def test_a_folder_is_neither_imported_nor_switched_to(host: Host) -> None:
    async def act() -> None:
        await started(host)
        folder = host.root / "ext"
        await unchanged_by(host, host.runtime.import_from_jsonl(folder), (OSError, SessionImportError))
        await unchanged_by(host, host.runtime.switch_session(folder), (OSError, SessionNotFoundError))

    played(act)


class FullDisk(FileSessionStorage):
    """A disk on which there is no room for another file, once it is full."""

    is_full = False

    def rename(self, old: Any, new: Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(new))
        super().rename(old, new)

    def write_text(self, path: Any, text: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        super().write_text(path, text)


def test_a_fork_or_import_that_cannot_be_written_leaves_everything_as_it_was(in_files: Host) -> None:
    host = in_files
    disk = FullDisk()

    async def act() -> None:
        manager = host.home.create(str(host.project), dialect="pi", storage=disk)
        ids = await host.start(manager, conversation)
        disk.is_full = True
        error = await unchanged_by(host, host.runtime.fork(ids[2]), SessionForkError)
        assert str(error) == "Failed to create forked session"
        assert "No space left" in str(error.__cause__)
        await unchanged_by(host, host.runtime.import_from_jsonl(foreign(host, "a.jsonl")), OSError)
        disk.is_full = False
        assert (await host.runtime.fork(ids[2]))["selectedText"] == "two"

    played(act)


def test_a_fork_into_a_database_in_use_leaves_everything_as_it_was(tmp_path: Path, open_store: OpenStore) -> None:
    host = Host(Home("database", tmp_path, lambda *args: open_store(timeout=0.1)), tmp_path)

    async def act() -> None:
        ids = await started(host)
        other = apsw.Connection(str(host.home.store.database))
        other.execute("BEGIN IMMEDIATE")
        error = await unchanged_by(host, host.runtime.fork(ids[2]), SessionForkError)
        assert "in use" in str(error.__cause__)
        other.execute("ROLLBACK")
        other.close()
        assert (await host.runtime.fork(ids[2]))["selectedText"] == "two"

    played(act)


def test_what_holds_no_session_is_not_imported_into_a_database(tmp_path: Path, open_store: OpenStore) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)

    async def act() -> None:
        await started(host)
        words, empty = write(tmp_path / "notes.jsonl", b"only words\n"), write(tmp_path / "empty", b"")
        for path in (words, empty, tmp_path / "ext"):
            error = await unchanged_by(host, host.runtime.import_from_jsonl(path), SessionImportError)
            assert str(path) in str(error)

    played(act)


def test_what_cannot_be_forked_at_is_told(host: Host) -> None:
    async def act() -> None:
        ids = await started(host)
        for entry_id in ("nope", "", ids[1]):
            await unchanged_by(host, host.runtime.fork(entry_id), ForkEntryError)
        await unchanged_by(host, host.runtime.fork("nope", "at"), ForkEntryError)
        with pytest.raises(ValueError, match="position"):
            await host.runtime.fork(ids[0], "behind")  # type: ignore[arg-type]  # what is asked wrongly
        label = host.manager.append_label_change(ids[1], "here")
        assert await host.runtime.fork(label, "at") == {"cancelled": False}

    played(act)


def test_the_text_of_a_message_that_is_forked_before_is_its_text_blocks_joined(host: Host) -> None:
    async def act() -> None:
        blocks = [{"type": "text", "text": "a "}, {"type": "image", "data": "AA=="}, {"type": "text", "text": "cat"}]
        await host.start(None, conversation)
        first = host.manager.append_message({"role": "user", "content": blocks})
        assert (await host.runtime.fork(first))["selectedText"] == "a cat"
        second = host.manager.append_message({"role": "user", "content": blocks[1:2]})
        assert (await host.runtime.fork(second))["selectedText"] == ""

    played(act)


# -- what a handler says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, True, {}, {"cancel": 1}, {"cancel": "yes"}, {"cancel": False}, [True], "no"])
def test_only_cancel_true_cancels(host: Host, answer: Any) -> None:
    async def act() -> None:
        await started(host)
        for event in EVENTS:
            host.hooks[event] = lambda event: answer
        assert await host.runtime.new_session() == {"cancelled": False}

    played(act)


@every_replacement
def test_a_handler_that_raises_stops_nothing_and_is_reported(
    host: Host, replace: Replace, caplog: pytest.LogCaptureFixture
) -> None:
    async def act() -> None:
        ids = await started(host)
        for name in (*EVENTS, "session.dispose"):
            host.hooks[name] = lambda *_, name=name: (_ for _ in ()).throw(FactoryError(f"in {name}"))
        host.hooks["beforeSessionInvalidate"] = fail
        assert (await replace(host, ids))["cancelled"] is False
        assert host.calls()[-2:] == ["createRuntime", "rebindSession"]
        reports = host.runtime.diagnostics
        before = host.calls()[0]
        assert [(report["event"], report["error"]) for report in reports] == [
            (before, f"in {before}"),
            ("session_shutdown", "in session_shutdown"),
            ("before_session_invalidate", "no model"),
            ("dispose", "in session.dispose"),
        ]
        assert {report["type"] for report in reports} == {"handler_error"}
        host.hooks.clear()
        await host.runtime.new_session()
        assert host.runtime.diagnostics == []

    with caplog.at_level(logging.WARNING):
        played(act)
    assert len(caplog.records) == 4


def test_a_task_that_the_host_cancels_itself_is_no_cancellation(host: Host) -> None:
    async def act() -> None:
        await started(host)
        background = asyncio.create_task(asyncio.sleep(60))

        async def stop_background(*_: Any) -> None:
            background.cancel()
            await background

        host.hooks["session.dispose"] = host.hooks["session_shutdown"] = stop_background
        assert await host.runtime.new_session() == {"cancelled": False}
        assert [report["event"] for report in host.runtime.diagnostics] == ["session_shutdown", "dispose"]
        await host.runtime.dispose()

    played(act)


def test_an_import_that_is_given_up_leaves_the_sessions_of_its_file_as_they_are(
    tmp_path: Path, open_store: OpenStore
) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)
    gone = str(tmp_path / "gone")

    async def act() -> None:
        path = Path(known(host, "a.jsonl", str(host.project)))
        store = host.home.store
        await host.start(host.home.open("ext"))
        before = store.sessions(superseded=True)
        moved = path.read_bytes().replace(str(host.project).encode(), gone.encode())
        for content in (header("other", cwd=gone), moved):
            path.write_bytes(content)
            await unchanged_by(host, host.runtime.import_from_jsonl(path), MissingSessionCwdError)
            assert store.sessions(superseded=True) == before

    played(act)


def test_only_what_was_made_beside_another_session_can_be_taken_back(host: Host) -> None:
    manager = host.home.create(str(host.project), dialect="pi")
    ids = conversation(manager)
    branch, kept = manager.branched(ids[1]), manager.branched(ids[1])
    kept.keep()
    kept_ref, branch_ref = kept.get_session_file(), branch.get_session_file()
    for each in (manager, branch, kept):
        each.discard()
    assert len(host.home.open(manager.get_session_file()).get_entries()) == 4
    assert len(host.home.open(kept_ref).get_entries()) == 2
    if host.home.in_database:
        with pytest.raises(SessionNotFoundError):
            host.home.open(branch_ref)
    else:
        assert not os.path.exists(branch_ref or "")


def test_a_factory_that_writes_closes_and_fails_leaves_nothing_of_a_fork(host: Host) -> None:
    def write_and_fail(given: dict[str, Any]) -> None:
        given["session_manager"].append_message(user("half"))
        given["session_manager"].close()
        fail()

    async def act() -> None:
        ids = await started(host)
        kept = all_that_is_kept(host)
        host.hooks["createRuntime"] = write_and_fail
        with pytest.raises(SessionReplacementError):
            await host.runtime.fork(ids[3], "at")
        assert all_that_is_kept(host) == kept

    played(act)


def test_what_is_put_aside_for_an_import_goes_with_it(in_files: Host) -> None:
    host = in_files

    async def act() -> None:
        await host.start(None, conversation)
        old = {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": str(host.root / "gone")}
        path = write(host.root / "ext/old.jsonl", dump(old), b'{"type":"message","x":"\xff"}\n')
        await unchanged_by(host, host.runtime.import_from_jsonl(path), MissingSessionCwdError)

    played(act)


def test_an_invalid_file_that_cannot_be_written_over_stays(in_files: Host) -> None:
    host, disk = in_files, FullDisk()

    async def act() -> None:
        await host.start(host.home.create(str(host.project), dialect="pi", storage=disk), conversation)
        path = write(host.root / "ext/bad.jsonl", JUNK)

        def put_aside_only(old: Any, new: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(new))

        real, renames = disk.rename, iter((put_aside_only,))
        disk.rename = lambda old, new: next(renames, real)(old, new)  # type: ignore[method-assign]  # once
        await unchanged_by(host, host.runtime.switch_session(path), OSError)

    played(act)


def test_what_setup_raises_is_told_first(host: Host) -> None:
    async def act() -> None:
        await started(host)
        host.hooks["setMessages"] = lambda: (_ for _ in ()).throw(ValueError("no messages"))
        with pytest.raises(FactoryError) as raised:
            await host.runtime.new_session(setup=fail)
        assert "no messages" in "".join(raised.value.__notes__)
        del host.hooks["setMessages"]
        await host.runtime.recover()
        assert host.calls()[-1] == "rebindSession"

    played(act)


def test_a_manager_of_ones_own_class_stays_one(host: Host) -> None:
    class Mine(SessionManager):
        pass

    manager = Mine.create(str(host.project), **host.home.options, dialect="pi")
    ids = conversation(manager)
    path = known(host, "a.jsonl")
    for other in (manager.successor(), manager.branched(ids[1]), manager.opened(path), manager.imported(path)):
        assert type(other) is Mine


def test_a_switch_does_not_change_the_dialect_of_a_stored_session(tmp_path: Path, open_store: OpenStore) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)

    async def act() -> None:
        other = host.home.create(str(host.project), dialect="xcsh")
        conversation(other)
        await host.start(host.home.create(str(host.project), dialect="pi"), conversation)
        await host.runtime.switch_session(other.get_session_id())
        assert host.manager.get_dialect() == "xcsh"
        assert host.home.store.session(other.get_session_id()).dialect == "xcsh"

    played(act)


def test_host_code_may_be_synchronous(host: Host) -> None:
    log: list[str] = []

    class Plain:
        def __init__(self, manager: SessionManager) -> None:
            self.session_manager = manager
            self.extension_runner = self
            self.session_file = manager.get_session_file()

        def has_handlers(self, event_type: str) -> bool:
            return True

        def emit(self, event: Any) -> Any:
            log.append(event["type"])
            return {"cancel": True} if len(log) == 1 else None

        def dispose(self) -> None:
            log.append("dispose")

        def set_messages(self, messages: Any) -> None:
            log.append(f"{len(messages)} messages")

        async def replaced_context(self) -> str:
            return "context"

    def create_runtime(**given: Any) -> Any:
        services = SimpleNamespace(cwd=given["cwd"], agent_dir=given["agent_dir"])
        session = Plain(given["session_manager"])
        return SimpleNamespace(session=session, services=services, diagnostics=None, model_fallback_message="gone")

    async def act() -> None:
        runtime = await create_agent_session_runtime(
            create_runtime, cwd=host.project, agent_dir=host.agent_dir,
            session_manager=host.home.create(str(host.project)),
        )
        assert await runtime.new_session() == {"cancelled": True}
        runtime.set_rebind_session(lambda session: log.append("rebind"))
        runtime.set_before_session_invalidate(lambda: log.append("invalidate"))
        await runtime.new_session(setup=lambda manager: manager.append_message(user()), with_session=log.append)
        assert runtime.model_fallback_message == "gone"
        await runtime.dispose()

    played(act)
    before, down = "session_before_switch", ["session_shutdown", "invalidate", "dispose"]
    assert log == [before, before, *down, "1 messages", "rebind", "context", *down]


def test_a_session_needs_only_what_is_asked_of_it(host: Host) -> None:
    class Bare:
        """Without set_messages and replaced_context."""

        def __init__(self, manager: SessionManager) -> None:
            self.session_manager = manager
            self.session_file = manager.get_session_file()
            self.extension_runner = SimpleNamespace(has_handlers=lambda event_type: False)

        def dispose(self) -> None:
            pass

    async def create_runtime(**given: Any) -> Any:
        return SimpleNamespace(
            session=Bare(given["session_manager"]), diagnostics=(), model_fallback_message=None,
            services=SimpleNamespace(cwd=given["cwd"], agent_dir=given["agent_dir"]),
        )  # fmt: skip

    async def act() -> None:
        manager = host.home.create(str(host.project), dialect="pi")
        ids = conversation(manager)
        path = known(host, "a.jsonl")
        runtime = await create_agent_session_runtime(create_runtime, cwd="/", agent_dir="/a", session_manager=manager)
        await runtime.fork(ids[2])
        await runtime.switch_session(path)
        await runtime.import_from_jsonl(path)
        await runtime.new_session()
        await runtime.dispose()

    played(act)


# -- setup and binding -----------------------------------------------------------------------------------------------


def test_what_setup_appends_is_loaded_before_the_session_is_bound(host: Host) -> None:
    async def act() -> None:
        await started(host)
        seen: list[Any] = []
        host.hooks["rebindSession"] = lambda session: seen.append(list(session.messages))

        async def setup(manager: SessionManager) -> None:
            manager.append_message(user("seeded"))

        await host.runtime.new_session(setup=setup)
        assert [[message["content"] for message in messages] for messages in seen] == [["seeded"]]
        assert host.calls()[-2:] == ["setMessages", "rebindSession"]

    played(act)


def test_what_setup_raises_comes_through_and_the_new_session_is_live_and_bound(host: Host) -> None:
    async def act() -> None:
        await started(host)

        def setup(manager: SessionManager) -> None:
            manager.append_message(user("half"))
            raise FactoryError("no more")

        with pytest.raises(FactoryError):
            await host.runtime.new_session(setup=setup)
        assert host.calls()[-2:] == ["setMessages", "rebindSession"]
        assert [message["content"] for message in host.runtime.session.messages] == ["half"]
        assert (await host.runtime.new_session())["cancelled"] is False

    played(act)


def test_what_rebind_raises_comes_through_and_recover_binds_again(host: Host) -> None:
    async def act() -> None:
        await started(host)
        host.hooks["rebindSession"] = fail
        with pytest.raises(FactoryError):
            await host.runtime.new_session()
        assert host.manager.get_entries() == []
        del host.hooks["rebindSession"]
        host.log.clear()
        await host.runtime.recover()
        await host.runtime.recover()
        assert host.calls() == ["rebindSession"]

    played(act)


# -- cancellation ----------------------------------------------------------------------------------------------------

STEPS = (
    "session_before_switch", "session_shutdown", "session.dispose", "createRuntime", "setup", "setMessages",
    "rebindSession", "withSession",
)  # fmt: skip


async def cancelled_at(host: Host, step: str) -> None:
    """Cancel a new session, with all that one can have, at a step."""
    reached, never = asyncio.Event(), asyncio.Event()

    async def stay(*_: Any) -> None:
        reached.set()
        await never.wait()

    async def setup(manager: SessionManager) -> None:
        manager.append_message(user("seeded"))
        await host.reach("setup")

    host.hooks[step] = stay
    task = asyncio.create_task(host.runtime.new_session(setup=setup, with_session=host.with_session))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del host.hooks[step]


@pytest.mark.parametrize("step", STEPS)
def test_recover_mends_a_cancellation_at_any_step(host: Host, step: str) -> None:
    async def act() -> None:
        await started(host)
        old = host.manager
        await cancelled_at(host, step)
        if step in ("session_shutdown", "session.dispose", "createRuntime"):
            assert len(set(accesses(host.runtime))) == 1
        await host.runtime.recover()
        calls = [call for call in host.calls() if call != "session.dispose"]
        once = ["session_before_switch", "session_shutdown", "beforeSessionInvalidate", "createRuntime"]
        if step == "session_before_switch":
            assert calls == once[:1]
            assert host.manager is old
        elif step in STEPS[1:4]:
            again = ["createRuntime"] if step == "createRuntime" else []
            assert calls == [*once, *again, "rebindSession"]
            assert host.manager is old
            assert len(host.manager.get_entries()) == 4
        else:
            assert host.manager is not old
            assert [message["content"] for message in host.runtime.session.messages] == ["seeded"]
            assert calls.count("createRuntime") == 1
            assert "rebindSession" in calls
        assert [made.disposed for made in host.made[:-1]] == [1] * (len(host.made) - 1)
        assert await host.runtime.new_session() == {"cancelled": False}
        await host.runtime.dispose()

    played(act)


@pytest.mark.parametrize("step", STEPS)
def test_dispose_mends_a_cancellation_at_any_step(host: Host, step: str) -> None:
    async def act() -> None:
        await started(host)
        await cancelled_at(host, step)
        await host.runtime.dispose()
        calls = host.calls()
        ends = calls.count("session_shutdown"), calls.count("beforeSessionInvalidate")
        assert ends == ((1, 1) if STEPS.index(step) < 4 else (2, 2))
        assert [made.disposed for made in host.made] == [1] * len(host.made)
        assert isinstance(host.manager.get_entries(), list)
        await host.runtime.dispose()
        assert host.calls() == calls
        with pytest.raises(RuntimeDisposedError):
            await host.runtime.recover()

    played(act)


def test_a_cancelled_dispose_can_be_called_again_or_recovered(host: Host) -> None:
    async def cancel_dispose() -> None:
        reached, never = asyncio.Event(), asyncio.Event()

        async def stay() -> None:
            reached.set()
            await never.wait()

        host.hooks["session.dispose"] = stay
        task = asyncio.create_task(host.runtime.dispose())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del host.hooks["session.dispose"]

    async def act() -> None:
        await started(host)
        await cancel_dispose()
        assert len(set(accesses(host.runtime))) == 1
        await host.runtime.recover()
        assert len(host.manager.get_entries()) == 4
        await cancel_dispose()
        await host.runtime.dispose()
        assert [made.disposed for made in host.made] == [1, 1]

    played(act)


class Gate(FileSessionStorage):
    """A disk that is so slow that one may change one's mind: it waits before it gives a file its name."""

    def __init__(self) -> None:
        self.is_closed = False
        self.reached, self.opened = threading.Event(), threading.Event()

    def rename(self, old: Any, new: Any) -> None:
        self._wait()
        super().rename(old, new)

    def write_text(self, path: Any, text: str) -> None:
        self._wait()
        super().write_text(path, text)

    def _wait(self) -> None:
        if self.is_closed:
            self.reached.set()
            assert self.opened.wait(10)


JUNK = b'{"hello":1}\n'

STORING: dict[str, Replace] = {
    "fork": lambda host, ids: host.runtime.fork(ids[2]),
    "import": lambda host, ids: host.runtime.import_from_jsonl(host.root / "ext/b.jsonl"),
    "import of no session": lambda host, ids: host.runtime.import_from_jsonl(write(host.root / "ext/junk.jsonl", JUNK)),
    "switch to no session": lambda host, ids: host.runtime.switch_session(write(host.root / "ext/junk.jsonl", JUNK)),
    "switch to an empty file": lambda host, ids: host.runtime.switch_session(write(host.root / "ext/junk.jsonl", b"")),
}


@pytest.mark.parametrize("replace", STORING.values(), ids=list(STORING))
def test_a_cancellation_while_the_next_session_is_written_leaves_nothing_of_it(
    in_files: Host, replace: Replace
) -> None:  # fmt: skip
    host, disk = in_files, Gate()

    async def cancelling(ids: list[str]) -> None:
        disk.is_closed = True
        task = asyncio.ensure_future(replace(host, ids))
        assert await asyncio.to_thread(disk.reached.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # as one does who is in a hurry
        disk.opened.set()
        await task

    async def act() -> None:
        write(host.root / "ext/b.jsonl", header("b", cwd=str(host.root)))
        manager = host.home.create(str(host.project), dialect="pi", storage=disk)
        ids = await host.start(manager, conversation)
        junk = host.root / "ext/junk.jsonl"
        junk.write_bytes(b"" if replace is STORING["switch to an empty file"] else JUNK)
        await unchanged_by(host, cancelling(ids), asyncio.CancelledError)
        assert not host.runtime.diagnostics
        assert (await host.runtime.new_session())["cancelled"] is False

    played(act)


def test_a_cancellation_while_the_database_is_waited_for_leaves_nothing_behind(
    tmp_path: Path, open_store: OpenStore
) -> None:
    host = Host(Home("database", tmp_path, open_store), tmp_path)

    async def act() -> None:
        ids = await started(host)
        for replace in (REPLACEMENTS["fork"], REPLACEMENTS["import"]):
            before, kept = state(host.manager), all_that_is_kept(host)
            other = apsw.Connection(str(host.home.store.database))
            other.execute("BEGIN IMMEDIATE")
            host.log.clear()
            task = asyncio.ensure_future(replace(host, ids))
            while not host.log:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()  # the thread is waited for, and what it made taken back
            other.execute("ROLLBACK")
            other.close()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert state(host.manager) == before
            assert_kept(host, kept, imported="b")

    played(act)


# -- calls that meet -------------------------------------------------------------------------------------------------

PLACES = (*STEPS, "beforeSessionInvalidate")

CALLS: dict[str, Callable[[AgentSessionRuntime], Awaitable[Any]]] = {
    "new_session": lambda runtime: runtime.new_session(),
    "switch_session": lambda runtime: runtime.switch_session("x"),
    "fork": lambda runtime: runtime.fork("x"),
    "import_from_jsonl": lambda runtime: runtime.import_from_jsonl("x"),
    "dispose": lambda runtime: runtime.dispose(),
    "recover": lambda runtime: runtime.recover(),
}


@pytest.mark.parametrize("place", [place for place in PLACES if place != "beforeSessionInvalidate"])
@pytest.mark.parametrize("in_a_task", [False, True], ids=["called", "in a task"])
def test_a_call_from_inside_a_replacement_is_refused(host: Host, place: str, in_a_task: bool) -> None:
    refused: list[str] = []

    async def call_back(*_: Any) -> None:
        for name, call in CALLS.items():
            with pytest.raises(ReplacementInProgressError) as raised:
                await (asyncio.ensure_future(call(host.runtime)) if in_a_task else call(host.runtime))
            assert name in str(raised.value)
            refused.append(name)

    async def setup(manager: SessionManager) -> None:
        await host.reach("setup")

    async def act() -> None:
        await started(host)
        host.hooks[place] = call_back
        await host.runtime.new_session(setup=setup, with_session=host.with_session)
        assert refused == list(CALLS)
        assert host.runtime.diagnostics == []

    played(act)


def test_a_task_that_a_handler_began_may_replace_the_session_afterwards(host: Host) -> None:
    async def act() -> None:
        await started(host)
        go = asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def later() -> Any:
            await go.wait()
            return await host.runtime.new_session()

        host.hooks["rebindSession"] = lambda session: tasks.append(asyncio.create_task(later()))
        await host.runtime.new_session()
        host.hooks.clear()
        go.set()
        assert await tasks[0] == {"cancelled": False}

    played(act)


def test_another_task_waits_for_its_turn(host: Host) -> None:
    async def act() -> None:
        await started(host)
        calls = [host.runtime.new_session() for _ in range(3)]
        await asyncio.gather(*calls, host.runtime.switch_session(host.root / "ext" / "a.jsonl"))
        events = [call for call in host.calls() if call not in ("beforeSessionInvalidate", "session.dispose")]
        assert events == ["session_before_switch", "session_shutdown", "createRuntime", "rebindSession"] * 4
        assert host.manager.get_session_id() == "ext"

    played(act)


def test_two_runtimes_do_not_wait_for_each_other(host: Host, tmp_path: Path, open_store: OpenStore) -> None:
    async def act() -> None:
        await started(host)
        inner = Host(Home("memory", tmp_path, open_store), tmp_path)
        await inner.start()
        host.hooks["rebindSession"] = lambda session: inner.runtime.new_session()
        inner.hooks["rebindSession"] = lambda session: host.runtime.new_session()
        with pytest.raises(ReplacementInProgressError):
            await host.runtime.new_session()

    played(act)


def test_ten_replacements_use_one_factory_and_one_agent_dir(host: Host) -> None:
    async def act() -> None:
        await started(host)
        factory = host.runtime._create_runtime
        for turn in range(10):
            ids = conversation(host.manager)
            await list(REPLACEMENTS.values())[turn % 4](host, ids)
            assert host.runtime.services.agent_dir == host.agent_dir
        assert host.runtime._create_runtime is factory
        assert [made.disposed for made in host.made] == [*[1] * (len(host.made) - 1), 0]
        assert len(host.made) == 11

    played(act)


# -- where sessions go -----------------------------------------------------------------------------------------------


def test_an_import_takes_a_name_that_is_free_and_copies_byte_for_byte(in_files: Host) -> None:
    host = in_files

    async def act() -> None:
        await host.start(None, conversation)
        source = Path(foreign(host, "imp.jsonl"))
        source.write_bytes(source.read_bytes() + b'{"torn":\n\xff not utf-8\n')
        for name in ("imp.jsonl", "imp-1.jsonl", "imp-2.jsonl"):
            await host.runtime.import_from_jsonl(source)
            copy = host.home.folder / name
            assert host.runtime.session.session_file == str(copy)
            assert copy.read_bytes() == source.read_bytes()
            assert copy.stat().st_mode & 0o777 == 0o600
        again = host.home.folder / "imp-1.jsonl"
        await host.runtime.import_from_jsonl(again)
        assert host.runtime.session.session_file == str(again)
        (host.home.folder / "x.jsonl").symlink_to("nowhere")
        assert host.manager.import_target(foreign(host, "x.jsonl")) == str(host.home.folder / "x-1.jsonl")
        link = host.root / "ext" / "imp-2.jsonl"
        link.symlink_to(host.home.folder / "imp-2.jsonl")
        await host.runtime.import_from_jsonl(link)
        assert host.runtime.session.session_file == str(host.home.folder / "imp-2.jsonl")
        assert len(list(host.home.folder.glob("imp*"))) == 3

    played(act)


def test_a_name_that_a_handler_takes_meanwhile_is_not_overwritten(in_files: Host) -> None:
    host = in_files

    async def act() -> None:
        await host.start(None, conversation)
        source = foreign(host, "imp.jsonl")
        host.hooks["session_before_switch"] = lambda event: Path(event["targetSessionFile"]).write_text("OLD") and None
        await host.runtime.import_from_jsonl(source)
        assert (host.home.folder / "imp.jsonl").read_text() == "OLD"
        assert host.runtime.session.session_file == str(host.home.folder / "imp-1.jsonl")
        assert [step["emit"]["targetSessionFile"] for step in host.log if "emit" in step] == [
            str(host.home.folder / "imp.jsonl"), str(host.home.folder / "imp-1.jsonl")
        ]  # fmt: skip

    played(act)


def test_after_a_switch_new_sessions_go_beside_the_file_and_after_an_import_where_they_went(in_files: Host) -> None:
    host = in_files

    async def act() -> None:
        await started(host)
        await host.runtime.import_from_jsonl(host.root / "ext" / "b.jsonl")
        await host.runtime.new_session()
        assert host.manager.get_session_dir() == str(host.home.folder)
        await host.runtime.switch_session(host.root / "ext" / "a.jsonl")
        await host.runtime.new_session()
        assert host.manager.get_session_dir() == str(host.root / "ext")

    played(act)


def test_in_memory_sessions_stay_there_but_for_one_that_is_switched_to(in_memory: Host) -> None:
    host = in_memory

    async def act() -> None:
        path = foreign(host, "a.jsonl")
        content = Path(path).read_bytes()
        await host.start(None, conversation)
        first = host.manager
        await host.runtime.new_session(parent_session="/p.jsonl")
        assert host.manager is not first
        assert host.manager.get_header()["parentSession"] == "/p.jsonl"
        assert (host.manager.is_persisted(), host.runtime.session.session_file) == (False, None)
        await host.runtime.import_from_jsonl(path)
        assert (host.manager.is_persisted(), len(host.manager.get_entries())) == (False, 1)
        talk(host.manager, "q", "a")
        assert Path(path).read_bytes() == content
        await host.runtime.switch_session(path)
        assert (host.manager.is_persisted(), host.runtime.session.session_file) == (True, path)
        host.manager.append_message(assistant())
        assert len(Path(path).read_bytes()) > len(content)

    played(act)


def test_a_fork_has_entries_of_its_own(host: Host) -> None:
    async def act() -> None:
        ids = await started(host)
        old = host.manager
        await host.runtime.fork(ids[3], "at")
        mine = host.manager.get_entry(ids[0])
        assert mine is not None
        mine["message"] = user("changed")
        assert old.get_entry(ids[0])["message"]["content"] == "one"  # type: ignore[index]  # it is there

    played(act)


def test_a_fork_knows_its_directory_and_parent_and_waits_for_its_answer(host: Host) -> None:
    async def act() -> None:
        manager = host.home.create(str(host.project), dialect="pi")
        ids = await host.start(manager, lambda m: talk(m, "one"))
        second = manager.append_message(user("two"))
        manager.append_message(assistant())
        await host.runtime.fork(second)
        forked = host.manager
        assert not forked.is_saved()
        assert forked.get_header()["parentSession"] == manager.get_session_file()
        forked.append_message(assistant("later"))
        again = host.home.open(forked.get_session_file())
        assert again.get_entries()[0]["id"] == ids[0]
        assert again.get_cwd() == str(host.project)

    played(act)


def test_the_terminal_remembers_the_session_that_is_live(
    in_files: Host, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    host = in_files
    monkeypatch.setenv("KITTY_WINDOW_ID", "7")

    def remembered() -> str:
        return str(read_breadcrumb(Path(host.agent_dir), str(host.project)))

    async def act() -> None:
        ids = await started(host, "xcsh")
        live = host.manager.get_session_file()
        assert remembered() == live
        host.hooks["createRuntime"] = fail
        for replace in REPLACEMENTS.values():
            with pytest.raises(SessionReplacementError):
                await replace(host, ids)
            assert remembered() == live
            del host.hooks["createRuntime"]
            await host.runtime.recover()
            assert remembered() == live
            host.hooks["createRuntime"] = fail
        host.hooks.clear()
        await host.runtime.fork(ids[3], "at")
        assert remembered() == host.manager.get_session_file() != live

    played(act)


def test_what_is_replaced_or_disposed_of_holds_nothing_open(in_files: Host) -> None:
    host = in_files

    def held() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [link for link in links if str(host.home.folder) in os.path.realpath(link)]

    async def act() -> None:
        await host.start(None, conversation)
        host.manager.append_message(user("more"))
        assert len(held()) == 1
        await host.runtime.new_session()
        assert held() == []
        conversation(host.manager)
        host.manager.append_message(user("more"))
        await host.runtime.dispose()
        assert held() == []
        with pytest.raises(RuntimeDisposedError):
            await host.runtime.new_session()
        assert len(host.manager.get_entries()) == 5

    played(act)


def test_the_events_can_be_written_as_json(host: Host) -> None:
    async def act() -> None:
        await started(host)
        for replace in REPLACEMENTS.values():
            await host.runtime.new_session()
            await replace(host, conversation(host.manager))
        assert json.loads(json.dumps(host.log)) == host.log

    played(act)
