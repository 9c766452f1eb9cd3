"""One session from another: branched out, forked, moved, exported; and how a session is found again."""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiondb import SessionManager, Store
from sessiondb.errors import (
    AmbiguousSessionError,
    EntryNotFoundError,
    ExportExistsError,
    ForkSourceError,
    NotSupportedError,
    SessionDBError,
    SessionNotFoundError,
)
from tests.support import CASE_23, GOLDEN, OpenStore, dump, entry, exported, header, tables, write
from tests.test_live_tree import SEEDS, Counted, Home, Model, assistant, ids_of, one_step, talk, texts_of, user

DIALECTS = ("xcsh", "pi", "omp")


@pytest.fixture(params=["file", "database", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    return Home(request.param, tmp_path, open_store)


@pytest.fixture(params=["file", "database"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    return Home(request.param, tmp_path, open_store)


@pytest.fixture
def files(tmp_path: Path, open_store: OpenStore) -> Home:
    return Home("file", tmp_path, open_store)


@pytest.fixture
def rows(tmp_path: Path, open_store: OpenStore) -> Home:
    return Home("database", tmp_path, open_store)


def stored_values(home: Home, manager: SessionManager) -> list[Any]:
    """The header and the entries as they are stored; omp's title slot aside."""
    return [v for v in map(json.loads, home.stored(manager).splitlines()) if v["type"] != "title"]


def of_ref(home: Home, ref: str) -> bytes:
    return exported(home.store, ref) if home.in_database else Path(ref).read_bytes()


def place(manager: SessionManager) -> str:
    found = manager.get_session_file()
    assert found is not None
    return found


def row_of(store: Store, session_id: str) -> dict[str, Any]:
    (row,) = store.sql("SELECT * FROM sessions WHERE id = ?", [session_id])
    return row


def chain(entries: Any) -> list[tuple[Any, Any]]:
    return [(e["id"], e["parentId"]) for e in entries]


# --- branching out


@pytest.mark.parametrize("dialect", DIALECTS)
def test_branching_out_takes_the_path_into_a_session_of_its_own(home: Home, dialect: str) -> None:
    manager = home.create("/w", dialect=dialect)
    ids = talk(manager, "u", "a", "u2", "a2")
    manager.branch(ids[1])
    other = manager.append_message(user("other"))
    old_id, old_place = manager.get_session_id(), manager.get_session_file()
    old = home.stored(manager) if old_place is not None else b""
    where = manager.create_branched_session(ids[2])
    assert manager.get_session_id() != old_id
    assert ids_of(manager.get_entries()) == ids[:3]
    assert manager.get_leaf_id() == ids[2]
    assert manager.get_entry(other) is None
    assert manager.get_header()["cwd"] == "/w"
    new = manager.append_message(assistant("on"))
    assert ids_of(manager.get_branch()) == [*ids[:3], new]
    if old_place is None:
        assert where is None
        assert "parentSession" not in manager.get_header()
        return
    assert where == manager.get_session_file() != old_place
    assert manager.get_header()["parentSession"] == old_place
    assert stored_values(home, manager) == [manager.get_header(), *manager.get_entries()]
    assert of_ref(home, old_place) == old


def test_branching_out_without_an_argument_takes_the_path_to_the_leaf(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a", "u2", "a2")
    manager.branch(ids[1])
    manager.create_branched_session()
    assert ids_of(manager.get_entries()) == ids[:2]


def test_branching_out_of_an_empty_path_is_an_error_and_changes_nothing(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a")
    manager.reset_leaf()
    before = manager.get_session_id()
    with pytest.raises(EntryNotFoundError, match=r"^Entry undefined not found$"):
        manager.create_branched_session()
    assert (manager.get_session_id(), ids_of(manager.get_entries())) == (before, ids)


@pytest.mark.parametrize(("dialect", "at_once"), [("pi", False), ("xcsh", True), ("omp", True)])
def test_a_branch_without_an_answer_is_written_at_once_but_by_pi(kept: Home, dialect: str, at_once: bool) -> None:
    manager = kept.create(dialect=dialect)
    first, _ = talk(manager, "u", "a")
    manager.create_branched_session(first)
    manager.flush()
    assert (kept.stored(manager) != b"") is at_once
    assert manager.is_on_disk() is at_once
    answer = manager.append_message(assistant())
    assert ids_of(stored_values(kept, manager)[1:]) == [first, answer]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_hung_on_a_label_hangs_on_the_entry_before_it(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    first, second = talk(manager, "u", "a")
    one = manager.append_label_change(first, "one")
    manager.append_label_change(one, "label of a label")
    third = manager.append_message(user("u2"))
    manager.create_branched_session()
    *path, label = manager.get_entries()
    assert chain(path) == [(first, None), (second, first), (third, second)]
    assert (label["type"], label["targetId"], label["label"], label["parentId"]) == ("label", first, "one", third)
    assert manager.get_label(first) == "one"
    assert texts_of(manager.build_session_context()) == ["u", "a", "u2"]
    assert manager.get_leaf_id() == label["id"]
    if home.name != "memory":
        assert texts_of(home.reopen(manager).build_session_context()) == ["u", "a", "u2"]


def test_labels_are_set_again_in_the_order_of_their_first_setting(home: Home) -> None:
    manager = home.create()
    first, second, third, off = talk(manager, "u", "a", "u2", "a2")
    manager.append_label_change(first, "first")
    manager.append_label_change(second, "second")
    manager.append_label_change(third, "third")
    manager.append_label_change(off, "not on the path")
    manager.append_label_change(second, "second again")
    manager.append_label_change(first, None)
    manager.append_label_change(first, "first again")
    manager.create_branched_session(third)
    labels = [(e["targetId"], e["label"]) for e in manager.get_entries() if e["type"] == "label"]
    assert labels == [(second, "second again"), (third, "third"), (first, "first again")]
    ids = ids_of(manager.get_entries())
    assert ids[:3] == [first, second, third]
    assert [e["parentId"] for e in manager.get_entries()] == [None, *ids[:-1]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("dialect", "second"), [("pi", "01"), ("xcsh", "09")])
def test_a_label_set_again_keeps_its_time_in_pi(home: Home, dialect: str, second: str) -> None:
    counted = Counted()
    manager = home.create(dialect=dialect, **counted.options)
    first, last = talk(manager, "u", "a")
    counted.tick()
    manager.append_label_change(first, "mark")
    counted.tick(8000)
    manager.create_branched_session(last)
    assert manager.get_entries()[-1]["timestamp"] == f"2026-01-01T00:00:{second}.000Z"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_first_kept_entry_that_was_a_label_becomes_the_entry_behind_it(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    first, second = talk(manager, "u", "a")
    label = manager.append_label_change(first, "mark")
    third, fourth = talk(manager, "u2", "a2")
    compaction = manager.append_compaction("sum", label, 10)
    manager.create_branched_session(compaction)
    made = manager.get_entry(compaction)
    assert made is not None
    assert made["firstKeptEntryId"] == third
    assert chain(manager.get_entries())[:5] == [
        (first, None), (second, first), (third, second), (fourth, third), (compaction, fourth),
    ]  # fmt: skip
    assert texts_of(manager.build_session_context()) == ["sum", "u2", "a2"]


def test_branching_out_leaves_the_old_session_s_entries_alone(kept: Home) -> None:
    manager = kept.create()
    first, _ = talk(manager, "u", "a")
    manager.append_label_change(first, "mark")
    talk(manager, "u2")
    before, old = list(manager.get_entries()), place(manager)
    manager.create_branched_session()
    assert list(kept.open(old, dialect="xcsh").get_entries()) == before


def test_what_was_not_written_yet_can_be_branched_out_of(home: Home) -> None:
    manager = home.create()
    first = manager.append_message(user("one"))
    manager.append_message(user("two"))
    manager.create_branched_session(first)
    answer = manager.append_message(assistant())
    assert ids_of(manager.get_branch()) == [first, answer]
    if home.name != "memory":
        assert ids_of(stored_values(home, manager)[1:]) == [first, answer]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_branch_has_the_context_of_the_path_it_was_taken_from(home: Home, dialect: str, seed: int) -> None:
    rng, counted, model = random.Random(seed), Counted(), Model()
    manager = home.create(dialect=dialect, **counted.options)
    for made in talk(manager, "u", "a"):
        model.add(made)
    for _ in range(60):
        counted.tick()
        one_step(rng, manager, model)
    leaf = rng.choice(list(model.parents)[20:])
    manager.branch(leaf)
    context, path = manager.build_session_context(), list(manager.get_branch())
    labels = {i: manager.get_label(i) for i in ids_of(path)}
    manager.create_branched_session(leaf)
    stay = [e["id"] for e in path if e["type"] != "label"]
    entries = list(manager.get_entries())
    assert ids_of(entries)[: len(stay)] == stay
    assert all(e["type"] == "label" for e in entries[len(stay) :])
    assert [e["parentId"] for e in entries] == [None, *ids_of(entries)[:-1]]
    assert {i: manager.get_label(i) for i in stay} == {i: labels[i] for i in stay}
    assert manager.build_session_context() == context
    if home.name != "memory" and any("assistant" in str(e) for e in entries):
        assert home.reopen(manager).build_session_context() == context


# --- forking


def test_a_fork_has_the_same_entries_and_names_its_parent(home: Home) -> None:
    manager = home.create()
    talk(manager, "u", "a")
    manager.set_session_name("mine", "user")
    before, old_id, old = list(manager.get_entries()), manager.get_session_id(), manager.get_session_file()
    where = manager.fork()
    assert list(manager.get_entries()) == before
    if old is None:
        assert where is None
        return
    assert manager.get_session_id() != old_id
    assert where == manager.get_session_file() != old
    head = manager.get_header()
    assert (head["parentSession"], head["title"]) == (old_id, "mine")
    keys = ["type", "version", "id", "title", "titleSource", "timestamp", "cwd", "parentSession"]
    assert list(head) == keys
    assert stored_values(home, manager) == [head, *before]
    new = manager.append_message(user("only in the fork"))
    assert new in ids_of(home.reopen(manager).get_entries())
    assert list(home.open(old, dialect="xcsh").get_entries()) == before


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_session_is_forked_from_a_file_into_either_home(kept: Home, tmp_path: Path, dialect: str) -> None:
    raw = header("old", title="T") + entry(1) + entry(2, 1, "a", role="assistant")
    source = write(tmp_path / "source.jsonl", raw)
    manager = SessionManager.fork_from(source, "/new", dialect=dialect, **kept.options)
    assert ids_of(manager.get_entries()) == ["00000001", "00000002"]
    head = manager.get_header()
    assert head["id"] not in ("old", "")
    assert (head["cwd"], head["version"]) == ("/new", 3)
    assert head["parentSession"] == (str(source) if dialect == "pi" and not kept.in_database else "old")
    assert head.get("title") == (None if dialect == "pi" else "T")
    assert stored_values(kept, manager) == [head, *manager.get_entries()]
    assert source.read_bytes() == raw
    new = manager.append_message(user())
    assert ids_of(kept.reopen(manager).get_branch()) == ["00000001", "00000002", new]


@pytest.mark.parametrize("known", [False, True], ids=["from its file", "from its import"])
def test_a_fork_keeps_the_images_of_a_session_of_another_agent_s_folder(
    kept: Home, tmp_path: Path, known: bool
) -> None:
    picture = base64.b64encode(bytes(1500)).decode()
    message = {"role": "user", "content": [{"type": "image", "data": picture, "mimeType": "image/png"}]}
    source = SessionManager.create("/srv/x", agent_dir=tmp_path / "another")
    new = source.append_message(message)
    source.append_message(assistant())
    source.close()
    if known and kept.in_database:
        kept.store.import_paths([place(source)])
    forked = SessionManager.fork_from(place(source), "/new", dialect="xcsh", **kept.options)
    assert forked.get_entry(new)["message"] == message  # type: ignore[index]  # it is one of the source's
    again = kept.reopen(forked)
    assert again.get_entry(new)["message"] == message  # type: ignore[index]  # it is one of the source's


def test_a_session_is_forked_within_the_database(rows: Home) -> None:
    first = rows.create("/old")
    talk(first, "u", "a")
    before = exported(rows.store, first.get_session_id())
    manager = SessionManager.fork_from(first.get_session_id(), "/new", store=rows.store)
    assert list(manager.get_entries()) == list(first.get_entries())
    assert manager.get_header()["parentSession"] == first.get_session_id()
    assert manager.get_session_id() != first.get_session_id()
    assert exported(rows.store, first.get_session_id()) == before
    assert {s.cwd for s in rows.store.sessions()} == {"/old", "/new"}
    parent = row_of(rows.store, manager.get_session_id())["parent_pk"]
    assert parent == row_of(rows.store, first.get_session_id())["pk"]


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_fork_of_an_older_session_is_migrated(kept: Home, tmp_path: Path, dialect: str) -> None:
    raw = (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes()
    source = write(tmp_path / "v1.jsonl", raw)
    manager = SessionManager.fork_from(source, "/new", dialect=dialect, **kept.options)
    expected = [json.loads(line) for line in CASE_23.splitlines()]
    renamed = {old["id"]: new["id"] for old, new in zip(expected, manager.get_entries(), strict=True)}
    for key in ("id", "parentId", "firstKeptEntryId"):
        for made in (e for e in expected if e.get(key) is not None):
            made[key] = renamed[made[key]]
    assert list(manager.get_entries()) == expected
    assert texts_of(manager.build_session_context()) == ["S", "1", "hook"]
    assert source.read_bytes() == raw


BAD_SOURCES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "text": b"these are notes\n",
    "no header": entry(1),
    "header without id": b'{"type":"session","version":3}\n' + entry(1),
}


@pytest.mark.parametrize("raw", BAD_SOURCES.values(), ids=BAD_SOURCES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bad_source_is_an_error_before_anything_is_written(
    kept: Home, tmp_path: Path, dialect: str, raw: bytes | None
) -> None:
    source = tmp_path / "source.jsonl"
    if raw is not None:
        source.write_bytes(raw)
    before = tables(kept.store) if kept.in_database else {}
    with pytest.raises(
        ForkSourceError, match=r"^Cannot fork: source session file is empty or invalid: .*source\.jsonl$"
    ):
        SessionManager.fork_from(source, "/new", dialect=dialect, **kept.options)
    assert not list(kept.folder.glob("**/*")) if kept.folder.exists() else True
    assert (source.read_bytes() if source.exists() else None) == raw
    if kept.in_database:
        assert tables(kept.store) == before


def test_a_reference_that_nothing_answers_to_cannot_be_forked(rows: Home) -> None:
    before = tables(rows.store)
    with pytest.raises(ForkSourceError):
        SessionManager.fork_from("nobody", "/new", store=rows.store)
    assert tables(rows.store) == before


# --- lineage


def test_the_view_of_sessions_tells_the_parent_of_every_branch_and_fork(rows: Home) -> None:
    manager = rows.create()
    talk(manager, "u", "a")
    made = [manager.get_session_id()]
    for go_on in (manager.create_branched_session, manager.fork):
        go_on()
        made.append(manager.get_session_id())
    manager.new_session(parent_session=made[0])
    talk(manager, "u", "a")
    made.append(manager.get_session_id())
    first, branched, forked, new = [row_of(rows.store, i) for i in made]
    assert first["parent_pk"] is None
    assert (branched["parent_session"], branched["parent_pk"]) == (made[0], first["pk"])
    assert (forked["parent_session"], forked["parent_pk"]) == (made[1], branched["pk"])
    assert (new["parent_session"], new["parent_pk"]) == (made[0], first["pk"])
    assert rows.store.session(made[1]).parent_pk == first["pk"]


def test_a_parent_named_by_its_path_is_resolved_and_an_unknown_one_is_none(rows: Home) -> None:
    parent = rows.put(header("old"), entry(1), name="2026-01-01T00-00-00-000Z_old.jsonl")
    rows.put(header("child", parentSession=parent), entry(1), name="2026-01-01T00-00-00-000Z_child.jsonl")
    rows.put(header("orphan", parentSession="/gone.jsonl"), entry(1), name="2026-01-01T00-00-00-000Z_orphan.jsonl")
    assert row_of(rows.store, "child")["parent_pk"] == row_of(rows.store, "old")["pk"]
    assert row_of(rows.store, "orphan")["parent_pk"] is None


def test_a_fork_of_a_file_the_database_does_not_hold_names_a_parent_that_is_not_there(
    rows: Home, tmp_path: Path
) -> None:
    source = write(tmp_path / "source.jsonl", header("old"), entry(1), entry(2, 1, role="assistant"))
    manager = SessionManager.fork_from(source, "/new", store=rows.store)
    row = row_of(rows.store, manager.get_session_id())
    assert (row["parent_session"], row["parent_pk"]) == ("old", None)
    rows.store.import_paths([source])
    assert row_of(rows.store, manager.get_session_id())["parent_pk"] == row_of(rows.store, "old")["pk"]


# --- moving


def test_a_moved_session_lies_in_the_folder_of_its_new_cwd_with_its_artifacts(tmp_path: Path) -> None:
    old_cwd, new_cwd = tmp_path / "old", tmp_path / "new"
    old_cwd.mkdir()
    new_cwd.mkdir()
    manager = SessionManager.create(old_cwd, agent_dir=tmp_path / "agent")
    ids = talk(manager, "u", "a")
    before = Path(place(manager))
    write(before.with_suffix("") / "artifact.txt", b"kept")
    manager.move_to(new_cwd)
    after = Path(place(manager))
    assert after.name == before.name
    assert after.parent.name == "--" + str(new_cwd).strip("/").replace("/", "-") + "--"
    assert not before.exists()
    assert not before.with_suffix("").exists()
    assert (after.with_suffix("") / "artifact.txt").read_bytes() == b"kept"
    assert (manager.get_cwd(), manager.get_header()["cwd"]) == (str(new_cwd), str(new_cwd))
    head, *entries = [json.loads(line) for line in after.read_bytes().splitlines()]
    assert (head["cwd"], ids_of(entries)) == (str(new_cwd), ids)
    manager.append_message(user("on"))
    assert len(after.read_bytes().splitlines()) == 4
    assert not before.exists()


def test_moving_onto_a_file_that_is_there_destroys_neither(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    manager = SessionManager.create(tmp_path, agent_dir=tmp_path / "agent")
    talk(manager, "u", "a")
    before = Path(place(manager))
    folder = "--" + str(tmp_path / "new").strip("/").replace("/", "-") + "--"
    other = write(before.parent.parent / folder / before.name, header("other"), entry(1))
    content = other.read_bytes()
    with pytest.raises((SessionDBError, OSError)):
        manager.move_to(tmp_path / "new")
    assert other.read_bytes() == content
    assert len(before.read_bytes().splitlines()) == 3


def test_a_session_in_the_database_is_moved_by_its_header(rows: Home) -> None:
    manager = rows.create("/old")
    ids = talk(manager, "u", "a")
    manager.move_to("/new")
    assert manager.get_cwd() == "/new"
    assert [s.id for s in rows.store.sessions(cwd="/new")] == [manager.get_session_id()]
    assert rows.store.sessions(cwd="/old") == []
    assert stored_values(rows, manager)[0]["cwd"] == "/new"
    assert ids_of(rows.reopen(manager).get_entries()) == ids


# --- exporting the branch


def test_the_branch_is_exported_as_one_line_of_entries(home: Home, tmp_path: Path) -> None:
    manager = home.create("/w", dialect="pi")
    first, second, off = talk(manager, "u", "a", "off the path")
    manager.branch(second)
    label = manager.append_label_change(first, "mark")
    last = manager.append_message(user("u2"))
    before = home.stored(manager) if home.name != "memory" else b""
    out = tmp_path / "out" / "branch.jsonl"
    assert manager.export_to_jsonl(out) == str(out)
    head, *entries = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert (head["id"], head["cwd"], "parentSession" in head) == (manager.get_session_id(), "/w", False)
    assert chain(entries) == [(first, None), (second, first), (label, second), (last, label)]
    assert off not in ids_of(entries)
    if home.name != "memory":
        assert home.stored(manager) == before


def test_an_export_never_overwrites_unless_told_to(home: Home, tmp_path: Path) -> None:
    manager = home.create(dialect="pi")
    talk(manager, "u", "a")
    out = write(tmp_path / "mine.jsonl", b"precious")
    with pytest.raises(ExportExistsError):
        manager.export_to_jsonl(out)
    assert out.read_bytes() == b"precious"
    manager.export_to_jsonl(out, force=True)
    assert len(out.read_bytes().splitlines()) == 3


def test_an_export_without_a_name_goes_into_the_process_s_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    manager = home.create(dialect="pi", clock=Counted().clock)
    talk(manager, "u", "a")
    out = Path(manager.export_to_jsonl())
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["session-2026-01-01T00-00-00-000Z.jsonl"]
    assert out.resolve() == (tmp_path / "here" / out.name).resolve()
    assert out.stat().st_mode & 0o777 == 0o600


# --- another session in the same manager


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_new_session_begins_empty_in_the_same_place(home: Home, dialect: str) -> None:
    manager = home.create("/w", dialect=dialect)
    talk(manager, "u", "a")
    old_id, old = manager.get_session_id(), manager.get_session_file()
    before = of_ref(home, old) if old is not None else b""
    where = manager.new_session(parent_session="whoever", session_id="mine")
    assert (manager.get_session_id(), manager.get_leaf_id(), list(manager.get_entries())) == ("mine", None, [])
    assert where == manager.get_session_file()
    assert manager.get_cwd() == "/w"
    assert not manager.is_on_disk()
    manager.append_message(user())
    assert old_id != "mine"
    assert manager.get_header()["parentSession"] == "whoever"
    if old is None:
        return
    assert home.stored(manager) == b""
    manager.append_message(assistant())
    assert [v["id"] for v in stored_values(home, manager)] == ["mine", *ids_of(manager.get_entries())]
    assert of_ref(home, old) == before


def test_a_live_manager_goes_on_with_another_session(kept: Home) -> None:
    other = kept.put(header("other", cwd="/other"), entry(1), entry(2, 1, "a", role="assistant"))
    manager = kept.create("/w")
    talk(manager, "u", "a")
    first = place(manager)
    before = of_ref(kept, first)
    manager.set_session_file(other)
    assert manager.get_session_id() == "other"
    assert manager.get_leaf_id() == "00000002"
    new = manager.append_message(user("next"))
    assert ids_of(stored_values(kept, manager)[1:]) == ["00000001", "00000002", new]
    assert of_ref(kept, first) == before
    manager.set_session_file(first)
    assert of_ref(kept, place(manager)) == before
    assert texts_of(manager.build_session_context()) == ["u", "a"]


def test_a_live_manager_given_an_unknown_reference_stays_where_it_was(rows: Home) -> None:
    manager = rows.create()
    ids = talk(manager, "u", "a")
    with pytest.raises(SessionNotFoundError, match="nope"):
        manager.set_session_file("nope")
    new = manager.append_message(user("on"))
    assert ids_of(manager.get_branch()) == [*ids, new]


# --- finding a session again


def two_sessions(home: Home) -> list[str]:
    names = ["2026-01-01T00-00-00-000Z_abc1.jsonl", "2026-02-01T00-00-00-000Z_abc2.jsonl"]
    times = ["2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"]
    refs = []
    for name, at in zip(names, times, strict=True):
        lines = [
            header(name[-10:-6], timestamp=at),
            entry(1, timestamp=at),
            entry(2, 1, role="assistant", timestamp=at),
        ]
        refs.append(home.put(*lines, name=name))
    return refs


@pytest.mark.parametrize("dialect", [None, "xcsh", "pi"])
def test_a_session_is_opened_by_the_start_of_its_id(kept: Home, dialect: str | None) -> None:
    two_sessions(kept)
    assert kept.open("abc2", dialect=dialect).get_session_id() == "abc2"
    write(kept.folder / "2026-03-01T00-00-00-000Z_xyz.jsonl", header("xyz"), entry(1))
    if kept.in_database:
        kept.store.import_paths([kept.folder])
    assert kept.open("xy", dialect=dialect).get_session_id() == "xyz"


def test_a_session_file_is_opened_by_the_start_of_its_name(files: Home) -> None:
    two_sessions(files)
    assert files.open("2026-02-01", dialect="xcsh").get_session_id() == "abc2"


@pytest.mark.parametrize("dialect", [None, "xcsh", "pi"])
def test_a_reference_that_fits_two_sessions_lists_both(kept: Home, dialect: str | None) -> None:
    two_sessions(kept)
    with pytest.raises(AmbiguousSessionError) as raised:
        kept.open("abc", dialect=dialect)
    assert len(raised.value.candidates) == 2
    for session_id in ("abc1", "abc2"):
        assert session_id in str(raised.value)


def test_a_reference_that_fits_nothing_is_not_found_and_makes_nothing(kept: Home) -> None:
    two_sessions(kept)
    before = sorted(kept.folder.iterdir())
    with pytest.raises(SessionNotFoundError, match="qqq"):
        kept.open("qqq")
    assert sorted(kept.folder.iterdir()) == before


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_continuing_takes_the_session_used_last(kept: Home, dialect: str) -> None:
    refs = two_sessions(kept)
    os.utime(refs[0], (2_000_000_000, 2_000_000_000))
    manager = SessionManager.continue_recent("/w", dialect=dialect, **kept.options)
    assert manager.get_session_id() == ("abc2" if kept.in_database else "abc1")
    assert manager.get_cwd() == "/w"
    new = manager.append_message(user("on"))
    assert ids_of(manager.get_branch()) == ["00000001", "00000002", new]


def test_a_working_directory_whose_name_is_no_utf_8_is_kept_and_found(kept: Home) -> None:
    cwd = os.fsdecode(b"/w\xff")
    manager = kept.create(cwd)
    talk(manager, "u", "a")
    again = kept.reopen(manager)
    assert (again.get_cwd(), again.get_header()["cwd"]) == (cwd, cwd)
    again.close()
    found = SessionManager.continue_recent(cwd, dialect="xcsh", **kept.options)
    assert found.get_session_id() == manager.get_session_id()


def test_continuing_where_nothing_was_begins_a_session(kept: Home) -> None:
    manager = SessionManager.continue_recent("/w", **kept.options)
    assert (list(manager.get_entries()), manager.get_cwd()) == ([], "/w")
    assert kept.stored(manager) == b""


def test_the_database_continues_only_sessions_of_the_cwd(rows: Home) -> None:
    rows.put(header("theirs", cwd="/a-b"), entry(1), entry(2, 1, role="assistant"))
    manager = SessionManager.continue_recent("/a/b", store=rows.store)
    assert list(manager.get_entries()) == []


def test_files_of_a_cwd_whose_folder_name_collides_are_not_continued(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    theirs = SessionManager.create("/srv-a/b", agent_dir=agent)
    talk(theirs, "u", "a")
    theirs.close()
    manager = SessionManager.continue_recent("/srv/a-b", agent_dir=agent)
    assert Path(place(manager)).parent == Path(place(theirs)).parent
    assert manager.get_session_id() != theirs.get_session_id()
    assert list(manager.get_entries()) == []


def test_a_terminal_goes_on_with_the_session_it_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITTY_WINDOW_ID", "7")
    agent = tmp_path / "agent"
    made = []
    for _ in range(2):
        manager = SessionManager.create("/srv/x", agent_dir=agent)
        talk(manager, "u", "a")
        manager.close()
        made.append(manager)
    os.utime(place(made[1]), (2_000_000_000, 2_000_000_000))
    SessionManager.open(place(made[0]), agent_dir=agent, dialect="xcsh").close()
    again = SessionManager.continue_recent("/srv/x", agent_dir=agent)
    assert again.get_session_id() == made[0].get_session_id()


def test_sessions_are_listed_by_their_working_directory(kept: Home) -> None:
    for cwd in ("/a", "/b"):
        manager = kept.create(cwd)
        talk(manager, f"in {cwd}", "yes")
        manager.close()
    if kept.in_database:
        assert [s.cwd for s in SessionManager.list("/a", store=kept.store)] == ["/a"]
        assert {s.cwd for s in SessionManager.list_all(store=kept.store)} == {"/a", "/b"}
    else:
        listed = SessionManager.list("/a", session_dir=kept.folder)
        assert {s.first_message for s in listed} == {"in /a", "in /b"}


def test_sessions_of_the_agent_s_folder_are_listed_by_their_header_s_cwd(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    for cwd in ("/srv-a/b", "/srv/a-b"):
        manager = SessionManager.create(cwd, agent_dir=agent)
        talk(manager, f"in {cwd}", "yes")
        manager.close()
    assert [s.first_message for s in SessionManager.list("/srv/a-b", agent_dir=agent)] == ["in /srv/a-b"]
    every = SessionManager.list_all(agent_dir=agent)
    assert sorted(s.first_message for s in every) == ["in /srv-a/b", "in /srv/a-b"]


OMP_LATER: dict[str, Callable[[SessionManager], object]] = {
    "move_to": lambda m: m.move_to("/other"),
    "rewrite_entries": lambda m: m.rewrite_entries(),
    "rewrite_tool_call_arguments": lambda m: m.rewrite_tool_call_arguments("c1", {}),
}


@pytest.mark.parametrize(("name", "call"), OMP_LATER.items(), ids=OMP_LATER)
def test_omp_s_full_rewrites_are_refused_by_name(
    kept: Home, name: str, call: Callable[[SessionManager], object]
) -> None:
    manager = kept.create(dialect="omp")
    content = [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"x": 1}}]
    manager.append_message({**assistant(), "content": content})
    before = kept.stored(manager)
    with pytest.raises(NotSupportedError, match=name):
        call(manager)
    assert kept.stored(manager) == before


def test_a_branch_out_of_an_imported_session_leaves_its_bytes(rows: Home) -> None:
    label = {"type": "label", "id": "l", "parentId": "00000002", "timestamp": "2026-01-01T00:00:09.000Z"}
    last = dump({**label, "targetId": "00000001", "label": "x"})
    raw = (
        header("old") + b"\n" + entry(1) + b"{broken\n" + entry(2, 1, role="assistant") + last + entry(3, None).strip()
    )
    ref = rows.put(raw, name="2026-01-01T00-00-00-000Z_old.jsonl")
    manager = rows.open(ref, dialect="xcsh")
    manager.create_branched_session("l")
    assert ids_of(manager.get_entries())[:2] == ["00000001", "00000002"]
    assert manager.get_label("00000001") == "x"
    assert exported(rows.store, "old") == raw
    assert b"{broken" not in rows.stored(manager)
