"""Faults that a live session in the database once had, each with the smallest steps that showed it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from sessiondb import SessionManager, Store, build_session_context
from sessiondb.errors import DatabaseBusyError, DatabaseUnavailableError, EntryNotFoundError
from sessiondb.jsonl import encode_title_slot
from tests.support import OpenStore, dump, entry, exported, header, write
from tests.test_live_tree import Home, assistant, ids_of, talk, texts_of, tool_call, user
from tests.test_stored_tree import long_session, settings, steps_of

Call = Callable[[SessionManager], Any]

NO_ID = {"type": "message", "timestamp": "2026-01-01T00:00:09.000Z", "message": user("no id")}


@pytest.fixture(params=["file", "database", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    return Home(request.param, tmp_path, open_store)


@pytest.fixture
def rows(tmp_path: Path, open_store: OpenStore) -> Home:
    return Home("database", tmp_path, open_store)


@pytest.fixture
def impatient(tmp_path: Path, open_store: OpenStore) -> Home:
    """A database that does not wait long for others."""
    return Home("database", tmp_path, partial(open_store, timeout=0.1))


@contextmanager
def locked(store: Store, how: str = "IMMEDIATE") -> Iterator[None]:
    """Another program holds the database meanwhile."""
    other = apsw.Connection(str(store.database))
    other.execute(f"BEGIN {how}")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def second(rows: Home, manager: SessionManager, **more: Any) -> SessionManager:
    """Another manager of the same session."""
    return rows.open(manager.get_session_file(), **more)


def lines_of(rows: Home, manager: SessionManager) -> list[Any]:
    return [json.loads(line) for line in rows.stored(manager).splitlines()]


# --- names and rewrites


def test_an_omp_rename_keeps_branch_and_context_when_the_last_entry_has_no_id(rows: Home) -> None:
    ref = rows.put(header(), entry(1, None, "a", role="assistant"), dump(NO_ID), dialect="omp")
    manager = rows.open(ref)
    before, context = list(manager.get_branch()), manager.build_session_context()
    assert texts_of(context) == ["a", "no id"]
    assert manager.set_session_name("name", "user")
    assert list(manager.get_branch())[:-1] == before
    assert manager.build_session_context() == context


def test_two_tool_calls_of_an_entry_that_was_cut_for_the_disk_are_both_rewritten(rows: Home) -> None:
    manager = rows.create()
    text = {"type": "text", "text": "x" * 600_000}
    made = manager.append_message(assistant() | {"content": [text, tool_call("c1", x=1), tool_call("c2", x=1)]})
    assert manager.rewrite_tool_call_arguments("c1", {"x": 2})
    assert manager.rewrite_tool_call_arguments("c2", {"x": 3})
    seen = manager.get_entry(made)
    assert seen is not None
    assert seen["message"]["content"] == [text, tool_call("c1", x=2), tool_call("c2", x=3)]
    (stored,) = rows.store.entries(manager.get_session_id())
    assert stored["message"]["content"][1:] == [tool_call("c1", x=2), tool_call("c2", x=3)]


def test_a_name_given_before_the_gate_does_not_come_back_over_a_later_one(rows: Home) -> None:
    manager = rows.create()
    manager.set_session_name("first", "user")
    talk(manager, "u", "a")
    second(rows, manager).set_session_name("second", "user")
    manager.rewrite_entries()
    assert manager.get_session_name() == "second"
    assert lines_of(rows, manager)[0]["title"] == "second"


def test_an_entry_changed_before_the_gate_does_not_come_back_over_a_later_change(rows: Home) -> None:
    manager = rows.create()
    first = manager.append_message(user("as it was"))
    made = manager.get_entry(first)
    assert made is not None
    manager.rewrite_entries([{**made, "message": user("mine")}])
    manager.append_message(assistant())
    second(rows, manager).rewrite_entries([{**made, "message": user("theirs")}])
    manager.rewrite_entries()
    assert lines_of(rows, manager)[1]["message"] == user("theirs")


def test_omp_refuses_a_program_s_name_after_a_person_s_given_by_another_manager(rows: Home) -> None:
    manager = rows.create(dialect="omp")
    talk(manager, "u", "a")
    other = second(rows, manager)
    assert manager.set_session_name("one", "auto")
    assert other.set_session_name("two", "user")
    assert not manager.set_session_name("three", "auto")
    assert manager.get_session_name() == "two"
    assert rows.store.session(manager.get_session_id()).title == "two"


def test_an_omp_rename_behind_an_unterminated_last_line_keeps_the_imported_bytes(rows: Home) -> None:
    slot = encode_title_slot("old", "user", updated_at="2026-01-01T00:00:00.000Z")
    lines = [slot, header(), entry(1), entry(2, 1, role="assistant").rstrip(b"\n")]
    ref = rows.put(*lines)
    manager = rows.open(ref)
    assert manager.get_dialect() == "omp"
    manager.set_session_name("new", "user")
    assert exported(rows.store, ref, "original") == b"".join(lines)
    assert rows.store.session(ref).title == "new"


def test_a_renamed_live_session_that_is_exported_and_imported_again_is_known(rows: Home, tmp_path: Path) -> None:
    manager = rows.create()
    talk(manager, "u", "a")
    manager.set_session_name("name", "user")
    file = write(tmp_path / "again.jsonl", rows.stored(manager))
    report = rows.store.import_paths([file])
    assert (report.imported, report.known_elsewhere) == (0, 1)
    assert [s.id for s in rows.store.sessions()] == [manager.get_session_id()]


def test_a_change_of_an_unknown_entry_is_refused_and_later_renames_work(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a")
    with pytest.raises(EntryNotFoundError, match=r"^Entry nope not found$"):
        manager.rewrite_entries([{"type": "message", "id": "nope"}])
    assert manager.set_session_name("name", "user")
    assert manager.get_session_name() == "name"
    assert ids_of(manager.get_entries()) == ids


def test_a_rewrite_by_another_manager_that_keeps_all_lengths_is_seen(rows: Home) -> None:
    ids = iter(["s", "a1", "a2", "a3", "a4", "a5", "a6"])
    manager = rows.create(ids=lambda kind: next(ids))
    talk(manager, "u", "a", "u", "a")
    other = second(rows, manager)
    other.rewrite_entries([{**(other.get_entry("a4") or {}), "parentId": "a1"}])
    talk(manager, "u", "a")
    assert ids_of(manager.get_branch()) == ["a1", "a4", "a5", "a6"]


# --- a database that is busy, closed, or used by threads


def test_an_answer_that_could_not_open_the_gate_is_stored_once_when_it_is_tried_again(impatient: Home) -> None:
    manager = impatient.create()
    first = manager.append_message(user())
    with locked(impatient.store), pytest.raises(DatabaseBusyError):
        manager.append_message(assistant())
    answer = manager.append_message(assistant())
    assert ids_of(impatient.store.entries(manager.get_session_id())) == [first, answer]
    assert ids_of(manager.get_branch()) == [first, answer]


SWITCHES: dict[str, tuple[str, Call]] = {
    "create_branched_session": ("xcsh", lambda m: m.create_branched_session()),
    "fork": ("xcsh", lambda m: m.fork()),
    "new_session, which omp writes at once": ("omp", lambda m: m.new_session()),
}


@pytest.mark.parametrize(("dialect", "switch"), SWITCHES.values(), ids=SWITCHES)
def test_a_switch_that_cannot_be_written_leaves_the_manager_on_its_session(
    impatient: Home, dialect: str, switch: Call
) -> None:
    manager = impatient.create(dialect=dialect)
    ids, session_id = talk(manager, "u", "a"), manager.get_session_id()
    with locked(impatient.store), pytest.raises(DatabaseBusyError):
        switch(manager)
    assert (manager.get_session_id(), manager.get_leaf_id(), manager.is_on_disk()) == (session_id, ids[-1], True)
    new = manager.append_message(user())
    assert ids_of(impatient.store.entries(session_id)) == [*ids, new]
    assert [s.id for s in impatient.store.sessions()] == [session_id]


def test_a_rename_that_failed_is_not_shown_and_not_written_later(impatient: Home) -> None:
    manager = impatient.create()
    talk(manager, "u", "a")
    with locked(impatient.store), pytest.raises(DatabaseBusyError):
        manager.set_session_name("name", "user")
    assert manager.get_session_name() is None
    manager.append_message(user())
    manager.rewrite_entries()
    assert impatient.store.session(manager.get_session_id()).title is None


def test_each_append_is_as_durable_as_its_own_manager_was_asked_to_be(impatient: Home) -> None:
    normal, full = 1, 2
    durable, quick = impatient.create(), impatient.create(durability="normal")
    talk(durable, "u", "a")
    talk(quick, "u", "a")
    for manager, level in ((durable, full), (quick, normal), (quick, normal), (durable, full)):
        manager.append_message(user())
        assert impatient.store.connection.pragma("synchronous") == level
    with locked(impatient.store), pytest.raises(DatabaseBusyError):
        quick.append_message(user())
    durable.append_message(user())
    assert impatient.store.connection.pragma("synchronous") == full


READS: list[Call] = [
    lambda m: m.get_entries(),
    lambda m: m.get_entry("x"),
    lambda m: m.get_label("x"),
    lambda m: m.get_branch(),
    lambda m: m.get_children(None),
    lambda m: m.get_header(),
    lambda m: m.get_session_name(),
    lambda m: m.get_usage_statistics(),
    lambda m: m.build_session_context(),
    lambda m: m.branch("x"),
    lambda m: m.append_message(user()),
]


def test_whatever_is_asked_beside_an_exclusive_lock_the_error_is_one_of_ours(
    tmp_path: Path, open_store: OpenStore
) -> None:
    rows = Home("database", tmp_path, partial(open_store, timeout=0.01))
    manager = rows.create()
    ids = talk(manager, "u", "a")
    rows.store.connection.pragma("journal_mode", "delete")  # with a log, readers would not wait for the writer
    with locked(rows.store, "EXCLUSIVE"):
        for read in READS:
            with pytest.raises(DatabaseBusyError):
                read(manager)
        with pytest.raises(DatabaseBusyError):
            rows.open(manager.get_session_file())
        with pytest.raises(DatabaseBusyError):
            rows.store.path(manager.get_session_id())
    assert ids_of(manager.get_branch()) == ids


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    manager = SessionManager.create("/w", store=store)
    talk(manager, "u", "a")
    store.close()
    with pytest.raises(DatabaseUnavailableError, match="was closed"):
        manager.get_entries()
    with pytest.raises(DatabaseUnavailableError, match="was closed"):
        manager.append_message(user())


def test_threads_that_ended_leave_no_connection_open(rows: Home) -> None:
    def connections() -> int:
        return sum(Path(db.filename) == rows.store.database for db in apsw.connections())

    rows.store.sessions()
    assert connections() == 1
    for _ in range(5):
        thread = threading.Thread(target=rows.store.sessions)
        thread.start()
        thread.join()
    assert connections() == 1


# --- what is stored


def test_a_move_behind_pi_s_closed_gate_is_written_with_the_answer(rows: Home) -> None:
    ref = rows.put(header(), entry(1), dialect="pi")
    manager = rows.open(ref)
    manager.move_to("/elsewhere")
    assert (manager.get_cwd(), rows.store.session(ref).cwd) == ("/elsewhere", "/w")
    manager.append_message(assistant())
    assert (manager.get_header()["cwd"], rows.store.session(ref).cwd) == ("/elsewhere", "/elsewhere")


def test_an_entry_nested_too_deep_to_be_read_again_is_refused_and_changes_nothing(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a")
    before = home.stored(manager) if home.name != "memory" else b""
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(TypeError, match="10,000"):
        manager.append_custom_entry("ext", deep)
    assert (manager.get_leaf_id(), ids_of(manager.get_entries())) == (ids[-1], ids)
    assert home.name == "memory" or home.stored(manager) == before
    assert ids_of(manager.get_branch(manager.append_message(user())))[:-1] == ids


def test_what_an_orphan_waited_for_is_its_parent_and_appends_below_go_on(rows: Home) -> None:
    orphan = dump({**json.loads(entry(2, role="assistant")), "id": "o", "parentId": "X"})
    ref = rows.put(header(), entry(1, role="assistant"), orphan)
    ids = iter(["u1", "u2", "X", "c1", "c2"])
    manager = rows.open(ref, ids=lambda kind: next(ids))
    talk(manager, "u", "a")
    manager.branch("00000001")
    talk(manager, "what was waited for")
    manager.branch("u1")
    talk(manager, "below", "again")
    assert ids_of(manager.get_branch()) == ["00000001", "X", "o", "u1", "c1", "c2"]


@pytest.mark.parametrize("home", ["file", "database"], indirect=True)
def test_a_compaction_written_with_the_entries_above_it_knows_their_settings(home: Home) -> None:
    ref = home.put(header(), entry(1), settings(2, 1, thinkingLevel="high"), dialect="pi")
    manager = home.open(ref, dialect="pi")
    kept = manager.append_message(user("held: pi waits for an answer"))
    manager.append_compaction("sum", kept, 1)
    manager.append_message(assistant())
    assert home.reopen(manager).build_session_context()["thinkingLevel"] == "high"


@pytest.mark.parametrize("names", ["label", "compaction"])
def test_who_names_an_entry_that_came_without_an_id_has_the_ids_written(rows: Home, names: str) -> None:
    ref = rows.put(header(), dump(NO_ID), entry(2, None, "a", role="assistant"), dialect="xcsh")
    manager = rows.open(ref)
    derived = manager.get_entries()[0]["id"]
    if names == "label":
        manager.append_label_change(derived, "mark")
    else:
        manager.append_compaction("sum", derived, 1)
    assert lines_of(rows, manager)[1]["id"] == derived
    assert manager.get_entries()[0]["id"] == derived


@pytest.mark.parametrize("version", ["2", 2.0, 2.5])
def test_a_version_below_three_in_any_notation_is_migrated_at_the_first_append(rows: Home, version: object) -> None:
    old = entry(1, role="hookMessage", text="x")
    ref = rows.put(header(version=version), old, entry(2, 1, role="assistant"))
    manager = rows.open(ref)
    assert manager.get_entries()[0]["message"]["role"] == "custom"
    manager.append_message(user())
    head, first, *_ = lines_of(rows, manager)
    assert (head["version"], first["message"]["role"]) == (3, "custom")


def test_a_parent_of_no_letters_is_no_parent_for_anybody(rows: Home) -> None:
    nameless = dump({**json.loads(entry(1, role="assistant")), "id": ""})
    below = dump({**json.loads(entry(2, None, "below", role="assistant")), "parentId": ""})
    ref = rows.put(header(), nameless, below)
    manager = rows.open(ref)
    assert ids_of(manager.get_branch()) == ["00000002"]
    assert texts_of(manager.build_session_context()) == ["below"]
    assert texts_of(rows.store.context(ref)) == ["below"]
    assert texts_of(build_session_context(manager.get_entries(), "00000002", dialect="xcsh")) == ["below"]


def test_a_dialect_given_on_opening_is_kept_also_when_it_was_taken_for_that(rows: Home) -> None:
    ref = rows.put(header(), entry(1), entry(2, 1, role="assistant"))
    assert rows.store.session(ref).dialect == "pi"
    manager = rows.open(ref, dialect="pi")
    manager.append_message({**user(), "attribution": "user"})  # a mark of xcsh
    info = rows.store.session(ref)
    assert (info.dialect, info.dialect_reason, rows.open(ref).get_dialect()) == ("pi", "given", "pi")


@pytest.mark.parametrize("head", [{}, {"id": 5}], ids=["no id", "a number"])
def test_a_session_whose_header_has_no_id_opens_under_that_of_its_file_s_name(rows: Home, head: Any) -> None:
    line = dump({"type": "session", "version": 3, "cwd": "/w", **head})
    rows.put(line, entry(1), entry(2, 1, role="assistant"), name="2026-01-01T00-00-00-000Z_named.jsonl")
    manager = rows.open("named", dialect="xcsh")
    assert (manager.get_session_id(), manager.get_session_file()) == ("named", "named")
    manager.append_message(user())
    manager.create_branched_session()
    assert manager.get_header()["parentSession"] == "named"


def test_an_entry_id_with_half_a_surrogate_pair_is_branched_to_and_appended_under(rows: Home) -> None:
    odd = dump({**json.loads(entry(1)), "id": "HALF"}).replace(b"HALF", b"\\ud800")
    ref = rows.put(header(), odd, entry(2, None, role="assistant"))
    manager = rows.open(ref)
    manager.branch("\ud800")
    new = manager.append_message(user())
    assert ids_of(manager.get_branch()) == ["\ud800", new]
    assert ids_of(rows.open(ref).get_branch()) == ["\ud800", new]


def test_a_session_id_with_half_a_surrogate_pair_is_stored(rows: Home) -> None:
    manager = rows.create()
    manager.new_session(session_id="\ud800")
    ids = talk(manager, "u", "a", "u2")
    assert manager.get_session_id() == "\ud800"
    (info,) = rows.store.sessions()
    assert ids_of(rows.open(info.id).get_branch()) == ids


# --- where the leaf was


def after_another_s_branch(rows: Home) -> tuple[SessionManager, str]:
    manager = rows.create()
    first, *_ = talk(manager, "u", "a", "u")
    second(rows, manager).branch(first)
    return manager, manager.append_message(user())


def after_model_usage(rows: Home) -> tuple[SessionManager, str]:
    manager = rows.create(dialect="omp")
    first, last = talk(manager, "u", "a")
    manager.append_model_usage({"model": "p/m"}, parent_id=first)
    return manager, last


def after_a_fork(rows: Home) -> tuple[SessionManager, str]:
    manager = rows.create()
    first, _ = talk(manager, "u", "a")
    manager.branch(first)
    manager.fork()
    return manager, first


@pytest.mark.parametrize("work", [after_another_s_branch, after_model_usage, after_a_fork])
def test_the_saved_leaf_is_where_the_session_was_used_last(
    rows: Home, work: Callable[[Home], tuple[SessionManager, str]]
) -> None:
    manager, leaf = work(rows)
    assert manager.get_leaf_id() == leaf
    assert second(rows, manager, leaf="saved").get_leaf_id() == leaf


def test_a_plain_value_at_the_end_is_no_other_branch(rows: Home) -> None:
    ref = rows.put(header(), entry(1), entry(2, 1, role="assistant", second=2), b"42\n")
    assert rows.store.later_branch(ref) is None
    assert rows.open(ref).get_leaf_id() == "00000002"


# --- what it costs


def chain(count: int, first: bytes) -> list[bytes]:
    return [header(), first, entry(2, None, role="assistant"), *(entry(n, n - 1) for n in range(3, count))]


COSTS: dict[str, tuple[Callable[[int], list[bytes]], Call]] = {
    "the first append": (lambda n: chain(n, settings(1, None)), lambda m: m.append_message(user())),
    "the context, when the first entry has no id": (
        lambda n: [header(), dump(NO_ID), entry(2, None, role="assistant"), *long_session(n)[3:]],
        lambda m: m.build_session_context(),
    ),
}


@pytest.mark.parametrize(("lines", "ask"), COSTS.values(), ids=COSTS)
def test_a_long_session_costs_no_more_than_a_short_one(
    rows: Home, lines: Callable[[int], list[bytes]], ask: Call
) -> None:
    costs = {}
    for count in (200, 5_000):
        ref = rows.put(*lines(count), name=f"{count}.jsonl", dialect="xcsh")
        manager = rows.open(ref)
        costs[count] = steps_of(rows.store.connection, partial(ask, manager))
    assert costs[5_000] <= costs[200] * 1.05
