"""What happens while an import runs: files that are written to, commits that fail, readers, twins that come back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from sessiondb import Store, batch, importer
from sessiondb.errors import DatabaseBusyError
from sessiondb.jsonl import split_lines
from sessiondb.report import Progress
from tests.support import entry, exported, header, sha, with_blobs, write


def after(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Let something happen to the files right after the importer's function `name` ran for the first time."""
    original = getattr(importer, name)
    acts = iter([act])

    def run(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        for once in acts:
            once()
        return result

    monkeypatch.setattr(importer, name, run)


def test_a_file_rewritten_while_its_growth_is_read_costs_the_held_session_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line had no newline, so all is read again: what is read then must begin with what is held."""
    old = header() + entry(1) + entry(2, 1)[:-1]
    file = write(tmp_path / "s.jsonl", old)
    store.import_paths([file])
    write(file, old + b"\n" + entry(3, 2))
    other = header() + entry(7, None, "something else") + entry(8, 7) + entry(9, 8)
    after(monkeypatch, "hash_prefix", lambda: write(file, other))
    report = store.import_paths([file])
    assert [s.reason for s in report.skipped] == ["changed while it was read; import it again"]
    assert exported(store, "s-1") == old
    report = store.import_paths([file])
    assert (report.imported, report.replaced) == (1, 1)
    assert exported(store, file) == other
    assert old in {exported(store, info) for info in store.sessions(superseded=True)}


def test_lines_appended_while_a_file_is_read_wait_for_the_next_import(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))

    def append() -> None:
        with file.open("ab") as stream:
            stream.write(entry(2, 1))

    after(monkeypatch, "holds_an_object_line", append)
    report = store.import_paths([file])
    assert (report.imported, report.skipped) == (1, [])
    assert exported(store, file) == header() + entry(1)
    assert store.import_paths([file]).updated == 1
    assert exported(store, file) == file.read_bytes()


def test_a_file_changed_in_place_while_it_is_read_is_skipped_and_taken_next_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))
    original = split_lines

    def change_behind(*args: Any, **options: Any) -> Iterator[bytes]:
        yield from original(*args, **options)
        write(file, header(), entry(1, None, "ho"))

    monkeypatch.setattr(importer, "split_lines", change_behind)
    assert len(store.import_paths([file]).skipped) == 1
    monkeypatch.undo()
    assert store.import_paths([file]).imported == 1
    assert exported(store, file) == file.read_bytes()


def test_a_growth_bigger_than_a_batch_is_committed_alone_and_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 2_000)
    grows, twin = tmp_path / "in/a.jsonl", header("b") + b"".join(entry(n) for n in range(1, 40))
    write(grows, header("a"), entry(1))
    write(tmp_path / "in/b.jsonl", twin)
    store.import_paths([tmp_path / "in"])
    write(grows, header("a"), *(entry(n, n - 1 or None) for n in range(1, 60)))
    write(tmp_path / "in/c.jsonl", twin)  # joins what is held, in a transaction of its own
    reader = apsw.Connection(str(store.database), flags=apsw.SQLITE_OPEN_READONLY)
    seen = set()

    def look(_: Progress) -> None:
        query = "SELECT entry_count, (SELECT count(*) FROM entries e WHERE e.session_pk = s.pk) FROM sessions s"
        seen.update(reader.execute(query + " WHERE id = 'a'").fetchall())

    report = store.import_paths([tmp_path / "in"], on_progress=look)
    reader.close()
    assert (report.updated, report.unchanged) == (1, 2)
    assert seen <= {(1, 1), (59, 59)}
    assert exported(store, grows) == grows.read_bytes()


def test_a_commit_that_fails_is_rolled_back_told_and_done_by_the_next_run(tmp_path: Path) -> None:
    """A reader in the way of a first import, whose journal lets nobody read while it commits."""
    for n in range(5):
        write(tmp_path / f"in/{n}.jsonl", header(f"s-{n}"), entry(1))
    with Store.open(tmp_path / "s.db", timeout=0.2) as store:
        reader = apsw.Connection(str(store.database), flags=apsw.SQLITE_OPEN_READONLY)

        def stand_in_the_way(progress: Progress) -> None:
            if progress.files == 2:
                reader.execute("BEGIN; SELECT count(*) FROM sessions").fetchall()

        with pytest.raises(DatabaseBusyError):
            store.import_paths([tmp_path / "in"], on_progress=stand_in_the_way)
        assert [v for v in store.verify() if v.is_deletable] == []
        assert store.check() == []
        reader.execute("ROLLBACK")
        reader.close()
        assert store.import_paths([tmp_path / "in"]).imported == 5
    with Store.open(tmp_path / "s.db") as store:
        assert {v.state for v in store.verify()} == {"equal"}
        assert store.check() == []


def test_verify_beside_an_import_calls_nothing_damaged(open_store: Callable[..., Store], tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"in/{n}.jsonl", header(f"s-{n}"), entry(1))
    store, other = open_store(), open_store()
    store.import_paths([tmp_path / "in"])
    verdicts = store.verify()
    next(verdicts)
    for n in range(3):
        write(tmp_path / f"in/{n}.jsonl", header(f"s-{n}"), entry(1), entry(2, 1))
    other.import_paths([tmp_path / "in"])
    assert {v.state for v in verdicts} == {"equal"}


def test_a_twin_that_comes_back_after_the_other_grew_is_a_session_of_its_own(store: Store, tmp_path: Path) -> None:
    stays, leaves = tmp_path / "in/live/a.jsonl", tmp_path / "in/usb/a.jsonl"
    for file in (stays, leaves):
        write(file, header(), entry(1))
    store.import_paths([tmp_path / "in"])
    leaves.parent.rename(tmp_path / "away")
    write(stays, header(), entry(1), entry(2, 1))
    assert store.refresh().updated == 1
    (tmp_path / "away").rename(leaves.parent)
    assert store.refresh().imported == 1
    for file in (stays, leaves):
        assert exported(store, file) == file.read_bytes()
    assert {v.state for v in store.verify()} == {"equal"}


@pytest.mark.parametrize("broken", ["torn", "a list", "not JSON"])
def test_a_broken_line_s_blob_counts_too(store: Store, tmp_path: Path, broken: str) -> None:
    """Who deletes a file must not lose what it refers to, wherever."""
    line = with_blobs(sha(b"nowhere"))
    lines = {"torn": line[:-2] + b"\n", "a list": b"[" + line[:-1] + b"]\n", "not JSON": b"]" + line}
    file = write(tmp_path / "s.jsonl", header(), lines[broken])
    assert len(store.import_paths([file]).missing_blobs) == 1
    assert [v.is_deletable for v in store.verify()] == [False]


def test_the_database_is_known_under_any_name(store: Store, tmp_path: Path) -> None:
    """Invariant 9: a plain open and close of it would drop SQLite's locks."""
    write(tmp_path / "in/s.jsonl", header())
    os.link(store.database, tmp_path / "in/hard.jsonl")
    (tmp_path / "in/soft.jsonl").symlink_to(store.database)
    report = store.import_paths([tmp_path / "in"])
    assert sorted(Path(s.path).name for s in report.skipped if s.reason == "the database itself") == [
        "hard.jsonl", "soft.jsonl",
    ]  # fmt: skip


def test_a_dry_run_needs_no_right_to_write(open_store: Callable[..., Store], tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header())
    open_store().import_paths([file])
    write(tmp_path / "t.jsonl", header("t"))
    rehearsed = open_store(read_only=True).import_paths([tmp_path], dry_run=True)
    assert (rehearsed.imported, rehearsed.unchanged) == (1, 1)


def test_a_name_too_long_for_a_file_system_stops_nothing(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header())
    report = store.import_paths([tmp_path / ("a" * 300), file])
    assert (report.imported, [s.reason for s in report.skipped]) == (1, ["file name too long"])


def test_refresh_reads_a_root_in_the_dialect_that_was_given_for_it(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "given/a.jsonl", header("a"))
    write(tmp_path / "plain/b.jsonl", header("b"))
    store.import_paths([tmp_path / "given"], dialect="omp")
    store.import_paths([tmp_path / "plain"])
    write(tmp_path / "given/c.jsonl", header("c"))
    write(tmp_path / "plain/d.jsonl", header("d"))
    report = store.refresh()
    assert (report.imported, report.unchanged, report.files) == (2, 2, 4)
    assert [store.session(name).dialect for name in "abcd"] == ["omp", "pi", "omp", "pi"]


def test_faults_are_reported_when_they_come_and_not_again(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1, 9))
    assert store.import_paths([file]).fault_count == 1
    write(file, header(), entry(1, 9), entry(2, 1))
    assert store.import_paths([file]).fault_count == 0
    assert [f["kind"] for f in store.faults(file)] == ["unknown-parent"]


def test_a_link_to_what_grew_from_it_goes_when_it_goes_another_way(store: Store, tmp_path: Path) -> None:
    short = write(tmp_path / "short.jsonl", header(cwd="/a"), entry(1))
    long = write(tmp_path / "long.jsonl", header(cwd="/b"), entry(1), entry(2, 1))
    store.import_paths([short, long])
    assert store.session(long).grown_from == store.session(short).pk
    write(short, header(cwd="/a"), entry(1), entry(3, 1))
    store.import_paths([short])
    assert store.session(long).grown_from is None
