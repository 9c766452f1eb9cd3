"""What a live session writes, and when: the gate, whole or nothing, durability, damage, and what is kept small."""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sessiondb import FileSessionStorage, SessionManager, Store, build_session_context
from sessiondb.errors import (
    DatabaseBusyError,
    NotSupportedError,
    SessionDBError,
    SessionDBWarning,
    SessionNotFoundError,
    SessionWriteConflictError,
    SessionWriteError,
    UnknownDialectError,
)
from sessiondb.jsonl import encode_entry
from sessiondb.storage import AnyPath, SessionStorageWriter, StorageStat
from tests.support import BUGCASES, CASE_23, GOLDEN, OpenStore, dump, entry, exported, header, sha, write
from tests.test_live_tree import SEEDS, Counted, Home, assistant, ids_of, talk, texts_of, tool_call, user

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


def values(raw: bytes) -> list[Any]:
    """The JSON value of every line; each must be whole."""
    assert raw == b"" or raw.endswith(b"\n")
    return [json.loads(line) for line in raw.split(b"\n")[:-1]]


def stored_ids(home: Home, manager: SessionManager) -> list[Any]:
    return [v["id"] for v in values(home.stored(manager)) if v["type"] not in ("session", "title")]


def names_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


class Watched:
    """The file system, watched: counts the calls, fails those it is told to, and looks at a file after each."""

    def __init__(self) -> None:
        self.disk = FileSessionStorage()
        self.calls: list[tuple[str, str]] = []
        self.failing: set[str] = set()
        self.look: Callable[[], object] = lambda: None

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    def did(self, name: str, path: AnyPath) -> None:
        self.calls.append((name, os.fspath(path)))
        if name in self.failing:
            raise OSError(errno.ENOSPC, "No space left on device", os.fspath(path))

    def ensure_dir(self, path: AnyPath, /) -> None:
        self.disk.ensure_dir(path)

    def exists(self, path: AnyPath, /) -> bool:
        return self.disk.exists(path)

    def stat(self, path: AnyPath, /) -> StorageStat:
        return self.disk.stat(path)

    def list_files(self, folder: AnyPath, /, pattern: str = "*.jsonl") -> list[str]:
        return self.disk.list_files(folder, pattern)

    def read_text(self, path: AnyPath, /) -> str:
        return self.disk.read_text(path)

    def read_text_prefix(self, path: AnyPath, /, max_bytes: int) -> str:
        return self.disk.read_text_prefix(path, max_bytes)

    def write_text(self, path: AnyPath, /, text: str) -> None:
        self.did("write_text", path)
        self.disk.write_text(path, text)
        self.look()

    def rename(self, old: AnyPath, new: AnyPath, /) -> None:
        self.did("rename", old)
        self.look()
        self.disk.rename(old, new)
        self.look()

    def unlink(self, path: AnyPath, /) -> None:
        self.did("unlink", path)
        self.disk.unlink(path)
        self.look()

    def open_writer(self, path: AnyPath, /, *, append: bool = True) -> SessionStorageWriter:
        self.did("open_writer", path)
        writer = self.disk.open_writer(path, append=append)
        self.look()
        return WatchedWriter(self, path, writer)


class WatchedWriter:
    def __init__(self, watched: Watched, path: AnyPath, writer: SessionStorageWriter) -> None:
        self.watched, self.path, self.writer = watched, path, writer
        self.error: Exception | None = None

    def attempt(self, name: str) -> None:
        if self.error is None:
            try:
                self.watched.did(name, self.path)
            except OSError as error:
                self.error = error
        if self.error is not None:
            raise self.error

    def write_line(self, line: str | bytes, /) -> None:
        self.attempt("write_line")
        self.writer.write_line(line)
        self.watched.look()

    def flush(self) -> None:
        self.attempt("flush")
        self.writer.flush()

    def fsync(self) -> None:
        self.attempt("fsync")
        self.writer.fsync()

    def close(self) -> None:
        self.writer.close()
        if self.error is not None:
            raise self.error

    def get_error(self) -> Exception | None:
        return self.error or self.writer.get_error()


def live(home: Home, **more: Any) -> tuple[SessionManager, Watched, Path]:
    """A session in a file that has been written once, and the storage it stands on."""
    watched = Watched()
    manager = home.create(storage=watched, **more)
    talk(manager, "u", "a")
    place = manager.get_session_file()
    assert place is not None
    return manager, watched, Path(place)


# --- the gate


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_entry_is_written_before_the_first_answer_and_then_all_are(kept: Home, dialect: str) -> None:
    manager = kept.create(dialect=dialect)
    waiting = [manager.append_message(user("one")), manager.append_model_change("p/m"), manager.append_message(user())]
    manager.flush()
    assert kept.stored(manager) == b""
    assert not manager.is_on_disk()
    if kept.in_database:
        assert kept.store.sessions() == []
        assert kept.store.sql("SELECT count(*) AS n FROM sessions")[0]["n"] == 0
    answer = manager.append_message(assistant())
    assert manager.is_on_disk()
    assert stored_ids(kept, manager) == [*waiting, answer]
    later = manager.append_message(user("later"))
    assert stored_ids(kept, manager) == [*waiting, answer, later]
    assert manager.is_on_disk()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_closing_before_the_first_answer_writes_nothing(kept: Home, dialect: str) -> None:
    manager = kept.create(dialect=dialect)
    manager.append_message(user())
    manager.close()
    assert kept.stored(manager) == b""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ensure_on_disk_opens_the_gate(kept: Home, dialect: str) -> None:
    manager = kept.create(dialect=dialect)
    first = manager.append_message(user())
    manager.ensure_on_disk()
    assert manager.is_on_disk()
    assert stored_ids(kept, manager) == [first]
    second = manager.append_message(user())
    assert stored_ids(kept, manager) == [first, second]
    assert ids_of(kept.reopen(manager).get_entries()) == [first, second]


def test_ensure_on_disk_of_a_session_without_entries_writes_its_header(kept: Home) -> None:
    manager = kept.create("/srv/x")
    manager.ensure_on_disk()
    (head,) = values(kept.stored(manager))
    assert head == manager.get_header()
    again = kept.reopen(manager)
    assert (again.get_session_id(), again.get_cwd()) == (manager.get_session_id(), "/srv/x")


def test_in_memory_nothing_is_ever_on_disk() -> None:
    manager = SessionManager.in_memory("/w")
    talk(manager, "u", "a")
    manager.ensure_on_disk()
    manager.flush()
    assert not manager.is_persisted()
    assert not manager.is_on_disk()
    assert (manager.get_session_file(), manager.get_session_dir()) == (None, "")
    manager.close()


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_opening_a_session_opens_the_gate(kept: Home, dialect: str) -> None:
    before = header() + entry(1)
    manager = kept.open(kept.put(before, dialect=dialect), dialect=dialect)
    assert manager.is_on_disk()
    assert kept.stored(manager) == before
    new = manager.append_message(user())
    assert stored_ids(kept, manager) == ["00000001", new]


