"""Faults that live sessions in files, and the arguments of a manager, once had, each with the smallest steps."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sessiondb
from sessiondb import (
    FileSessionStorage,
    MemorySessionStorage,
    SessionManager,
    find_most_recent_session,
    get_recent_sessions,
)
from sessiondb.errors import ExportExistsError, ForkSourceError, SessionWriteConflictError, SessionWriteError
from sessiondb.storage import SessionStorage
from tests.support import OpenStore, dump, entry, header, write
from tests.test_live_tree import Home, assistant, ids_of, talk, texts_of, tool_call, user
from tests.test_live_writing import Watched, live, names_in, stored_ids, values

Call = Callable[[SessionManager], Any]

NO_ID = {"type": "message", "timestamp": "2026-01-01T00:00:01.000Z", "message": assistant("no id")}


@pytest.fixture(params=["file", "database", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    return Home(request.param, tmp_path, open_store)


@pytest.fixture
def files(tmp_path: Path, open_store: OpenStore) -> Home:
    return Home("file", tmp_path, open_store)


def place_of(manager: SessionManager) -> Path:
    place = manager.get_session_file()
    assert place is not None
    return Path(place)


def of_agent(tmp_path: Path, cwd: str = "/w/a", **more: Any) -> SessionManager:
    """A written session in the folder of an agent."""
    manager = SessionManager.create(cwd, agent_dir=tmp_path / "agent", **more)
    talk(manager, "u", "a")
    return manager


def listed(tmp_path: Path, cwd: str) -> list[str]:
    return [row.id for row in SessionManager.list(cwd, agent_dir=tmp_path / "agent")]


def image(content: bytes) -> dict[str, Any]:
    return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(content * 3000).decode()}


def images_of(manager: SessionManager) -> list[Any]:
    return [block for e in manager.get_entries() for block in e["message"]["content"] if block["type"] == "image"]


# --- arguments


OPENINGS: dict[str, Callable[..., SessionManager]] = {
    "create": lambda **how: SessionManager.create("/w", **how),
    "open": lambda **how: SessionManager.open("/w/s.jsonl", **how),
    "continue_recent": lambda **how: SessionManager.continue_recent("/w", **how),
    "fork_from": lambda **how: SessionManager.fork_from("/w/s.jsonl", "/w", **how),
    "in_memory": lambda **how: SessionManager.in_memory("/w", **how),
}


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_an_argument_that_nobody_knows_is_named(tmp_path: Path, opening: Callable[..., SessionManager]) -> None:
    with pytest.raises(TypeError, match="sesion_dir"):
        opening(sesion_dir=tmp_path)


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_custom_message_without_type_and_content_is_refused(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    ids = talk(manager, "u", "a")
    with pytest.raises(TypeError, match="custom_type"):
        manager.append_custom_message_entry()
    assert ids_of(manager.get_entries()) == ids


def test_a_summary_that_is_no_json_leaves_the_leaf(home: Home) -> None:
    manager = home.create()
    first, last = talk(manager, "u", "a")
    with pytest.raises(TypeError):
        manager.branch_with_summary(first, object())  # type: ignore[arg-type]  # what is tested
    assert (manager.get_leaf_id(), ids_of(manager.get_entries())) == (last, [first, last])
    new = manager.append_message(user())
    assert ids_of(manager.get_branch()) == [first, last, new]


def test_a_relative_agent_folder_is_that_of_the_process_s_folder_when_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    manager = SessionManager.create("/w", agent_dir="agent")
    monkeypatch.chdir("elsewhere")
    talk(manager, "u", "a")
    assert place_of(manager).is_relative_to(tmp_path / "agent" / "sessions")
    assert place_of(manager).is_file()
    assert names_in(tmp_path / "elsewhere") == []


def test_a_tilde_in_a_path_is_the_home_folder() -> None:
    home = Path(os.environ["HOME"])
    in_folder = SessionManager.create("/w", session_dir="~/here")
    of_an_agent = SessionManager.create("/w", agent_dir="~/agent")
    assert place_of(in_folder).parent == home / "here"
    assert place_of(of_an_agent).is_relative_to(home / "agent" / "sessions")
    assert place_of(SessionManager.open("~/none.jsonl")) == home / "none.jsonl"
    in_folder.set_session_file("~/other.jsonl")
    assert place_of(in_folder) == home / "other.jsonl"


@pytest.mark.parametrize("make", [FileSessionStorage, MemorySessionStorage])
def test_a_line_may_come_with_its_newline_and_with_no_other(tmp_path: Path, make: Callable[[], SessionStorage]) -> None:
    storage = make()
    writer = storage.open_writer(tmp_path / "s.jsonl")
    writer.write_line("a")
    writer.write_line("b\n")
    with pytest.raises(ValueError, match="newline"):
        writer.write_line("c\nd")
    writer.close()
    assert storage.read_text(tmp_path / "s.jsonl") == "a\nb\n"


def test_an_export_over_a_file_that_is_there_must_be_forced(files: Home, tmp_path: Path) -> None:
    manager = files.create()
    talk(manager, "u", "a")
    target = write(tmp_path / "x.jsonl", b"mine\n")
    with pytest.raises(ExportExistsError):
        manager.export_to_jsonl(target)
    assert target.read_bytes() == b"mine\n"
    manager.export_to_jsonl(target, force=True)
    assert len(values(target.read_bytes())) == 3


@pytest.mark.parametrize(
    "name",
    [
        "AmbiguousSessionError", "EntryNotFoundError", "NotSupportedError", "SessionDBError", "SessionDBWarning",
        "SessionNotFoundError", "SessionStorage", "SessionWriteConflictError", "SessionWriteError",
    ],
)  # fmt: skip
def test_what_a_caller_must_catch_or_write_is_exported(name: str) -> None:
    assert name in sessiondb.__all__
    home = sessiondb.storage if name == "SessionStorage" else sessiondb.errors
    assert getattr(sessiondb, name) is getattr(home, name)


# --- forks, and other sessions in a manager


def test_a_session_is_forked_by_its_row_in_the_list(tmp_path: Path, open_store: OpenStore) -> None:
    rows = Home("database", tmp_path, open_store)
    manager = rows.create()
    talk(manager, "u", "a")
    (info,) = rows.store.sessions()
    fork = SessionManager.fork_from(info, "/z", store=rows.store)
    assert list(fork.get_entries()) == list(manager.get_entries())
    assert (fork.get_header()["parentSession"], fork.get_cwd()) == (info.id, "/z")


def test_a_folder_cannot_be_forked(files: Home, tmp_path: Path) -> None:
    with pytest.raises(ForkSourceError):
        SessionManager.fork_from(tmp_path, "/z", **files.options)
    assert names_in(files.folder) == []


def test_in_memory_a_session_file_is_read_and_never_written(files: Home) -> None:
    ref = files.put(header(), entry(1, None, "u"))
    before = Path(ref).read_bytes()
    manager = SessionManager.in_memory("/x")
    manager.set_session_file(ref)
    assert (manager.is_persisted(), manager.get_session_file()) == (False, None)
    manager.append_message(assistant("a"))
    manager.rewrite_entries()
    assert texts_of(manager.build_session_context()) == ["u", "a"]
    assert Path(ref).read_bytes() == before
    assert names_in(files.folder) == [Path(ref).name]


def test_in_memory_a_session_file_that_is_missing_is_not_made(tmp_path: Path) -> None:
    manager = SessionManager.in_memory("/x")
    manager.set_session_file(tmp_path / "s.jsonl")
    talk(manager, "u", "a")
    manager.ensure_on_disk()
    assert (manager.is_persisted(), manager.get_session_file()) == (False, None)
    assert names_in(tmp_path) == []


def test_after_a_file_without_marks_a_manager_s_new_session_is_still_in_its_own_dialect(files: Home) -> None:
    ref = files.put(header(), entry(1), entry(2, 1, role="assistant"))
    manager = files.create(dialect=None)
    assert manager.get_dialect() == "xcsh"
    manager.set_session_file(ref)
    assert manager.get_dialect() == "xcsh"
    manager.new_session()
    assert manager.get_dialect() == "xcsh"


REOPENINGS: dict[str, Callable[[SessionManager, dict[str, Any]], SessionManager]] = {
    "by its path": lambda m, how: SessionManager.open(place_of(m), **how),
    "by its id": lambda m, how: SessionManager.open(m.get_session_id(), **how),
    "as the last one": lambda m, how: SessionManager.continue_recent("/w/a", **how),
}


@pytest.mark.parametrize("given", ["argument", "environment"])
@pytest.mark.parametrize("reopen", REOPENINGS.values(), ids=REOPENINGS)
def test_an_xcsh_session_without_marks_under_an_agent_folder_reopens_as_one_of_xcsh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, reopen: Callable[..., SessionManager]
) -> None:
    manager = of_agent(tmp_path)
    manager.close()
    monkeypatch.chdir(tmp_path)
    if given == "environment":
        monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    again = reopen(manager, {"agent_dir": tmp_path / "agent"} if given == "argument" else {})
    assert (again.get_session_id(), again.get_dialect()) == (manager.get_session_id(), "xcsh")


SWITCHES: dict[str, Call] = {
    "fork": lambda m: m.fork(),
    "create_branched_session": lambda m: m.create_branched_session(),
    "new_session": lambda m: m.new_session(),
    "set_session_file": lambda m: m.set_session_file(place_of(m).with_name("other.jsonl")),
}


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_switch_to_another_session_first_syncs_what_was_appended_to_the_old_one(files: Home, switch: Call) -> None:
    manager, watched, place = live(files)
    manager.append_message(user())
    watched.calls.clear()
    switch(manager)
    assert place_of(manager) != place
    assert ("fsync", str(place)) in watched.calls


@pytest.mark.parametrize("name", ["fork", "create_branched_session"])
def test_a_switch_for_which_there_is_no_space_leaves_the_manager_where_it_was(files: Home, name: str) -> None:
    manager, watched, place = live(files)
    ids = ids_of(manager.get_entries())
    watched.failing = {"write_line"}
    with pytest.raises(SessionWriteError):
        SWITCHES[name](manager)
    assert (place_of(manager), manager.is_on_disk(), names_in(files.folder)) == (place, True, [place.name])
    watched.failing = set()
    new = manager.append_message(user())
    assert stored_ids(files, manager) == [*ids, new]


# --- moves


def test_a_move_to_its_own_cwd_changes_nothing(tmp_path: Path) -> None:
    manager = of_agent(tmp_path)
    place, before = place_of(manager), place_of(manager).read_bytes()
    manager.move_to("/w/a")
    assert (place_of(manager), place.read_bytes()) == (place, before)


def test_a_move_to_a_cwd_whose_folder_has_the_same_name_changes_the_header_in_place(tmp_path: Path) -> None:
    manager = of_agent(tmp_path, "/w/a")
    place = place_of(manager)
    manager.move_to("/w-a")
    assert (place_of(manager), names_in(place.parent)) == (place, [place.name])
    assert values(place.read_bytes())[0]["cwd"] == manager.get_cwd() == "/w-a"
    assert len(values(place.read_bytes())) == 3


def test_a_session_whose_file_was_removed_is_moved_from_memory(tmp_path: Path) -> None:
    manager = of_agent(tmp_path)
    place_of(manager).unlink()
    manager.move_to("/w/b")
    assert values(place_of(manager).read_bytes())[0]["cwd"] == "/w/b"
    assert (listed(tmp_path, "/w/a"), listed(tmp_path, "/w/b")) == ([], [manager.get_session_id()])


@pytest.mark.parametrize("failing", ["open_writer", "write_line", "fsync", "rename"])
def test_a_move_that_fails_leaves_the_session_listed_where_it_was(tmp_path: Path, failing: str) -> None:
    watched = Watched()
    manager = of_agent(tmp_path, storage=watched)
    place, before = place_of(manager), place_of(manager).read_bytes()
    watched.failing = {failing}
    with pytest.raises(SessionWriteError):
        manager.move_to("/w/b")
    assert (place_of(manager), manager.get_cwd(), manager.get_header()["cwd"]) == (place, "/w/a", "/w/a")
    assert place.read_bytes() == before
    assert (listed(tmp_path, "/w/a"), listed(tmp_path, "/w/b")) == ([manager.get_session_id()], [])
    again = SessionManager.continue_recent("/w/a", agent_dir=tmp_path / "agent")
    assert texts_of(again.build_session_context()) == ["u", "a"]


# --- files that others made, changed or spoiled


def test_a_header_whose_cwd_has_half_a_surrogate_pair_hides_no_other_session(tmp_path: Path) -> None:
    manager = of_agent(tmp_path)
    agent: dict[str, Any] = {"agent_dir": tmp_path / "agent"}
    odd = header("odd", cwd=f"{tmp_path}/HALF").replace(b"HALF", b"\\ud800")  # in a folder that is there
    folder = place_of(manager).parent
    odd_file = write(folder / "x_odd.jsonl", odd, entry(1, role="assistant"))
    os.utime(odd_file, (2e9, 2e9))
    ours = manager.get_session_id()
    assert listed(tmp_path, "/w/a") == [ours]
    assert {row.id for row in SessionManager.list_all(**agent)} == {ours, "odd"}
    assert SessionManager.continue_recent("/w/a", **agent).get_session_id() == ours
    assert SessionManager.open(ours[:8], cwd="/w/a", **agent).get_session_id() == ours
    assert {Path(row.path).name for row in get_recent_sessions(folder)} == {odd_file.name, place_of(manager).name}
    assert find_most_recent_session(folder) == str(odd_file)


def test_a_file_that_was_emptied_is_written_whole_again(files: Home) -> None:
    manager = files.create()
    ids = talk(manager, "u", "a")
    place_of(manager).write_bytes(b"")
    new = manager.append_message(user())
    assert values(files.stored(manager))[0] == manager.get_header()
    assert stored_ids(files, manager) == [*ids, new]


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "shortened": lambda raw: raw[: raw.index(b"\n") + 1],
    "another session, longer": lambda raw: header("other") + entry(1, None, "x" * len(raw)),
    "no session, longer": lambda raw: b"not a session\n" * len(raw),
    "no session, shorter": lambda raw: b"not a session\n",
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_nothing_is_appended_to_a_shortened_or_foreign_file_nor_shown(
    files: Home, spoil: Callable[[bytes], bytes]
) -> None:
    manager = files.create()
    ids = talk(manager, "u", "a")
    spoiled = spoil(files.stored(manager))
    place_of(manager).write_bytes(spoiled)
    for _ in range(2):
        with pytest.raises(SessionWriteConflictError):
            manager.append_message(user())
        assert (manager.get_leaf_id(), ids_of(manager.get_entries())) == (ids[-1], ids)
    assert files.stored(manager) == spoiled


def test_of_two_managers_of_a_file_without_ids_the_second_is_refused_and_shows_no_more_than_is_there(
    files: Home,
) -> None:
    ref = files.put(header(), dump(NO_ID))
    first, second = files.open(ref, dialect="xcsh"), files.open(ref, dialect="xcsh")
    first.append_message(user())
    written = files.stored(first)
    for _ in range(2):
        with pytest.raises(SessionWriteConflictError):
            second.append_message(user())
        assert (len(second.get_entries()), second.get_leaf_entry()) == (1, second.get_entries()[0])
    assert files.stored(first) == written


def test_a_version_1_file_that_cannot_be_written_is_read_all_the_same(files: Home) -> None:
    old = {"type": "session", "id": "s-1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    ref = files.put(dump(old), dump({**NO_ID, "message": user("u")}), dump(NO_ID))
    before, watched = Path(ref).read_bytes(), Watched()
    watched.failing = {"open_writer", "write_text"}
    manager = files.open(ref, dialect="xcsh", storage=watched)
    assert texts_of(manager.build_session_context()) == ["u", "no id"]
    assert Path(ref).read_bytes() == before
    with pytest.raises(SessionWriteError):
        manager.append_message(user())


def test_omp_names_a_session_whose_file_begins_with_a_byte_order_mark(files: Home) -> None:
    ref = files.put(b"\xef\xbb\xbf" + header(), entry(1, None, "a", role="assistant"))
    manager = files.open(ref, dialect="omp")
    manager.set_session_name("name", "user")
    assert b"\xef\xbb\xbf" not in files.stored(manager)
    slot, head, *entries = values(files.stored(manager))
    assert (slot["type"], slot["title"], head["id"]) == ("title", "name", "s-1")
    again = files.open(ref)
    assert (again.get_session_name(), len(again.get_entries()), len(entries)) == ("name", 2, 2)


def test_after_a_failed_append_a_session_is_not_on_disk(files: Home) -> None:
    manager, watched, _ = live(files)
    assert manager.is_on_disk()
    watched.failing = {"write_line"}
    with pytest.raises(SessionWriteError):
        manager.append_message(user())
    assert not manager.is_on_disk()


# --- images, labels, tool calls


def test_an_image_that_cannot_be_written_is_the_session_s_first_error(tmp_path: Path) -> None:
    write(tmp_path / "agent" / "blobs", b"a file where the folder should be")
    manager = of_agent(tmp_path)
    with pytest.raises(SessionWriteError) as raised:
        manager.append_message(assistant() | {"content": [image(b"x")]})
    calls: list[Call] = [lambda m: m.append_message(user()), lambda m: m.flush(), lambda m: m.set_session_name("x")]
    for call in calls:
        with pytest.raises(SessionWriteError) as again:
            call(manager)
        assert again.value is raised.value


def test_a_folder_named_blobs_that_is_no_agent_s_gets_no_images(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    manager = SessionManager.create("/w", session_dir=tmp_path / "project" / "sessions")
    manager.append_message(assistant() | {"content": [image(b"x")]})
    manager.close()
    again = SessionManager.open(place_of(manager), dialect="xcsh")
    again.append_message(assistant() | {"content": [image(b"y")]})
    assert images_of(again) == [image(b"x"), image(b"y")]
    assert names_in(tmp_path / "blobs") == []
    assert len(names_in(Path(os.environ["HOME"]) / ".xcsh" / "agent" / "blobs")) == 2


def test_a_storage_in_memory_keeps_the_images_too(tmp_path: Path) -> None:
    storage = MemorySessionStorage()
    manager = SessionManager.create("/w", session_dir=tmp_path / "sessions", storage=storage)
    manager.append_message(assistant() | {"content": [image(b"x")]})
    manager.close()
    assert "blob:sha256:" in storage.read_text(place_of(manager))
    again = SessionManager.open(place_of(manager), dialect="xcsh", storage=storage)
    assert images_of(again) == [image(b"x")]
    assert (names_in(tmp_path), names_in(Path(os.environ["HOME"]))) == ([], [])


def test_a_label_that_is_rewritten_is_the_one_that_is_shown(home: Home) -> None:
    manager = home.create()
    first, _ = talk(manager, "u", "a")
    made = manager.get_entry(manager.append_label_change(first, "old"))
    assert (made is not None, manager.get_label(first)) == (True, "old")
    manager.rewrite_entries([{**(made or {}), "label": "new"}])
    assert (manager.get_label(first), manager.get_tree()[0]["label"]) == ("new", "new")


def test_the_arguments_of_a_tool_call_may_be_nested_deeply(home: Home) -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    manager = home.create()
    made = manager.append_message(assistant() | {"content": [tool_call("c1", x=deep)]})
    assert manager.rewrite_tool_call_arguments("c1", {"x": 1})
    rewritten = manager.get_entry(made)
    assert rewritten is not None
    assert rewritten["message"]["content"] == [tool_call("c1", x=1)]
    assert home.name == "memory" or json.loads(home.stored(manager).splitlines()[1]) == rewritten
