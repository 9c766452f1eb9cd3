"""Session files behave alike on the disk and in memory, and the disk loses, glues and halves nothing."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondb.file_storage import FileSessionStorage
from sessiondb.memory_storage import MemorySessionStorage
from sessiondb.storage import SessionStorage, SessionStorageWriter, StorageStat, write_lines_atomically


@dataclass(frozen=True)
class Place:
    """A storage and an empty folder in it."""

    storage: SessionStorage
    root: str

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, text: str = "old\n") -> str:
        self.storage.write_text(self.at(name), text)
        return self.at(name)

    def append(self, name: str, *lines: str | bytes, append: bool = True) -> str:
        writer = self.storage.open_writer(self.at(name), append=append)
        for line in lines:
            writer.write_line(line)
        writer.close()
        return self.storage.read_text(self.at(name))

    def names(self, folder: str = "") -> list[str]:
        return [Path(p).name for p in self.storage.list_files(self.at(folder), "*")]


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(FileSessionStorage(), str(tmp_path))
    storage = MemorySessionStorage()
    storage.ensure_dir("/nowhere/sessions")
    return Place(storage, "/nowhere/sessions")


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return Place(FileSessionStorage(), str(tmp_path))


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# -- alike in both -------------------------------------------------------------------------------------------------

TEXTS = {
    "empty": "",
    "no newline at the end": "a",
    "line ends of every kind": "a\r\nb\rc\n\n\u2028\x85",
    "byte order mark": "\ufeffa\n",
    "beyond the basic plane": "😀é\0\n",
    "bytes that are no UTF-8": b"\xff\xc3(\xed\xa0\x80\xe2\x82".decode("utf-8", "surrogateescape"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_comes_back_as_it_was_written(place: Place, text: str) -> None:
    path = place.put("s.jsonl", text)
    assert place.storage.read_text(path) == text
    assert place.storage.stat(path).size == len(text.encode("utf-8", "surrogateescape"))
    assert place.storage.read_text(Path(path)) == text


def test_text_that_no_file_can_hold_is_refused_and_changes_nothing(place: Place) -> None:
    path = place.put("s.jsonl")
    writer = place.storage.open_writer(path)
    with pytest.raises(UnicodeEncodeError):
        place.storage.write_text(path, "\ud800")
    with pytest.raises(UnicodeEncodeError):
        writer.write_line("\ud800")
    writer.write_line("new")
    writer.close()
    assert place.storage.read_text(path) == "old\nnew\n"


PREFIXES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"abc", 0, ""),
    "less": (b"abc", 2, "ab"),
    "all": (b"abc", 3, "abc"),
    "more": (b"abc", 4096, "abc"),
    "between characters": ("éé".encode(), 2, "é"),
    "within a character": ("éé".encode(), 3, "é\ufffd"),
    "within a character of four": ("a😀".encode(), 4, "a\ufffd"),
    "a bad byte before the cut": (b"\xffab", 2, "\udcffa"),
    "the file itself ends within a character": (b"a\xe2\x82", 10, "a\udce2\udc82"),
}


@pytest.mark.parametrize(("raw", "size", "expected"), PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_is_cut_at_bytes_and_never_fails(place: Place, raw: bytes, size: int, expected: str) -> None:
    path = place.put("s.jsonl", raw.decode("utf-8", "surrogateescape"))
    assert place.storage.read_text_prefix(path, size) == expected


@given(raw=st.binary(max_size=40), size=st.integers(0, 45))
def test_a_prefix_is_how_the_text_begins_and_any_bytes_survive(raw: bytes, size: int) -> None:
    storage = MemorySessionStorage()
    storage.open_writer("/s").close()
    storage.write_text("/s", raw.decode("utf-8", "surrogateescape"))
    prefix = storage.read_text_prefix("/s", size)
    assert storage.read_text("/s").encode("utf-8", "surrogateescape") == raw
    assert storage.read_text("/s").startswith(prefix.removesuffix("\ufffd"))
    assert len(prefix.encode("utf-8", "surrogateescape")) <= size + 2


LINES: dict[str, tuple[str | None, list[str | bytes], str]] = {
    "to a file that is missing": (None, ["a", b"b"], "a\nb\n"),
    "to an empty file": ("", ["a"], "a\n"),
    "to whole lines": ("x\n", ["a"], "x\na\n"),
    "to a line without its newline": ("x\ny", ["a", "b"], "x\ny\na\nb\n"),
    "to a line that ends with a carriage return": ("x\r", ["a"], "x\r\na\n"),
    "nothing to a line without its newline": ("x", [], "x"),
    "empty lines": ("x", ["", b""], "x\n\n\n"),
    "text and bytes that are no UTF-8": (None, [b"\xff", "\udcff"], "\udcff\n\udcff\n"),
}


@pytest.mark.parametrize(("before", "lines", "after"), LINES.values(), ids=LINES)
def test_appended_lines_stand_alone_and_in_order(
    place: Place, before: str | None, lines: list[str | bytes], after: str
) -> None:
    if before is not None:
        place.put("s.jsonl", before)
    assert place.append("s.jsonl", *lines) == after


def test_a_writer_that_does_not_append_begins_anew(place: Place) -> None:
    place.put("s.jsonl", "a long line without its newline")
    assert place.append("s.jsonl", "a", append=False) == "a\n"
    assert place.append("s.jsonl", append=False) == ""


def test_a_line_with_a_newline_in_it_is_refused_and_the_writer_goes_on(place: Place) -> None:
    writer = place.storage.open_writer(place.at("s.jsonl"))
    for line in ("a\n\n", b"a\nb"):
        with pytest.raises(ValueError, match="newline"):
            writer.write_line(line)
    assert writer.get_error() is None
    writer.write_line("c")
    writer.close()
    assert place.storage.read_text(place.at("s.jsonl")) == "c\n"


def test_lines_are_there_for_readers_before_the_writer_is_flushed_and_after(place: Place) -> None:
    writer = place.storage.open_writer(place.at("s.jsonl"))
    for hand_over in (writer.flush, writer.fsync, writer.close):
        before = place.storage.read_text(place.at("s.jsonl"))
        writer.write_line("a")
        assert place.storage.read_text(place.at("s.jsonl")) == before + "a\n"
        hand_over()
        assert place.storage.read_text(place.at("s.jsonl")) == before + "a\n"
    assert writer.get_error() is None


def test_a_closed_writer_closes_again_and_does_nothing_else(place: Place) -> None:
    writer = place.storage.open_writer(place.at("s.jsonl"))
    writer.close()
    writer.close()
    calls: list[Callable[[], object]] = [lambda: writer.write_line("a"), writer.flush, writer.fsync]
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
    assert place.storage.read_text(place.at("s.jsonl")) == ""
    assert writer.get_error() is None


def test_two_writers_of_one_file_add_to_each_other_s_lines(place: Place) -> None:
    one, two = (place.storage.open_writer(place.at("s.jsonl")) for _ in range(2))
    for writer, line in ((one, "a"), (two, "b"), (one, "c")):
        writer.write_line(line)
    one.close()
    two.close()
    assert place.storage.read_text(place.at("s.jsonl")) == "a\nb\nc\n"


def test_a_writer_keeps_to_its_file_when_that_is_renamed_or_another_takes_its_name(place: Place) -> None:
    writer = place.storage.open_writer(place.put("a.jsonl"))
    place.storage.rename(place.at("a.jsonl"), place.at("b.jsonl"))
    writer.write_line("moved")
    assert place.storage.read_text(place.at("b.jsonl")) == "old\nmoved\n"
    place.put("b.jsonl", "another\n")
    writer.write_line("to nobody")
    writer.close()
    assert place.storage.read_text(place.at("b.jsonl")) == "another\n"


Call = Callable[[SessionStorage, str], Any]

NEEDS_A_FILE: dict[str, Call] = {
    "stat": lambda storage, path: storage.stat(path),
    "read_text": lambda storage, path: storage.read_text(path),
    "read_text_prefix": lambda storage, path: storage.read_text_prefix(path, 10),
    "unlink": lambda storage, path: storage.unlink(path),
    "rename": lambda storage, path: storage.rename(path, path + ".made/new"),
    "rename to itself": lambda storage, path: storage.rename(path, path),
}


@pytest.mark.parametrize("call", NEEDS_A_FILE.values(), ids=NEEDS_A_FILE)
def test_a_missing_file_is_an_error_with_its_name_and_nothing_is_made(place: Place, call: Call) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        call(place.storage, place.at("none.jsonl"))
    assert str(caught.value.filename or place.at("none.jsonl")) == place.at("none.jsonl")
    assert not place.storage.exists(place.at("none.jsonl"))
    assert not place.storage.exists(place.at("none.jsonl.made"))


REFUSES_A_FOLDER: dict[str, Call] = {
    "read_text": lambda storage, path: storage.read_text(path),
    "read_text_prefix": lambda storage, path: storage.read_text_prefix(path, 10),
    "write_text": lambda storage, path: storage.write_text(path, "a"),
    "open_writer": lambda storage, path: storage.open_writer(path),
    "unlink": lambda storage, path: storage.unlink(path),
    "rename a file to it": lambda storage, path: storage.rename(f"{path}/s.jsonl", path),
    "rename a folder to it": lambda storage, path: storage.rename(f"{path}/inner", path),
    "rename it into itself": lambda storage, path: storage.rename(path, f"{path}/inner/again"),
}


@pytest.mark.parametrize("call", REFUSES_A_FOLDER.values(), ids=REFUSES_A_FOLDER)
def test_a_folder_is_not_taken_for_a_file(place: Place, call: Call) -> None:
    place.put("folder/s.jsonl")
    place.storage.ensure_dir(place.at("folder/inner"))
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        call(place.storage, place.at("folder"))
    assert place.names("folder") == ["s.jsonl"]
    assert place.storage.read_text(place.at("folder/s.jsonl")) == "old\n"
    assert place.storage.exists(place.at("folder/inner"))


REFUSES_TO_GO_THROUGH_A_FILE: dict[str, Call] = {
    "ensure_dir": lambda storage, path: storage.ensure_dir(path),
    "ensure_dir below": lambda storage, path: storage.ensure_dir(f"{path}/a/b"),
    "write_text": lambda storage, path: storage.write_text(f"{path}/a", "x"),
    "open_writer": lambda storage, path: storage.open_writer(f"{path}/a"),
    "list_files": lambda storage, path: storage.list_files(path),
}


@pytest.mark.parametrize("call", REFUSES_TO_GO_THROUGH_A_FILE.values(), ids=REFUSES_TO_GO_THROUGH_A_FILE)
def test_a_file_is_not_taken_for_a_folder(place: Place, call: Call) -> None:
    path = place.put("s.jsonl")
    with pytest.raises(NotADirectoryError):
        call(place.storage, path)
    assert place.storage.read_text(path) == "old\n"
    assert not place.storage.exists(f"{path}/a")


def test_folders_are_made_where_a_file_is_to_stand(place: Place) -> None:
    place.put("a/b/s.jsonl")
    place.append("c/d/s.jsonl", "x")
    place.storage.rename(place.at("a/b/s.jsonl"), place.at("e/f/s.jsonl"))
    place.storage.ensure_dir(place.at("g/h"))
    place.storage.ensure_dir(place.at("g/h"))
    assert [f for f in ("a/b", "c/d", "e", "e/f", "g", "g/h", "i") if not place.storage.exists(place.at(f))] == ["i"]
    assert [place.names(f) for f in ("a/b", "c/d", "e/f", "g/h")] == [[], ["s.jsonl"], ["s.jsonl"], []]


def test_files_are_listed_sorted_by_pattern_and_none_from_below(place: Place) -> None:
    listed = [".hidden.jsonl", "a.jsonl", "b.jsonl", "é.jsonl"]
    for name in (*reversed(listed), "A.JSONL", "c.json", "inner/d.jsonl", ".a.jsonl.1.tmp"):
        place.put(name)
    place.storage.ensure_dir(place.at("folder.jsonl"))
    assert place.storage.list_files(place.root) == [place.at(name) for name in listed]
    assert place.storage.list_files(Path(place.root) / "inner" / "..") == [
        str(Path(place.root) / "inner" / ".." / name) for name in listed
    ]
    assert place.storage.list_files(place.root, "?.json") == [place.at("c.json")]
    assert place.storage.list_files(place.at("missing")) == []
    with pytest.raises(ValueError, match="folders"):
        place.storage.list_files(place.root, "**/*.jsonl")


def test_a_renamed_file_takes_the_other_s_place_and_keeps_its_time(place: Place) -> None:
    path, before = place.put("a.jsonl", "new\n"), place.storage.stat(place.put("a.jsonl", "new\n"))
    place.put("b.jsonl")
    place.storage.rename(path, place.at("b.jsonl"))
    place.storage.rename(place.at("b.jsonl"), place.at("b.jsonl"))
    assert place.names() == ["b.jsonl"]
    assert place.storage.read_text(place.at("b.jsonl")) == "new\n"
    assert place.storage.stat(place.at("b.jsonl")) == before


def test_a_renamed_folder_takes_along_what_is_in_it_and_nothing_beside(place: Place) -> None:
    for name in ("a/s.jsonl", "a/inner/t.jsonl", "ab/u.jsonl", "a.jsonl"):
        place.put(name)
    place.storage.rename(place.at("a"), place.at("moved/here"))
    assert not place.storage.exists(place.at("a"))
    assert [place.names(f) for f in ("moved/here", "moved/here/inner", "ab", "")] == [
        ["s.jsonl"], ["t.jsonl"], ["u.jsonl"], ["a.jsonl"],
    ]  # fmt: skip
    with pytest.raises(NotADirectoryError if isinstance(place.storage, FileSessionStorage) else FileExistsError):
        place.storage.rename(place.at("moved"), place.at("a.jsonl"))
    assert place.storage.read_text(place.at("a.jsonl")) == "old\n"


def test_a_folder_does_not_take_the_mode_of_a_file_it_cannot_replace(disk: Place) -> None:
    disk.storage.ensure_dir(disk.at("folder"))
    with pytest.raises(NotADirectoryError):
        disk.storage.rename(disk.at("folder"), disk.put("s.jsonl"))
    assert mode(disk.at("folder")) == 0o700


def test_a_removed_file_is_gone_and_its_folder_stays(place: Place) -> None:
    place.storage.unlink(place.put("a/s.jsonl"))
    assert not place.storage.exists(place.at("a/s.jsonl"))
    assert place.storage.exists(place.at("a"))


def test_a_change_gives_a_file_the_time_of_now(place: Place) -> None:
    start = time.time_ns() / 1e6 - 50  # kernels date files by a coarse clock
    times = [place.storage.stat(place.put("s.jsonl")).mtime_ms]
    place.append("s.jsonl", "x")
    times.append(place.storage.stat(place.at("s.jsonl")).mtime_ms)
    assert start <= times[0] <= times[1] <= time.time_ns() / 1e6


def test_in_memory_the_clock_that_was_given_dates_every_change() -> None:
    ticks = itertools.count(1000)
    storage = MemorySessionStorage(clock=lambda: next(ticks))
    storage.write_text("/a", "é")
    assert storage.stat("/a") == StorageStat(size=2, mtime_ms=1000)
    writer = storage.open_writer("/a")
    storage.read_text("/a")
    assert storage.stat("/a").mtime_ms == 1000
    writer.write_line("x")
    storage.rename("/a", "/b")
    assert storage.stat("/b") == StorageStat(size=5, mtime_ms=1001)


def test_relative_paths_are_those_of_the_working_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    where = Path(tempfile.gettempdir()) if isinstance(place.storage, MemorySessionStorage) else Path(place.root)
    monkeypatch.chdir(where)
    place.storage.write_text("in/s.jsonl", "a")
    assert place.storage.read_text(where / "in" / "." / "s.jsonl") == "a"
    assert place.storage.list_files("in") == ["in/s.jsonl"]


# -- a full rewrite, through the protocol alone --------------------------------------------------------------------


class SomebodysStorage:
    """Another storage: the protocol and nothing else. Notes each call, and fails at one with an error of its own."""

    def __init__(self, fails_at: str = "") -> None:
        self.inner = MemorySessionStorage()
        self.fails_at = fails_at
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name == self.fails_at:
                raise LookupError(name)
            result = getattr(self.inner, name)(*args, **options)
            return SomebodysWriter(self, result) if name == "open_writer" else result

        return call


class SomebodysWriter:
    def __init__(self, storage: SomebodysStorage, writer: SessionStorageWriter) -> None:
        self.storage, self.writer = storage, writer

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.storage.calls.append(name)
            if name == self.storage.fails_at:
                raise LookupError(name)
            return getattr(self.writer, name)(*args)

        return call


def test_a_rewrite_asks_any_storage_for_the_protocol_s_steps_in_their_order() -> None:
    storage = SomebodysStorage()
    lines: list[bytes | str] = [b"a", "b"]
    write_lines_atomically(storage, "/s.jsonl", iter(lines), "/.s.tmp")
    assert storage.calls == ["open_writer", "write_line", "write_line", "flush", "fsync", "close", "rename"]
    assert storage.inner.read_text("/s.jsonl") == "a\nb\n"
    assert storage.inner.list_files("/", "*") == ["/s.jsonl"]


@pytest.mark.parametrize("step", ["open_writer", "write_line", "flush", "fsync", "close", "rename"])
def test_a_rewrite_that_fails_at_any_step_leaves_the_old_file_and_no_other(step: str) -> None:
    storage = SomebodysStorage(fails_at=step)
    storage.inner.write_text("/s.jsonl", "old\n")
    with pytest.raises(LookupError, match=step):
        write_lines_atomically(storage, "/s.jsonl", ["a", "b"])
    assert ("close" in storage.calls) == (step != "open_writer")
    assert storage.inner.read_text("/s.jsonl") == "old\n"
    assert storage.inner.list_files("/", "*") == ["/s.jsonl"]


def failing_lines() -> Iterator[str]:
    yield "new"
    raise KeyboardInterrupt


def test_a_rewrite_whose_lines_fail_leaves_the_old_file_and_no_other(place: Place) -> None:
    place.put("s.jsonl")
    with pytest.raises(KeyboardInterrupt):
        write_lines_atomically(place.storage, place.at("s.jsonl"), failing_lines())
    assert place.storage.read_text(place.at("s.jsonl")) == "old\n"
    assert place.names() == ["s.jsonl"]


def test_a_rewrite_leaves_the_lines_and_no_other_file(place: Place) -> None:
    for path in (place.put("s.jsonl"), Path(place.at("new/s.jsonl")), place.at("é" * 120 + ".jsonl")):
        write_lines_atomically(place.storage, path, [b"a", "b"])
        assert place.storage.read_text(path) == "a\nb\n"
        place.storage.write_text(path, "c")
    assert place.names() == ["s.jsonl", "é" * 120 + ".jsonl"]
    assert place.names("new") == ["s.jsonl"]


# -- on the disk ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0, 0o277], ids=["open umask", "strict umask"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def rewrite(storage: SessionStorage, path: str) -> None:
    write_lines_atomically(storage, path, ["new"])


def append(storage: SessionStorage, path: str) -> None:
    writer = storage.open_writer(path)
    writer.write_line("new")
    writer.close()


def begin_anew(storage: SessionStorage, path: str) -> None:
    writer = storage.open_writer(path, append=False)
    writer.write_line("new")
    writer.close()


def rename_onto(storage: SessionStorage, path: str) -> None:
    storage.write_text(path + ".other", "new\n")
    storage.rename(path + ".other", path)


def write_text(storage: SessionStorage, path: str) -> None:
    storage.write_text(path, "new\n")


WRITES: dict[str, Call] = {f.__name__: f for f in (write_text, append, begin_anew, rewrite, rename_onto)}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@every_write
@pytest.mark.usefixtures("_umask")
def test_a_file_that_is_made_is_for_its_owner_alone(disk: Place, write: Call) -> None:
    write(disk.storage, disk.at("s.jsonl"))
    assert mode(disk.at("s.jsonl")) == 0o600


def ensure_dir(storage: SessionStorage, path: str) -> None:
    storage.ensure_dir(os.path.dirname(path))


MAKES_FOLDERS: dict[str, Call] = {**WRITES, "ensure_dir": ensure_dir}


@pytest.mark.parametrize("call", MAKES_FOLDERS.values(), ids=MAKES_FOLDERS)
def test_folders_that_are_made_are_for_their_owner_alone(disk: Place, call: Call) -> None:
    before = os.umask(0)
    try:
        call(disk.storage, disk.at("a/b/s.jsonl"))
    finally:
        os.umask(before)
    assert (mode(disk.at("a")), mode(disk.at("a/b"))) == (0o700, 0o700)


@every_write
@pytest.mark.parametrize("bits", [0o644, 0o640, 0o600])
def test_a_file_that_is_there_keeps_its_mode(disk: Place, write: Call, bits: int) -> None:
    os.chmod(disk.put("s.jsonl"), bits)
    write(disk.storage, disk.at("s.jsonl"))
    assert mode(disk.at("s.jsonl")) == bits
    assert disk.storage.read_text(disk.at("s.jsonl")).endswith("new\n")
    assert disk.names() == ["s.jsonl"]


@every_write
@pytest.mark.parametrize("exists", [True, False], ids=["to a file", "to nothing"])
def test_a_link_stays_one_and_its_target_is_written(disk: Place, write: Call, exists: bool) -> None:
    disk.storage.ensure_dir(disk.at("real"))
    if exists:
        os.chmod(disk.put("real/s.jsonl"), 0o640)
    os.symlink("real/s.jsonl", disk.at("link.jsonl"))
    write(disk.storage, disk.at("link.jsonl"))
    assert os.readlink(disk.at("link.jsonl")) == "real/s.jsonl"
    assert disk.storage.read_text(disk.at("real/s.jsonl")).endswith("new\n")
    assert mode(disk.at("real/s.jsonl")) == (0o640 if exists else 0o600)
    assert (disk.names(), disk.names("real")) == (["link.jsonl"], ["s.jsonl"])


def test_a_link_is_removed_or_renamed_and_not_its_target(disk: Place) -> None:
    disk.put("s.jsonl")
    os.symlink("s.jsonl", disk.at("link.jsonl"))
    disk.storage.rename(disk.at("link.jsonl"), disk.at("other.jsonl"))
    assert os.readlink(disk.at("other.jsonl")) == "s.jsonl"
    disk.storage.unlink(disk.at("other.jsonl"))
    assert disk.names() == ["s.jsonl"]


def test_links_to_no_file_are_not_listed_and_a_ring_of_them_is_an_error(disk: Place) -> None:
    os.symlink("ring.jsonl", disk.at("ring.jsonl"))
    os.symlink("nothing", disk.at("dangling.jsonl"))
    os.mkfifo(disk.at("fifo.jsonl"))
    disk.put("s.jsonl")
    assert disk.names() == ["s.jsonl"]
    assert not disk.storage.exists(disk.at("dangling.jsonl"))
    for call in (*WRITES.values(), NEEDS_A_FILE["read_text"], NEEDS_A_FILE["stat"]):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            call(disk.storage, disk.at("ring.jsonl"))
        assert caught.value.errno == errno.ELOOP
    assert os.readlink(disk.at("ring.jsonl")) == "ring.jsonl"


@pytest.mark.parametrize(
    "call", [*WRITES.values(), NEEDS_A_FILE["read_text"], NEEDS_A_FILE["read_text_prefix"]],
    ids=[*WRITES, "read_text", "read_text_prefix"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_regular_file_is_refused_at_once_and_left(disk: Place, call: Call, kind: str) -> None:
    path = disk.at("s.jsonl")
    if kind == "fifo":
        os.mkfifo(path)
    else:
        os.symlink("/dev/full", path)
    with pytest.raises(OSError, match="not a regular file"):
        call(disk.storage, path)
    assert stat.S_ISFIFO(os.stat(path).st_mode) or stat.S_ISCHR(os.stat(path).st_mode)


@every_write
def test_a_file_that_may_not_be_written_is_not_replaced(write: Call) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # noqa: S103 - so that only the file's own mode stands in the way
        path = os.path.join(folder, "s.jsonl")
        Path(path).write_text("old\n")
        os.chmod(path, 0o444)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may write anything
        try:
            with pytest.raises(PermissionError):
                write(FileSessionStorage(), path)
        finally:
            os.seteuid(user)
        assert (Path(path).read_text(), mode(path)) == ("old\n", 0o444)


def test_a_file_moves_to_another_file_system(disk: Place) -> None:
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(disk.root).st_dev:  # noqa: S108
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.symlink(folder, disk.at("elsewhere"))
        disk.storage.rename(disk.put("s.jsonl", "\udcffmoved\n"), disk.at("elsewhere/a/s.jsonl"))
        assert (disk.names(), disk.names("elsewhere/a")) == ([], ["s.jsonl"])
        assert disk.storage.read_text(disk.at("elsewhere/a/s.jsonl")) == "\udcffmoved\n"
        disk.put("folder/s.jsonl")
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            disk.storage.rename(disk.at("folder"), disk.at("elsewhere/folder"))
        assert caught.value.errno == errno.EXDEV
        assert disk.names("folder") == ["s.jsonl"]


def test_a_writer_that_nobody_closed_gives_its_descriptor_back(disk: Place) -> None:
    def free_descriptor() -> int:
        os.close(descriptor := os.open(disk.root, os.O_RDONLY))
        return descriptor

    before = free_descriptor()
    disk.storage.open_writer(disk.at("s.jsonl")).write_line("a")
    gc.collect()
    assert free_descriptor() == before


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told to the disk from here on, in order."""
    noted: list[str] = []
    fsync, replace, write = os.fsync, os.replace, os.write

    def note_fsync(descriptor: int) -> None:
        noted.append("fsync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
        fsync(descriptor)

    def note_replace(old: Any, new: Any) -> None:
        noted.append("rename")
        replace(old, new)

    def note_write(descriptor: int, raw: Any) -> int:
        noted.append("write")
        return write(descriptor, raw)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(os, "write", note_write)
    return noted


def test_content_is_on_the_disk_before_it_gets_the_name_and_the_name_afterwards(disk: Place, steps: list[str]) -> None:
    disk.put("s.jsonl")
    assert steps == ["write", "fsync file", "rename", "fsync folder"]
    steps.clear()
    rewrite(disk.storage, disk.at("s.jsonl"))
    assert steps == ["write", "fsync file", "fsync folder", "rename", "fsync folder"]
    steps.clear()
    disk.storage.rename(disk.at("s.jsonl"), disk.at("a/b/s.jsonl"))
    assert steps == ["fsync folder", "fsync folder", "rename", "fsync folder", "fsync folder"]


def test_a_line_is_one_write_and_fsync_makes_a_new_file_s_name_last_too(disk: Place, steps: list[str]) -> None:
    writer = disk.storage.open_writer(disk.at("s.jsonl"))
    for _ in range(2):
        writer.write_line("x" * 100_000)
        writer.fsync()
    writer.close()
    assert steps == ["write", "fsync file", "fsync folder", "write", "fsync file"]
    steps.clear()
    Path(disk.at("s.jsonl")).write_text("half")
    writer = disk.storage.open_writer(disk.at("s.jsonl"))
    writer.write_line("new")
    writer.fsync()
    writer.close()
    assert steps == ["write", "fsync file"]
    assert disk.storage.read_text(disk.at("s.jsonl")) == "half\nnew\n"


def test_a_line_that_the_disk_takes_in_pieces_is_written_whole(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, raw: write(descriptor, bytes(raw)[:3]))
    assert disk.append("s.jsonl", "eins", "zwei", "drei und vier") == "eins\nzwei\ndrei und vier\n"
    disk.put("t.jsonl", "fünf und sechs\n")
    assert disk.storage.read_text(disk.at("t.jsonl")) == "fünf und sechs\n"


def test_a_line_that_was_interrupted_half_way_is_not_joined_by_the_next(
    disk: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writer = os.write, disk.storage.open_writer(disk.at("s.jsonl"))
    writer.write_line("first")

    def half(descriptor: int, raw: Any) -> int:
        write(descriptor, bytes(raw)[:3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(KeyboardInterrupt):
            writer.write_line("second")
    writer.write_line("third")
    writer.close()
    assert disk.storage.read_text(disk.at("s.jsonl")) == "first\nsec\nthird\n"


# -- in a process of its own, where the disk fails or the process dies ----------------------------------------------

PRELUDE = """
import errno, os, resource, signal, sys
from sessiondb.file_storage import FileSessionStorage
from sessiondb.storage import write_lines_atomically
storage, path = FileSessionStorage(), sys.argv[1]
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # Python ignores SIGXFSZ: a write is short, the next EFBIG
def raised(call, *args):
    try:
        call(*args)
    except OSError as error:
        return error
"""


def run(path: str, script: str) -> int:
    """The exit code of the script; what it asserts is shown when it fails."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + script, path], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def test_the_first_error_of_a_writer_stays_and_nothing_follows_half_a_line(disk: Place) -> None:
    script = """
limit(20)
writer = storage.open_writer(path)
writer.write_line("0123456789")
first = raised(writer.write_line, "abcdefghijklm")
assert first.errno == errno.EFBIG and first.filename == path, first
limit(20)
os.truncate(path, 14)  # there is room again
for call in (writer.write_line, writer.flush, writer.fsync, writer.close):
    assert raised(call, *["x"][: call == writer.write_line]) is first, call
assert writer.get_error() is first
writer.close()
assert raised(writer.flush) is first
"""
    assert run(disk.at("s.jsonl"), script) == 0
    assert disk.storage.read_text(disk.at("s.jsonl")) == "0123456789\nabc"
    assert disk.append("s.jsonl", "next") == "0123456789\nabc\nnext\n"


def test_an_error_of_fsync_stays_and_close_raises_it(disk: Place) -> None:
    script = """
writer = storage.open_writer(path)
os.closerange(3, 100)
first = raised(writer.fsync)
assert first.errno == errno.EBADF and writer.get_error() is first
assert raised(writer.write_line, "x") is first
assert raised(writer.close) is first
writer.close()
"""
    assert run(disk.at("s.jsonl"), script) == 0


def test_an_error_of_close_itself_is_raised_once_and_remembered(disk: Place) -> None:
    script = """
writer = storage.open_writer(path)
os.closerange(3, 100)
first = raised(writer.close)
assert first.errno == errno.EBADF and writer.get_error() is first
writer.close()
assert raised(writer.flush) is first
"""
    assert run(disk.at("s.jsonl"), script) == 0


FULL = {
    "write_text": "storage.write_text(path, 'x' * 2000)",
    "rewrite": "write_lines_atomically(storage, path, ['x' * 300] * 7)",
}


@pytest.mark.parametrize("call", FULL.values(), ids=FULL)
def test_a_full_disk_leaves_the_old_file_and_no_other(disk: Place, call: str) -> None:
    path = disk.put("s.jsonl")
    assert run(path, f"limit(1000)\nassert raised(lambda: {call}).errno == errno.EFBIG") == 0
    assert disk.storage.read_text(path) == "old\n"
    assert disk.names() == ["s.jsonl"]


KILLED = {
    "write_text": """
fsync = os.fsync
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
storage.write_text(path, "new" * 1000)
""",
    "rewrite": """
def lines():
    yield "new"
    os.kill(os.getpid(), signal.SIGKILL)
    yield "new"
write_lines_atomically(storage, path, lines())
""",
}


@pytest.mark.parametrize("script", KILLED.values(), ids=KILLED)
def test_killed_half_way_the_old_file_is_whole_and_the_half_is_not_listed(disk: Place, script: str) -> None:
    path = disk.put("s.jsonl")
    assert run(path, script) == -signal.SIGKILL
    assert disk.storage.read_text(path) == "old\n"
    assert disk.storage.list_files(disk.root) == [path]
    (left,) = [name for name in disk.names() if name != "s.jsonl"]
    assert left.startswith(".s.jsonl.")
    assert left.endswith(".tmp")


REWRITES = """
print("ready", flush=True)
while True:
    for letter in "ba":
        storage.write_text(path, letter * 400_000)
        write_lines_atomically(storage, path, [letter * 3_999] * 100)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_a_file_has_one_content_or_the_other(disk: Place, seed: int) -> None:
    path, rng = disk.put("s.jsonl", "a" * 400_000), random.Random(seed)
    args = [sys.executable, "-c", PRELUDE + REWRITES, path]
    for _ in range(10):
        with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.05))
            child.kill()
        text = disk.storage.read_text(path)
        assert (len(text), len(set(text) - {"\n"})) == (400_000, 1)