def test_pi_waits_for_an_answer_also_in_a_session_that_was_opened_and_then_adds_only_what_is_new(kept: Home) -> None:
    before = header() + entry(1)
    manager = kept.open(kept.put(before, dialect="pi"), dialect="pi")
    waiting = manager.append_message(user("waits"))
    manager.flush()
    assert not manager.is_on_disk()
    assert kept.stored(manager) == before
    answer = manager.append_message(assistant())
    assert manager.is_on_disk()
    assert kept.stored(manager).startswith(before)
    assert stored_ids(kept, manager) == ["00000001", waiting, answer]
    assert kept.stored(manager).count(b'"type":"session"') == 1


def test_pi_writes_at_once_to_an_opened_session_that_has_an_answer(kept: Home) -> None:
    before = header() + entry(1) + entry(2, 1, role="assistant")
    manager = kept.open(kept.put(before, dialect="pi"), dialect="pi")
    assert manager.is_on_disk()
    new = manager.append_message(user())
    assert stored_ids(kept, manager) == ["00000001", "00000002", new]


def test_an_answer_on_another_branch_opens_the_gate_too(kept: Home) -> None:
    manager = kept.create(dialect="pi")
    manager.append_message(assistant())
    manager.reset_leaf()
    manager.append_message(user("elsewhere"))
    assert manager.is_on_disk()
    assert len(stored_ids(kept, manager)) == 2


def test_what_is_changed_before_the_gate_opens_is_written_when_it_does(kept: Home) -> None:
    manager = kept.create("/w")
    first = manager.append_message(user("one"))
    assert manager.set_session_name("early")
    manager.move_to("/early")
    manager.rewrite_entries([{**manager.get_entries()[0], "message": user("changed")}])
    manager.flush()
    assert kept.stored(manager) == b""
    assert names_in(kept.folder) == []
    answer = manager.append_message(assistant())
    head, *entries = values(kept.stored(manager))
    assert (head["title"], head["cwd"], ids_of(entries)) == ("early", "/early", [first, answer])
    assert entries[0]["message"] == user("changed")


# --- the bytes


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_session_is_written_as_the_client_writes_it(kept: Home, dialect: str) -> None:
    counted = Counted()
    manager = kept.create("/w", dialect=dialect, **counted.options)
    manager.append_message({"role": "user", "content": "\ud800 \u2028 \0 \U0001f600 /", "n": 1e21})
    counted.tick()
    manager.append_message({"role": "assistant", "content": [], "2": 1, "1": -0.0})
    session_id = manager.get_session_id()
    first, second = ids_of(manager.get_entries())
    expected = (
        f'{{"type":"session","version":3,"id":"{session_id}","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}}\n'
        f'{{"type":"message","id":"{first}","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",'
        '"message":{"role":"user","content":"\\ud800 \u2028 \\u0000 \U0001f600 /","n":1e+21}}\n'
        f'{{"type":"message","id":"{second}","parentId":"{first}","timestamp":"2026-01-01T00:00:01.000Z",'
        '"message":{"1":0,"2":1,"role":"assistant","content":[]}}\n'
    )
    assert kept.stored(manager) == expected.encode()
    read = kept.reopen(manager).get_entry(first)
    assert read is not None
    assert read["message"]["content"] == "\ud800 \u2028 \0 \U0001f600 /"


def test_the_file_is_named_by_time_and_id_and_is_its_owner_s_alone(files: Home) -> None:
    before = os.umask(0)
    try:
        manager = files.create(**Counted().options)
        assert names_in(files.folder) == []
        talk(manager, "u", "a")
    finally:
        os.umask(before)
    place = files.folder / f"2026-01-01T00-00-00-000Z_{manager.get_session_id()}.jsonl"
    assert manager.get_session_file() == str(place)
    assert names_in(files.folder) == [place.name]
    assert place.stat().st_mode & 0o777 == 0o600
    assert files.folder.stat().st_mode & 0o777 == 0o700


def test_the_database_gives_the_session_s_id_as_its_place(rows: Home) -> None:
    manager = rows.create()
    talk(manager, "u", "a")
    assert manager.get_session_file() == manager.get_session_id()
    assert rows.store.session(manager.get_session_id()).id == manager.get_session_id()


# --- whole or nothing, for every reader


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_write_of_a_file_shows_nobody_a_part_of_it(files: Home, dialect: str) -> None:
    watched, seen = Watched(), set[bytes]()
    manager = files.create(dialect=dialect, storage=watched)
    place = Path(str(manager.get_session_file()))
    watched.look = lambda: seen.add(place.read_bytes() if place.exists() else b"")
    for _ in range(20):
        manager.append_message(user())
    manager.append_message(assistant())
    assert len(watched.calls) > 2
    assert seen == {b"", place.read_bytes()}
    assert watched.count("fsync") >= 1
    assert names_in(files.folder) == [place.name]


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_rewrite_shows_the_old_file_or_the_new_one(files: Home, dialect: str) -> None:
    manager, watched, place = live(files, dialect=dialect)
    manager.append_message(assistant() | {"content": [tool_call("c1", x=1)]})
    before, seen = place.read_bytes(), set[bytes]()
    watched.look = lambda: seen.add(place.read_bytes())
    watched.calls.clear()
    assert manager.rewrite_tool_call_arguments("c1", {"x": 2})
    assert seen == {before, place.read_bytes()}
    temporary = [Path(path) for name, path in watched.calls if name == "rename"]
    assert [t.parent for t in temporary] == [place.parent]
    assert temporary[0].name.startswith(f".{place.name}.")
    assert temporary[0].name.endswith(".tmp")
    order = [name for name, _ in watched.calls]
    assert order.index("fsync") < order.index("rename")


@pytest.mark.parametrize(("count", "length"), [(3000, 500), (80, 480_000)], ids=["many", "long"])
def test_readers_of_the_database_see_a_new_session_whole_or_not_at_all(rows: Home, count: int, length: int) -> None:
    manager = rows.create()
    for n in range(count):
        manager.append_message(user(f"{n} " + "x" * length))
    seen, started, done = set[int](), threading.Event(), threading.Event()

    def watch() -> None:
        with Store.open(rows.store.database, read_only=True) as reader:
            while not done.is_set():
                seen.add(reader.sql("SELECT count(*) AS n FROM entries")[0]["n"])
                started.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert started.wait(30)
    manager.append_message(assistant())
    done.set()
    thread.join()
    assert seen <= {0, count + 1}
    assert rows.store.session(manager.get_session_id()).entry_count == count + 1


# --- appending to what somebody else left


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_append_never_joins_an_unterminated_line(kept: Home, dialect: str) -> None:
    before = (header() + entry(1) + entry(2, 1, role="assistant")).rstrip(b"\n")
    manager = kept.open(kept.put(before, dialect=dialect), dialect=dialect)
    assert manager.get_leaf_id() == "00000002"
    assert kept.stored(manager) == before
    new = manager.append_message(user("next"))
    assert kept.stored(manager).startswith(before + b"\n{")
    assert stored_ids(kept, manager) == ["00000001", "00000002", new]
    assert ids_of(kept.reopen(manager).get_branch()) == ["00000001", "00000002", new]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_append_never_joins_a_torn_line_and_the_torn_line_stays(kept: Home, dialect: str) -> None:
    whole = header() + entry(1) + entry(2, 1, role="assistant")
    torn = entry(3, 2, "lost half")[:60]
    manager = kept.open(kept.put(whole, torn, dialect=dialect), dialect=dialect)
    assert manager.get_leaf_id() == "00000002"
    new = manager.append_message(user("next"))
    assert kept.stored(manager).startswith(whole + torn + b"\n{")
    assert kept.stored(manager).count(b"\n") == 5
    assert ids_of(kept.reopen(manager).get_branch()) == ["00000001", "00000002", new]


ODD_LINES = {
    "malformed": [header(), entry(1), b'{"type":"mess\n', entry(2, 1, role="assistant")],
    "glued": [header(), entry(1).rstrip(b"\n") + entry(2, 1, role="assistant")],
    "plain-values": [header(), entry(1), b"42\n", entry(2, 1, role="assistant"), b"null\n"],
    "not-utf-8": [header(), entry(1, None, "cafX").replace(b"cafX", b"caf\xe9"), entry(2, 1, role="assistant")],
    "bom": [b"\xef\xbb\xbf" + header(), entry(1), entry(2, 1, role="assistant")],
    "blanks": [header(), b"\n", entry(1), b"  \n", entry(2, 1, role="assistant"), b"\n"],
    "crlf": [line.replace(b"\n", b"\r\n") for line in (header(), entry(1), entry(2, 1, role="assistant"))],
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("lines", ODD_LINES.values(), ids=ODD_LINES)
def test_an_append_leaves_every_byte_before_it(kept: Home, dialect: str, lines: list[bytes]) -> None:
    before = b"".join(lines)
    manager = kept.open(kept.put(before, dialect=dialect), dialect=dialect)
    new = manager.append_message(user("next"))
    after = kept.stored(manager)
    assert after.startswith(before)
    assert json.loads(after[len(before) :])["id"] == new
    assert ids_of(kept.reopen(manager).get_branch())[-2:] == ["00000002", new]


def test_both_entries_of_a_glued_line_and_the_one_behind_a_torn_one_count(kept: Home) -> None:
    glued = entry(1).rstrip(b"\n") + entry(2, 1, role="assistant")
    torn = entry(3, 2)[:50] + entry(4, 2)
    manager = kept.open(kept.put(header(), glued, torn))
    assert ids_of(manager.get_entries()) == ["00000001", "00000002", "00000004"]


def rewrite_by(dialect: str) -> Callable[[SessionManager], object]:
    if dialect == "xcsh":
        return lambda manager: manager.set_session_name("name")
    return lambda manager: manager.rewrite_entries()


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_rewrite_keeps_malformed_lines_in_their_places_and_drops_blank_ones(kept: Home, dialect: str) -> None:
    broken, tail = b'{"type":"mess\n', entry(3, 2)[:40]
    lines = [header(), entry(1), broken, b"\n", entry(2, 1, role="assistant"), b"  \n", b"42\n", tail]
    manager = kept.open(kept.put(*lines, dialect=dialect), dialect=dialect)
    rewrite_by(dialect)(manager)
    after = kept.stored(manager).split(b"\n")
    assert [*after[1:-1]] == [x.rstrip(b"\n") for x in (entry(1), broken, entry(2, 1, role="assistant"), b"42\n", tail)]
    assert json.loads(after[0])["id"] == "s-1"
    assert after[-1] == b""
    assert ids_of(kept.reopen(manager).get_entries()) == ["00000001", "00000002", 42]


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
@pytest.mark.parametrize("lines", ODD_LINES.values(), ids=ODD_LINES)
def test_a_rewrite_changes_no_entry_and_the_imported_bytes_stay(kept: Home, dialect: str, lines: list[bytes]) -> None:
    raw = b"".join(lines)
    ref = kept.put(raw, dialect=dialect)
    manager = kept.open(ref, dialect=dialect)
    before = list(manager.get_entries())
    rewrite_by(dialect)(manager)
    entries = list(kept.open(ref, dialect=dialect).get_entries())
    assert entries[: len(before)] == before
    if kept.in_database:
        assert exported(kept.store, ref, "original") == raw
        assert [v.state for v in kept.store.verify()] == ["equal"]


def test_a_rewrite_keeps_a_second_header(kept: Home) -> None:
    manager = kept.open(kept.put(header(), entry(1), header("other"), entry(2, 1), dialect="pi"), dialect="pi")
    manager.rewrite_entries()
    assert [v["id"] for v in values(kept.stored(manager))] == ["s-1", "00000001", "other", "00000002"]


def beside(place: Path) -> list[bytes]:
    """What was put beside a file as `<name>.invalid-<time>`."""
    return [p.read_bytes() for p in sorted(place.parent.iterdir()) if p.name.startswith(f"{place.name}.invalid-")]


def test_bytes_that_a_rewrite_cannot_keep_go_beside_the_file_first(files: Home) -> None:
    before = b"".join(ODD_LINES["not-utf-8"])
    place = Path(files.put(before))
    manager = files.open(str(place), dialect="xcsh")
    assert beside(place) == []
    manager.set_session_name("name")
    assert beside(place) == [before]
    assert "caf\ufffd".encode() in place.read_bytes()


INVALID = {
    "text": b"these are notes, not a session\n",
    "json": b'{"notes":true}\n',
    "binary": bytes(range(256)) * 8,
    "header-without-id": b'{"type":"session","version":3}\n' + entry(1),
    "bad-header": (BUGCASES / "bc06-bad-header.jsonl").read_bytes(),
}


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
@pytest.mark.parametrize("raw", INVALID.values(), ids=INVALID)
def test_an_invalid_file_goes_beside_and_a_fresh_session_takes_its_place(files: Home, dialect: str, raw: bytes) -> None:
    place = Path(files.put(raw, name="mine.jsonl"))
    manager = files.open(str(place), dialect=dialect)
    assert list(manager.get_entries()) == []
    assert [place.read_bytes(), *beside(place)].count(raw) == 1
    ids = talk(manager, "u", "a")
    assert beside(place) == [raw]
    assert manager.get_session_file() == str(place)
    assert stored_ids(files, manager) == ids


def test_what_stands_before_a_late_header_is_never_lost(files: Home) -> None:
    raw = (GOLDEN / "cases/11-header-not-first.jsonl").read_bytes()
    place = Path(files.put(raw, name="mine.jsonl"))
    with suppress(SessionDBError):
        talk(files.open(str(place)), "u", "a")
    assert raw in [place.read_bytes(), *beside(place)]


def test_an_empty_file_becomes_a_session_with_nothing_put_beside(files: Home) -> None:
    place = Path(files.put(b"", name="mine.jsonl"))
    manager = files.open(str(place))
    ids = talk(manager, "u", "a")
    assert stored_ids(files, manager) == ids
    assert names_in(files.folder) == ["mine.jsonl"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_missing_path_is_a_new_session_written_there_when_the_gate_opens(files: Home, dialect: str) -> None:
    place = files.folder / "deep" / "new.jsonl"
    manager = files.open(str(place), dialect=dialect)
    assert (manager.get_session_file(), manager.get_cwd()) == (str(place), os.getcwd())
    manager.append_message(user())
    manager.flush()
    assert not place.exists()
    manager.append_message(assistant())
    assert len(stored_ids(files, manager)) == 2


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_session_that_came_to_the_path_meanwhile_is_never_overwritten(files: Home, dialect: str) -> None:
    place = files.folder / "new.jsonl"
    manager = files.open(str(place), dialect=dialect)
    manager.append_message(user())
    write(place, header("theirs"), entry(1), entry(2, 1, role="assistant"))
    theirs = place.read_bytes()
    with pytest.raises(SessionWriteConflictError):
        manager.append_message(assistant())
    assert [place.read_bytes(), *beside(place)].count(theirs) == 1
    for call in (manager.flush, lambda: manager.append_message(user("next")), manager.close):
        with pytest.raises((SessionWriteConflictError, SessionWriteError)):
            call()
    assert place.read_bytes() == theirs


def test_a_folder_and_a_pipe_are_refused_and_left(files: Home) -> None:
    (files.folder / "d.jsonl").mkdir(parents=True)
    os.mkfifo(files.folder / "f.jsonl")
    for name in ("d.jsonl", "f.jsonl"):
        with pytest.raises(OSError, match="not a regular file"):
            files.open(str(files.folder / name))
    assert names_in(files.folder) == ["d.jsonl", "f.jsonl"]


def test_a_session_that_no_database_holds_is_not_found(rows: Home) -> None:
    with pytest.raises(SessionNotFoundError, match="nope"):
        rows.open("nope")


# --- older versions


V1 = (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes()


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_an_older_file_is_migrated_when_it_is_opened_whole_or_not_at_all(files: Home, dialect: str) -> None:
    place = Path(files.put(V1, name="v1.jsonl"))
    watched, seen = Watched(), set[bytes]()
    watched.look = lambda: seen.add(place.read_bytes())
    manager = files.open(str(place), dialect=dialect, storage=watched)
    after = place.read_bytes()
    assert seen == {V1, after}
    first, *entries = values(after)
    assert (first["version"], list(first)[-1]) == (3, "version")
    assert entries == list(manager.get_entries())
    like_the_client = values(CASE_23.encode())
    position = {e["id"]: n for n, e in enumerate(entries)}
    assert [list(e) for e in entries] == [list(e) for e in like_the_client]
    assert [position.get(e["parentId"]) for e in entries] == [None, 0, 1, 2]
    assert entries[2]["firstKeptEntryId"] == entries[1]["id"]
    assert entries[3]["message"]["role"] == "custom"
    assert names_in(files.folder) == ["v1.jsonl"]


def test_a_migration_that_cannot_be_written_leaves_the_file_as_it_was(files: Home) -> None:
    place = Path(files.put(V1, name="v1.jsonl"))
    watched = Watched()
    watched.failing = {"rename", "write_text"}
    with suppress(SessionDBError):
        files.open(str(place), storage=watched)
    assert place.read_bytes() == V1
    assert names_in(files.folder) == ["v1.jsonl"]


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_the_first_append_to_an_older_session_in_the_database_migrates_it(rows: Home, dialect: str) -> None:
    ref = rows.put(V1, name="v1.jsonl", dialect=dialect)
    current = exported(rows.store, ref, "current")
    manager = rows.open(ref, dialect=dialect)
    assert exported(rows.store, ref) == V1
    before = list(manager.get_entries())
    new = manager.append_message(user("next"))
    after = exported(rows.store, ref)
    assert after.startswith(current)
    assert json.loads(after[len(current) :])["id"] == new
    assert exported(rows.store, ref, "current") == after
    assert exported(rows.store, ref, "original") == V1
    again = rows.reopen(manager)
    assert list(again.get_entries())[:-1] == before
    assert again.get_leaf_id() == new


def test_an_opened_older_session_gives_the_same_context_in_both_homes(kept: Home) -> None:
    manager = kept.open(kept.put(V1, name="v1.jsonl", dialect="pi"), dialect="pi")
    assert texts_of(manager.build_session_context()) == ["S", "1", "hook"]
    manager.append_message(user("next"))
    assert texts_of(kept.reopen(manager).build_session_context()) == ["S", "1", "hook", "next"]


def test_entries_without_ids_under_a_new_header_get_them_with_the_first_append_that_needs_one(kept: Home) -> None:
    raw = (BUGCASES / "bc23-v1-entries-under-v3-header.jsonl").read_bytes()
    manager = kept.open(kept.put(raw))
    read = ids_of(manager.get_branch())
    assert len(read) == len(manager.get_entries()) > 1
    assert kept.stored(manager) == raw
    new = manager.append_message(user("next"))
    assert stored_ids(kept, manager) == [*read, new]
    assert ids_of(kept.reopen(manager).get_branch()) == [*read, new]


REWRITES: dict[str, Callable[[SessionManager], object]] = {
    "name": lambda m: m.set_session_name("another name", "user"),
    "move": lambda m: m.move_to("/elsewhere"),
    "arguments": lambda m: m.rewrite_tool_call_arguments("c1", {"x": 2}),
    "entries": lambda m: m.rewrite_entries([{**m.get_entries()[0], "timestamp": "2026-01-01T00:00:59.000Z"}]),
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_after_any_rewrite_the_imported_bytes_are_still_there(
    rows: Home, rewrite: Callable[[SessionManager], object]
) -> None:
    call = entry(2, 1, [tool_call("c1", x=1)], role="assistant")
    raw = header() + b"\n" + entry(1) + b'{"broken\n' + call
    ref = rows.put(raw, dialect="xcsh")
    manager = rows.open(ref, dialect="xcsh")
    rewrite(manager)
    assert exported(rows.store, ref) != raw
    assert exported(rows.store, ref, "original") == raw
    new = manager.append_message(user("next"))
    assert exported(rows.store, ref, "original") == raw
    assert exported(rows.store, ref).count(b'{"broken\n') == 1
    assert ids_of(rows.reopen(manager).get_entries()) == ["00000001", "00000002", new]


def test_a_file_whose_session_went_on_in_the_database_is_known_when_imported_again(rows: Home) -> None:
    ref = rows.put(header(), entry(1), entry(2, 1, role="assistant"))
    manager = rows.open(ref)
    new = manager.append_message(user("live"))
    report = rows.store.import_paths([ref])
    assert (report.unchanged, report.imported) == (1, 0)
    assert [s.entry_count for s in rows.store.sessions()] == [3]
    assert ids_of(rows.reopen(manager).get_branch())[-1] == new


# --- other writers


@pytest.mark.parametrize("dialect", ["xcsh", "pi"])
def test_a_rewrite_is_refused_when_somebody_else_wrote_and_appends_go_on(files: Home, dialect: str) -> None:
    manager, _, place = live(files, dialect=dialect)
    foreign = entry(99, None, "from another program")
    with place.open("ab") as file:
        file.write(foreign)
    both = place.read_bytes()
    with pytest.raises(SessionWriteConflictError, match="changed before rewrite") as raised:
        rewrite_by(dialect)(manager)
    assert raised.value.path == str(place)
    assert (raised.value.expected, raised.value.found) == (len(both) - len(foreign), len(both))
    assert place.read_bytes() == both
    new = manager.append_message(user("goes on"))
    assert place.read_bytes().startswith(both)
    again = files.reopen(manager)
    assert ids_of(again.get_entries())[-2:] == ["00000063", new]
    rewrite_by(dialect)(again)
    assert b"from another program" in place.read_bytes()


def test_what_waits_for_the_gate_comes_behind_what_somebody_else_wrote_meanwhile(files: Home) -> None:
    place = Path(files.put(header(), entry(1)))
    manager = files.open(str(place), dialect="pi")
    waiting = manager.append_message(user("waits"))
    with place.open("ab") as file:
        file.write(entry(9, 1, "from another program"))
    answer = manager.append_message(assistant())
    assert stored_ids(files, manager) == ["00000001", "00000009", waiting, answer]


STALE: dict[str, Callable[[SessionManager], object]] = {
    "move": lambda m: m.move_to("/elsewhere"),
    "entries": lambda m: m.rewrite_entries(),
    "arguments": lambda m: m.rewrite_tool_call_arguments("c1", {"x": 3}),
    "a program's name": lambda m: m.set_session_name("a program's"),
}


@pytest.mark.parametrize("rewrite", STALE.values(), ids=STALE)
def test_a_rewrite_never_undoes_what_another_manager_of_the_session_did(
    kept: Home, rewrite: Callable[[SessionManager], object]
) -> None:
    first = kept.create()
    first.append_message(user())
    first.append_message(assistant() | {"content": [tool_call("c1", x=1), tool_call("c2", x=1)]})
    second = kept.reopen(first)
    new = second.append_message(user("second's"))
    assert second.rewrite_tool_call_arguments("c2", {"x": 2})
    assert second.set_session_name("a person's", "user")
    with suppress(SessionWriteConflictError):
        rewrite(first)
    again = kept.reopen(second)
    assert again.get_session_name() == "a person's"
    assert again.get_entries()[1]["message"]["content"][1] == tool_call("c2", x=2)
    assert again.get_leaf_id() == new


def test_an_append_goes_into_the_file_that_is_there_also_when_it_was_replaced_by_one_as_long(kept: Home) -> None:
    first = kept.create(dialect="pi")
    ids = talk(first, "u", "a", "u2")
    second = kept.open(first.get_session_file(), dialect="pi")
    second.rewrite_entries()
    new = first.append_message(user("next"))
    first.flush()
    assert stored_ids(kept, second) == [*ids, new]


def test_a_change_that_leaves_the_file_as_long_is_not_undone_by_another_s_rewrite(kept: Home) -> None:
    first = kept.create()
    first.append_message(user())
    first.append_message(assistant() | {"content": [tool_call("c1", x=1), tool_call("c2", x=1)]})
    second = kept.open(first.get_session_file(), dialect="xcsh")
    assert second.rewrite_tool_call_arguments("c2", {"x": 2})
    with suppress(SessionWriteConflictError):
        first.rewrite_tool_call_arguments("c1", {"x": 3})
    assert kept.reopen(second).get_entries()[1]["message"]["content"][1] == tool_call("c2", x=2)


@pytest.mark.parametrize("value", ["/m", "/longer"], ids=["as long", "longer"])
@pytest.mark.parametrize("change", ["move_to", "set_session_name"])
def test_appends_of_another_manager_keep_what_a_rewrite_changed(rows: Home, change: str, value: str) -> None:
    first = rows.create("/w")
    talk(first, "u", "a")
    first.set_session_name("/n")
    second = rows.open(first.get_session_id())
    second.append_message(user("before"))
    getattr(first, change)(value)
    new = second.append_message(user("after"))
    head, *entries = values(rows.stored(first))
    assert entries[-1]["id"] == new
    assert value in (head["cwd"], head["title"])
    assert rows.store.check() == []
    listed = rows.store.session(head["id"])
    assert (listed.cwd, listed.title) == (head["cwd"], head["title"])


@pytest.mark.parametrize("seed", SEEDS)
def test_managers_that_take_turns_on_one_session_lose_nothing(kept: Home, seed: int) -> None:
    rng = random.Random(seed)
    first = kept.create(dialect="xcsh")
    made, ref = talk(first, "u", "a"), first.get_session_file()
    managers = [first, kept.open(ref, dialect="xcsh"), kept.open(ref, dialect="xcsh")]
    for step in range(60):
        turn = rng.randrange(3)
        manager, what = managers[turn], rng.randrange(10)
        try:
            if what == 0:
                manager.rewrite_entries()
            elif what == 1:
                manager.set_session_name(f"name {step % 10}", "user")
            elif what == 2 and kept.in_database:
                manager.move_to(f"/cwd{step}")
            elif what == 3:
                made.append(manager.append_label_change(made[0], "mark"))
            else:
                made.append(manager.append_message(rng.choice([user, assistant])(f"{step}")))
        except SessionWriteConflictError:
            managers[turn] = kept.reopen(manager)
    again = kept.open(ref, dialect="xcsh")
    assert ids_of(again.get_entries()) == made
    assert again.build_session_context() == build_session_context(again.get_entries(), dialect="xcsh")
    if kept.in_database:
        assert all(list(m.get_entries()) == list(again.get_entries()) for m in managers)
        assert kept.store.check() == []


def test_an_append_behind_a_foreign_unterminated_line_does_not_join_it(files: Home) -> None:
    manager, _, place = live(files)
    with place.open("ab") as file:
        file.write(b'{"type":"mess')
    new = manager.append_message(user("next"))
    assert place.read_bytes().split(b"\n")[-3] == b'{"type":"mess'
    assert files.reopen(manager).get_leaf_id() == new


def test_a_file_removed_while_in_use_is_written_again_whole(files: Home) -> None:
    manager, _, place = live(files)
    before = place.read_bytes()
    place.unlink()
    manager.append_message(user("next"))
    manager.flush()
    assert place.read_bytes().startswith(before)
    assert ids_of(manager.get_entries()) == stored_ids(files, manager)


def test_two_managers_of_one_session_lose_nothing(kept: Home) -> None:
    first = kept.create()
    talk(first, "u", "a")
    second = kept.open(first.get_session_file())
    made = []
    for n in range(10):
        made += [first.append_message(user(f"1 {n}")), second.append_message(user(f"2 {n}"))]
    first.close()
    second.close()
    again = kept.open(first.get_session_file())
    assert ids_of(again.get_entries())[2:] == made
    assert len(set(made)) == 20


def test_threads_append_to_one_stored_session_and_nothing_is_lost(rows: Home) -> None:
    manager = rows.create()
    talk(manager, "u", "a")
    made: dict[int, list[str]] = {}

    def work(number: int) -> None:
        mine = SessionManager.open(manager.get_session_id(), store=rows.store)
        made[number] = [mine.append_message(user(f"{number} {n}")) for n in range(15)]
        mine.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = rows.open(manager.get_session_id())
    stored = ids_of(again.get_entries())
    assert sorted(stored[2:]) == sorted(i for ids in made.values() for i in ids)
    for ids in made.values():
        assert [i for i in stored if i in ids] == ids
        assert ids_of(again.get_branch(ids[-1]))[-15:] == ids


# --- when writing fails


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def append_and_flush(manager: SessionManager, text: str) -> None:
    manager.append_message(user(text))
    manager.flush()


@pytest.mark.parametrize("failing", ["write_line", "fsync"])
def test_the_first_write_error_is_kept_logged_once_and_raised_by_each_call_that_would_write(
    files: Home, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    manager, watched, place = live(files)
    manager.flush()
    watched.failing = {failing}
    with pytest.raises(SessionWriteError, match="No space left") as raised:
        append_and_flush(manager, "does not fit")
    first = raised.value
    assert (first.errno, first.path) == (errno.ENOSPC, str(place))
    after = place.read_bytes()
    watched.failing = set()
    for call in (
        lambda: manager.append_message(assistant("next")),
        lambda: manager.append_custom_entry("x"),
        lambda: manager.set_session_name("n"),
        lambda: manager.rewrite_entries(),
        lambda: manager.flush(),
        lambda: manager.close(),
    ):
        with pytest.raises(SessionWriteError, match="No space left") as again:
            call()
        assert again.value.errno == errno.ENOSPC
    assert place.read_bytes() == after
    assert "does not fit" in str(manager.get_entries())
    assert len(log_lines(caplog)) == 1
    assert str(place) in log_lines(caplog)[0]


@pytest.mark.parametrize("failing", ["open_writer", "write_line", "fsync", "rename"])
def test_a_first_write_that_fails_leaves_no_part_of_the_session(files: Home, failing: str) -> None:
    watched = Watched()
    manager = files.create(storage=watched)
    manager.append_message(user())
    watched.failing = {failing, "write_text"}
    with pytest.raises(SessionWriteError):
        manager.append_message(assistant("does not fit"))
    assert names_in(files.folder) == []
    assert not manager.is_on_disk()
    assert "does not fit" in str(manager.get_entries())
    watched.failing = set()
    for call in (manager.flush, lambda: manager.append_message(user("next")), manager.ensure_on_disk, manager.close):
        with pytest.raises(SessionWriteError, match="No space left"):
            call()
    assert names_in(files.folder) == []


@pytest.mark.parametrize("failing", ["open_writer", "write_line", "fsync", "rename"])
def test_a_rewrite_that_fails_leaves_the_file_as_it_was(files: Home, failing: str) -> None:
    manager, watched, place = live(files)
    before = place.read_bytes()
    watched.failing = {failing, "write_text"}
    with pytest.raises(SessionWriteError):
        manager.set_session_name("name")
    assert place.read_bytes() == before
    assert names_in(files.folder) == [place.name]


def test_an_error_ends_with_the_session_it_befell(files: Home) -> None:
    manager, watched, _ = live(files)
    watched.failing = {"write_line"}
    with pytest.raises(SessionWriteError):
        manager.append_message(user())
    watched.failing = set()
    manager.new_session()
    ids = talk(manager, "u", "a")
    assert stored_ids(files, manager) == ids
    manager.close()


def test_an_append_the_database_refuses_changes_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db", timeout=0.1) as store, Store.open(tmp_path / "s.db") as other:
        manager = SessionManager.create("/w", store=store)
        ids = talk(manager, "u", "a")
        other.connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusyError):
            manager.append_message(user("refused"))
        assert (manager.get_leaf_id(), ids_of(manager.get_entries())) == (ids[-1], ids)
        other.connection.execute("ROLLBACK")
        new = manager.append_message(user("taken"))
        manager.close()
        assert ids_of(SessionManager.open(manager.get_session_id(), store=store).get_branch()) == [*ids, new]
        assert store.check() == []


def test_a_read_only_store_takes_no_session(rows: Home) -> None:
    with Store.open(rows.store.database, read_only=True) as reader, pytest.raises(SessionDBError, match="read-only"):
        talk(SessionManager.create("/w", store=reader), "u", "a")


class Unwritable:
    """What JSON has no word for."""


def test_a_message_that_is_no_json_changes_nothing(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a")
    before = home.stored(manager) if home.name != "memory" else b""
    with pytest.raises(TypeError):
        manager.append_message({"role": "user", "content": Unwritable()})
    assert (manager.get_leaf_id(), ids_of(manager.get_entries())) == (ids[-1], ids)
    new = manager.append_message(user("next"))
    assert ids_of(manager.get_branch()) == [*ids, new]
    if home.name != "memory":
        assert home.stored(manager).startswith(before)
        assert stored_ids(home, manager) == [*ids, new]


def test_a_message_that_is_no_json_before_the_gate_stops_nothing_later(home: Home) -> None:
    manager = home.create()
    with pytest.raises(TypeError):
        manager.append_message({"role": "user", "content": Unwritable()})
    ids = talk(manager, "u", "a")
    assert ids_of(manager.get_entries()) == ids
    if home.name != "memory":
        assert stored_ids(home, manager) == ids


def test_what_cannot_be_written_is_not_flushed_in_silence(kept: Home) -> None:
    manager = kept.create()
    with suppress(TypeError):
        manager.append_message({"role": "user", "content": Unwritable()})
    with suppress(TypeError):
        manager.append_message(assistant())
    with suppress(TypeError):
        manager.flush()
        assert ids_of(manager.get_entries()) == stored_ids(kept, manager)


WRONG: dict[str, tuple[Callable[[Home], object], type[Exception], str]] = {
    "unknown dialect": (lambda h: h.create(dialect="pie"), UnknownDialectError, "pie"),
    "unknown durability": (lambda h: h.create(durability="often"), ValueError, "often"),
    "role in pi": (lambda h: h.create(dialect="pi").append_model_change("p/m", "smol"), ValueError, "role"),
    "pi model without provider": (lambda h: h.create(dialect="pi").append_model_change("gpt"), ValueError, "gpt"),
    "short summary in pi": (
        lambda h: h.create(dialect="pi").append_compaction("s", None, 1, short_summary="x"), ValueError, "short",
    ),
    "omp's key in xcsh": (lambda h: h.create().append_compaction("s", None, 1, method="x"), ValueError, "method"),
    "name entry in xcsh": (lambda h: h.create().append_session_info("n"), NotSupportedError, "append_session_info"),
    "mode in pi": (lambda h: h.create(dialect="pi").append_mode_change("plan"), NotSupportedError, "mode_change"),
    "context in omp": (
        lambda h: h.create(dialect="omp").append_context_change("a", "b", "c"), NotSupportedError, "omp",
    ),
    "pin in xcsh": (lambda h: h.create().append_credential_pin("p", "h"), NotSupportedError, "xcsh"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "word"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named(
    home: Home, call: Callable[[Home], object], error: type[Exception], word: str
) -> None:
    if home.name == "memory" and word == "often":
        pytest.skip("in memory nothing is durable, and the argument means nothing")
    with pytest.raises(error, match=word):
        call(home)


def test_store_and_session_dir_together_are_refused(rows: Home, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        SessionManager.create("/w", store=rows.store, session_dir=tmp_path)


# --- durability


def test_flush_is_a_sync_of_the_file(files: Home) -> None:
    manager, watched, place = live(files)
    for _ in range(3):
        before = [c for c in watched.calls if c == ("fsync", str(place))]
        manager.append_message(user())
        manager.flush()
        assert [c for c in watched.calls if c == ("fsync", str(place))] > before


def test_with_normal_durability_flush_hands_over_without_a_sync(files: Home) -> None:
    manager, watched, place = live(files, durability="normal")
    before = watched.count("fsync")
    new = manager.append_message(user())
    manager.flush()
    assert watched.count("fsync") == before
    assert json.loads(place.read_bytes().splitlines()[-1])["id"] == new


def test_close_syncs_and_may_be_repeated(files: Home) -> None:
    manager, watched, place = live(files)
    manager.append_message(user())
    before = watched.count("fsync")
    manager.close()
    assert watched.count("fsync") > before
    after = place.read_bytes()
    manager.close()
    assert place.read_bytes() == after


APPENDER = """
import sys
from sessiondb import SessionManager, Store
home, place, durability = sys.argv[1:]
where = {"store": Store.open(place)} if home == "database" else {"session_dir": place, "agent_dir": place}
manager = SessionManager.create("/w", durability=durability, **where)
manager.append_message({"role": "user", "content": "u"})
answer = manager.append_message({"role": "assistant", "content": []})
manager.flush()
print(manager.get_session_file(), answer, flush=True)
while True:
    new = manager.append_message({"role": "user", "content": "x" * 3000})
    manager.flush()
    print(new, flush=True)
"""


REWRITER = APPENDER.replace("while True:", "for n in range(10**9):").replace(
    "    manager.flush()\n    print(new",
    "    manager.set_session_name(f'name {n}')\n    manager.flush()\n    print(new",
)


CHECKPOINTED = APPENDER.replace("3000", "300_000")


@pytest.mark.parametrize("program", [APPENDER, REWRITER, CHECKPOINTED], ids=["appends", "rewrites", "checkpoints"])
@pytest.mark.parametrize("durability", ["full", pytest.param("normal", marks=pytest.mark.slow)])
def test_acknowledged_appends_survive_a_kill(kept: Home, durability: str, program: str) -> None:
    place = str(kept.store.database if kept.in_database else kept.folder)
    command = [sys.executable, "-c", program, kept.name, place, durability]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(40)]
        child.send_signal(signal.SIGKILL)
        said += [line for line in child.stdout if line.endswith(b"\n")]
    ref, answer = said[0].decode().split()
    acknowledged = [answer, *(line.decode().strip() for line in said[1:])]
    manager = kept.open(ref)
    assert ids_of(manager.get_entries())[1 : len(acknowledged) + 1] == acknowledged
    new = manager.append_message(user("after the kill"))
    assert ids_of(kept.reopen(manager).get_branch())[-1] == new


# --- size control

LONG = 500_000
NOTICE = "\n\n[Session persistence truncated large content]"
PICTURE = base64.b64encode(bytes(i * 7 % 256 for i in range(1500))).decode()
SMALL = base64.b64encode(b"small").decode()


def image(text: str) -> dict[str, Any]:
    return {"type": "image", "data": text, "mimeType": "image/png"}


def restored_from(digest: str, home: Home) -> bytes | None:
    if home.in_database:
        return home.store.blobs.get(digest)
    found = list(home.agent_dir.rglob(f"blobs/{digest}")) + list(home.folder.rglob(f"blobs/{digest}"))
    return found[0].read_bytes() if found else None


def test_a_long_text_is_cut_where_it_is_stored_and_whole_in_memory(kept: Home) -> None:
    manager = kept.create()
    whole = "y" * (LONG + 1)
    new = manager.append_message(user(whole))
    manager.append_message(assistant())
    assert manager.get_entry(new)["message"]["content"] == whole  # type: ignore[index]  # it has just been appended
    assert texts_of(manager.build_session_context())[0] == whole
    cut = values(kept.stored(manager))[1]["message"]["content"]
    assert len(cut) == LONG
    assert cut.endswith("y" + NOTICE)
    manager.append_message(user("more"))
    assert texts_of(manager.build_session_context())[0] == whole
    assert texts_of(kept.reopen(manager).build_session_context())[0] == cut


def test_in_memory_nothing_is_cut_or_moved() -> None:
    manager = SessionManager.in_memory("/w")
    content = [image(PICTURE), {"type": "text", "text": "y" * (LONG + 1)}]
    new = manager.append_message({"role": "user", "content": content, "partialJson": "{"})
    manager.append_message(assistant())
    kept_whole = {"role": "user", "content": content, "partialJson": "{"}
    assert manager.get_entry(new)["message"] == kept_whole  # type: ignore[index]  # it has just been appended
    assert manager.build_session_context()["messages"][0] == kept_whole


def test_transient_fields_stay_in_memory(kept: Home) -> None:
    manager = kept.create()
    new = manager.append_message({**assistant(), "partialJson": "{", "details": {"jsonlEvents": [1], "keep": 1}})
    message = manager.get_entry(new)["message"]  # type: ignore[index]  # it has just been appended
    assert (message["partialJson"], message["details"]) == ("{", {"jsonlEvents": [1], "keep": 1})
    stored = values(kept.stored(manager))[1]["message"]
    assert "partialJson" not in stored
    assert stored["details"] == {"keep": 1}


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_pi_and_omp_sessions_are_written_whole(kept: Home, dialect: str) -> None:
    manager = kept.create(dialect=dialect)
    message = {"role": "user", "content": [image(PICTURE), {"type": "text", "text": "y" * (LONG + 1)}]}
    new = manager.append_message(message)
    manager.append_message(assistant())
    stored = {v["id"]: v for v in values(kept.stored(manager)) if "id" in v}
    assert stored[new]["message"] == message


PICTURES: dict[str, dict[str, Any]] = {
    "message": {"role": "user", "content": [{"type": "text", "text": "see"}, image(PICTURE), image(SMALL)]},
    "nested": {"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [], "details": {
        "parts": [{"content": [image(PICTURE)]}]}},
    "url": {"role": "user", "content": [{"type": "input", "image_url": f"data:image/png;base64,{SMALL}"}]},
}  # fmt: skip


@pytest.mark.parametrize("message", PICTURES.values(), ids=PICTURES)
def test_images_go_to_the_blobs_and_come_back(kept: Home, message: dict[str, Any]) -> None:
    manager = kept.create()
    new = manager.append_message(message)
    answer = manager.append_message(assistant())
    assert manager.get_entry(new)["message"] == message  # type: ignore[index]  # it has just been appended
    raw = kept.stored(manager)
    assert PICTURE.encode() not in raw
    digest = raw.split(b"blob:sha256:")[1][:64].decode()
    content = restored_from(digest, kept)
    assert content is not None
    assert sha(content) == digest
    again = kept.reopen(manager)
    assert again.get_entry(new)["message"] == message  # type: ignore[index]  # it was appended
    assert again.get_entries()[0]["message"] == message
    assert again.build_session_context()["messages"][0] == message
    assert again.get_branch(answer)[0]["message"] == message
    assert again.get_children(None)[0]["message"] == message
    assert again.get_tree()[0]["entry"]["message"] == message


def test_images_survive_a_rewrite_and_a_fork(kept: Home) -> None:
    manager = kept.create()
    new = manager.append_message(PICTURES["message"])
    manager.append_message(assistant())
    again = kept.reopen(manager)
    before = kept.stored(again)
    again.set_session_name("pictures")
    assert kept.stored(again).split(b"\n")[1:] == before.split(b"\n")[1:]
    again.fork()
    assert PICTURE.encode() not in kept.stored(again)
    assert kept.reopen(again).get_entry(new)["message"] == PICTURES["message"]  # type: ignore[index]  # it was appended


def test_a_branch_is_kept_small_as_well(kept: Home) -> None:
    manager = kept.create()
    new = manager.append_message(PICTURES["message"])
    whole = "y" * (LONG + 1)
    long = manager.append_message(user(whole))
    manager.append_message(assistant())
    manager.create_branched_session()
    assert PICTURE.encode() not in kept.stored(manager)
    assert len(kept.stored(manager)) < LONG + 3000
    assert manager.get_entry(long)["message"]["content"] == whole  # type: ignore[index]  # it was appended
    assert kept.reopen(manager).get_entry(new)["message"] == PICTURES["message"]  # type: ignore[index]  # it was appended


@pytest.mark.filterwarnings("default::sessiondb.errors.SessionDBWarning")
def test_a_missing_blob_is_a_warning_and_its_reference_stays(kept: Home, recwarn: pytest.WarningsRecorder) -> None:
    reference = "blob:sha256:" + "0" * 64
    raw = header() + entry(1, None, [image(reference)]) + entry(2, 1, role="assistant")
    manager = kept.open(kept.put(raw, dialect="xcsh"), dialect="xcsh")
    assert manager.get_entry("00000001")["message"]["content"] == [image(reference)]  # type: ignore[index]
    warned = [w for w in recwarn if w.category is SessionDBWarning]
    assert "0" * 64 in str(warned[0].message)
    manager.rewrite_entries()
    assert kept.stored(manager) == raw


def test_a_blob_beside_an_imported_file_is_put_back(rows: Home) -> None:
    content = base64.b64decode(PICTURE)
    write(rows.folder / "blobs" / sha(content), content)
    reference = f"blob:sha256:{sha(content)}"
    manager = rows.open(rows.put(header(), entry(1, None, [image(reference)])), dialect="xcsh")
    assert manager.get_entry("00000001")["message"]["content"] == [image(PICTURE)]  # type: ignore[index]


# --- names, arguments, entries


def test_xcsh_writes_the_name_into_the_header(kept: Home) -> None:
    manager = kept.create()
    talk(manager, "u", "a")
    assert manager.set_session_name(" a\tname \n of  mine ")
    assert manager.get_session_name() == "a name of mine"
    head, *rest = values(kept.stored(manager))
    assert list(head)[-2:] == ["title", "titleSource"]
    assert (head["title"], head["titleSource"]) == ("a name of mine", "auto")
    assert rest == list(manager.get_entries())
    assert kept.reopen(manager).get_session_name() == "a name of mine"


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_a_person_s_name_is_not_overwritten_by_a_program_s(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    talk(manager, "u", "a")
    assert manager.set_session_name("mine", "user")
    before = home.stored(manager) if home.name != "memory" else b""
    assert not manager.set_session_name("theirs")
    assert not manager.set_session_name(" \n\t ", "user")
    assert manager.get_session_name() == "mine"
    if home.name != "memory":
        assert home.stored(manager) == before
    assert manager.set_session_name("mine again", "user")
    assert manager.get_session_name() == "mine again"


def test_pi_appends_the_name_and_the_last_one_of_the_file_counts(home: Home) -> None:
    manager = home.create(dialect="pi")
    first, _ = talk(manager, "u", "a")
    assert manager.get_session_name() is None
    manager.set_session_name("  one ")
    manager.branch(first)
    manager.append_session_info("two")
    made = [e["name"] for e in manager.get_entries() if e["type"] == "session_info"]
    assert made == ["one", "two"]
    manager.branch(first)
    assert manager.get_session_name() == "two"
    manager.append_session_info("  ")
    assert manager.get_session_name() is None
    if home.name != "memory":
        assert home.reopen(manager).get_session_name() is None


def test_omp_keeps_the_title_in_a_slot_that_is_overwritten_in_place(kept: Home) -> None:
    manager = kept.create(dialect="omp")
    talk(manager, "u", "a")
    before = kept.stored(manager)
    assert before.index(b"\n") == 255
    assert manager.set_session_name("é" * 200, "user")
    after = kept.stored(manager)
    assert after.index(b"\n") == 255
    slot = json.loads(after[:256])
    assert (slot["type"], slot["v"], slot["source"]) == ("title", 1, "user")
    assert slot["title"] == "é" * len(slot["title"])
    assert after[256:].startswith(before[256:])
    change = json.loads(after[len(before) :])
    assert (change["type"], change["title"], change["source"]) == ("title_change", "é" * 200, "user")
    assert manager.get_leaf_id() == change["id"]


def test_the_arguments_of_one_tool_call_are_rewritten(home: Home) -> None:
    manager = home.create()
    manager.append_message(user())
    content = [tool_call("c1", x=1), tool_call("c2", x=1), {"type": "text", "text": "t"}]
    new = manager.append_message({**assistant(), "content": content})
    assert not manager.rewrite_tool_call_arguments("c9", {"x": 5})
    assert manager.rewrite_tool_call_arguments("c2", {"y": [1, 2]})
    expected = [tool_call("c1", x=1), tool_call("c2", y=[1, 2]), {"type": "text", "text": "t"}]
    assert manager.get_entry(new)["message"]["content"] == expected  # type: ignore[index]  # it was appended
    assert manager.build_session_context()["messages"][1]["content"] == expected
    assert manager.get_leaf_id() == new
    if home.name != "memory":
        assert values(home.stored(manager))[2]["message"]["content"] == expected
        again = home.reopen(manager)
        assert again.get_entry(new)["message"]["content"] == expected  # type: ignore[index]  # it was appended


def test_arguments_are_rewritten_in_memory_while_the_gate_is_closed(kept: Home) -> None:
    manager = kept.open(kept.put(header(), entry(1), dialect="pi"), dialect="pi")
    before = kept.stored(manager)
    manager.append_message(user("waits"))
    assert not manager.rewrite_tool_call_arguments("c1", {})
    assert kept.stored(manager) == before


def test_changed_entries_are_written_again_in_their_places(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a", "u2", "a2")
    changed = {**manager.get_entries()[2], "message": user("changed")}
    manager.rewrite_entries([changed])
    assert ids_of(manager.get_entries()) == ids
    assert texts_of(manager.build_session_context()) == ["u", "a", "changed", "a2"]
    if home.name != "memory":
        assert values(home.stored(manager))[3] == changed
        assert texts_of(home.reopen(manager).build_session_context()) == ["u", "a", "changed", "a2"]
    new = manager.append_message(user("next"))
    assert ids_of(manager.get_branch()) == [*ids, new]


# --- a long session


def many_entries(count: int) -> Iterator[bytes]:
    yield header("long")
    for n in range(1, count + 1):
        role = "user" if n % 2 else "assistant"
        yield entry(n, n - 1 or None, f"text {n} " + "word " * 60, role=role, second=n % 60)
    kept_from = {"summary": "sum", "firstKeptEntryId": f"{count - 9:08x}", "tokensBefore": 1}
    compaction = {"type": "compaction", "id": "c", "parentId": f"{count:08x}", "timestamp": "2026-01-01T01:00:00.000Z"}
    yield dump({**compaction, **kept_from})


def test_a_long_session_in_the_database_is_read_only_where_it_is_needed(rows: Home) -> None:
    lines = list(many_entries(20_000))
    ref = rows.put(*lines)
    rows.open(ref).build_session_context()
    tracemalloc.start()
    began = time.perf_counter()
    manager = rows.open(ref)
    context = manager.build_session_context()
    manager.append_message(user("next"))
    took = time.perf_counter() - began
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(context["messages"]) == 11
    assert took < 0.5
    assert most < sum(map(len, lines)) / 10
    assert ids_of(manager.get_branch())[-2] == "c"


def test_our_lines_are_what_the_codec_writes_for_our_entries(kept: Home) -> None:
    manager = kept.create(dialect="pi")
    talk(manager, "u", "a")
    manager.append_custom_entry("ext", {"a": [1, None]})
    lines = kept.stored(manager).splitlines()
    assert lines == [encode_entry(v) for v in (manager.get_header(), *manager.get_entries())]
