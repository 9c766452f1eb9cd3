"""Files that grow, change, move, vanish and come back: what becomes of their sessions (DESIGN, "What is a session")."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sessiondb import Store
from sessiondb.errors import AmbiguousSessionError, SessionNotFoundError

HEADER = b'{"type":"session","version":3,"id":"%s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'


def header(session_id: str = "s") -> bytes:
    return HEADER % session_id.encode()


def line(number: int, text: str = "hi") -> bytes:
    return (
        b'{"type":"message","id":"%08x","parentId":%s,"timestamp":"2026-01-01T00:00:%02d.000Z",'
        b'"message":{"role":"user","content":"%s"}}\n'
        % (number, b'"%08x"' % (number - 1) if number > 1 else b"null", number % 60, text.encode())
    )


def exported(store: Store, ref: object) -> bytes:
    out = io.BytesIO()
    store.export(ref, out)  # type: ignore[arg-type]  # any ref
    return out.getvalue()


def test_a_grown_file_adds_exactly_its_tail(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(header() + line(1))
    store.import_paths([file])
    before = store.session(file)
    with file.open("ab") as stream:
        stream.write(line(2) + line(3))
    report = store.import_paths([file])
    assert (report.imported, report.updated, report.unchanged) == (0, 1, 0)
    after = store.session(file)
    assert (after.pk, after.line_count, after.message_count) == (before.pk, 4, 3)
    assert exported(store, file) == file.read_bytes()
    assert [e["parentId"] for e in store.entries(file)] == [None, "00000001", "00000002"]


GROWTH = {
    "behind a finished line": (line(1), line(2)),
    "the last line had no newline": (line(1)[:-1], b"\n" + line(2)),
    "the last line was cut and is finished": (line(1)[:60], line(1)[60:] + line(2)),
    "glued to a line without newline": (line(1)[:-1], line(2)),
    "a cut line stays cut": (line(1)[:60], b"\n" + line(2)),
    "blank lines": (b"\n", b"\n\n" + line(1)),
    "parents come later": (line(3), line(2) + line(1)),
    "the same id again": (line(1), line(1, "other") + line(2)),
}


@pytest.mark.parametrize("name", GROWTH)
def test_growth_gives_what_one_import_of_the_whole_file_gives(
    open_store: Callable[..., Store], tmp_path: Path, name: str
) -> None:
    first, tail = GROWTH[name]
    file = tmp_path / "a.jsonl"
    grown, whole = open_store("grown.db"), open_store("whole.db")
    file.write_bytes(header() + first)
    grown.import_paths([file])
    with file.open("ab") as stream:
        stream.write(tail)
    assert grown.refresh().updated == 1
    whole.import_paths([file])
    assert exported(grown, file) == file.read_bytes()
    assert grown.entries(file) == whole.entries(file)
    assert grown.faults(file) == whole.faults(file)
    columns = "id, dialect, title, first_message, created_ms, modified_ms, message_count, entry_count, line_count"
    assert grown.sql(f"SELECT {columns} FROM sessions") == whole.sql(f"SELECT {columns} FROM sessions")


def test_refresh_takes_in_what_came_and_grew_under_the_known_roots(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(header("a") + line(1))
    store.import_paths([folder])
    (folder / "deep/b.jsonl").write_bytes(header("b") + line(1))
    (folder / "a.jsonl").write_bytes(header("a") + line(1) + line(2))
    (tmp_path / "elsewhere.jsonl").write_bytes(header("c"))
    report = store.refresh()
    assert (report.imported, report.updated) == (1, 1)
    assert {s.id for s in store.sessions()} == {"a", "b"}


def test_a_changed_file_becomes_a_new_session_and_the_old_one_is_kept(store: Store, tmp_path: Path) -> None:
    """The agents themselves overwrite a file they cannot read (B05)."""
    file = tmp_path / "a.jsonl"
    old_bytes, new_bytes = header() + line(1), header() + line(1, "no")
    file.write_bytes(old_bytes)
    store.import_paths([file])
    old = store.session(file)
    file.write_bytes(new_bytes)
    report = store.import_paths([file])
    assert (report.imported, report.replaced) == (1, 1)
    new = store.session(file)
    assert (new.replaced_from, new.superseded) == (old.pk, False)
    assert exported(store, old) == old_bytes
    assert exported(store, file) == new_bytes
    assert [s.pk for s in store.sessions()] == [new.pk]
    assert {s.pk for s in store.sessions(superseded=True)} == {old.pk, new.pk}
    assert store.session("s").pk == new.pk
    file.write_bytes(old_bytes)
    store.import_paths([file])
    assert store.session(file).pk == old.pk
    assert [s.pk for s in store.sessions()] == [old.pk]


@pytest.mark.parametrize("rest", [b"", b"\n \n", b"\x00\x01\x02"], ids=["empty", "blank", "binary"])
def test_a_file_that_lost_its_session_is_skipped_and_the_session_stays(
    store: Store, tmp_path: Path, rest: bytes
) -> None:
    file = tmp_path / "a.jsonl"
    content = header() + line(1)
    file.write_bytes(content)
    store.import_paths([file])
    file.write_bytes(rest)
    report = store.import_paths([file])
    assert [s.path for s in report.skipped] == [str(file)]
    assert exported(store, "s") == content
    assert not [v for v in store.verify() if v.is_deletable]


def test_identical_bytes_under_two_paths_are_one_session_that_answers_to_both(store: Store, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(header() + line(1))
    report = store.import_paths([tmp_path])
    assert (report.imported, report.unchanged, report.known_elsewhere) == (1, 1, 1)
    assert store.session(tmp_path / "a.jsonl") == store.session(tmp_path / "b.jsonl")
    assert len(store.session("s").paths) == 2


def test_of_two_twins_the_one_that_grows_becomes_a_session_of_its_own(store: Store, tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file in (a, b):
        file.write_bytes(header() + line(1))
    store.import_paths([tmp_path])
    a.write_bytes(header() + line(1) + line(2))
    report = store.import_paths([tmp_path])
    assert (report.imported, report.replaced) == (1, 0)
    assert store.session(a).grown_from == store.session(b).pk
    assert exported(store, b) == b.read_bytes()
    b.write_bytes(a.read_bytes())
    store.import_paths([tmp_path])
    assert store.session(a).pk == store.session(b).pk
    assert len(store.sessions()) == 1


def test_a_moved_file_answers_to_its_new_path_and_the_old_path_is_named_once(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(header() + line(1))
    store.import_paths([folder])
    (folder / "a.jsonl").rename(folder / "b.jsonl")
    report = store.import_paths([folder])
    assert (report.imported, report.unchanged, report.vanished) == (0, 1, [str(folder / "a.jsonl")])
    assert store.session(folder / "b.jsonl").id == "s"
    assert store.import_paths([folder]).vanished == []
    with (folder / "b.jsonl").open("ab") as stream:
        stream.write(line(2))
    assert store.refresh().updated == 1


def test_untouched_bytes_with_a_new_time_and_inode_are_unchanged(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(header() + line(1))
    store.import_paths([file])
    shutil.copy(file, tmp_path / "copy")
    (tmp_path / "copy").rename(file)
    os.utime(file, (1, 1))
    report = store.import_paths([file])
    assert (report.imported, report.updated, report.unchanged) == (0, 0, 1)


def test_equal_ids_with_different_bytes_are_two_sessions_and_the_id_is_ambiguous(store: Store, tmp_path: Path) -> None:
    """B31."""
    (tmp_path / "a.jsonl").write_bytes(header("harbor") + line(1, "one"))
    (tmp_path / "b.jsonl").write_bytes(header("harbor") + line(1, "two"))
    report = store.import_paths([tmp_path])
    assert report.imported == 2
    assert report.warnings == ["2 different sessions have the id harbor; name them by path"]
    with pytest.raises(AmbiguousSessionError) as caught:
        store.session("harbor")
    assert all(name in str(caught.value) for name in ("a.jsonl", "b.jsonl"))
    assert store.session(tmp_path / "b.jsonl").first_message == "two"
    with pytest.raises(SessionNotFoundError):
        store.session("nobody")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_longer_export_of_the_same_session_is_linked_whatever_the_order(
    store: Store, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """B31: exported again, longer, with another header."""
    other = header("harbor").replace(b"/w", b"/elsewhere")
    bodies = [line(1), line(1) + line(2), line(1) + line(2) + line(3)]
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for file, body in zip(files, bodies, strict=True):
        file.write_bytes((header("harbor") if file == files[0] else other) + body)
    for number in order:
        assert store.import_paths([files[number]]).warnings == []
    grown = [store.session(file).grown_from for file in files]
    assert grown == [None, store.session(files[0]).pk, store.session(files[1]).pk]


def new(folder: Path, step: int, rng: random.Random, _file: Path) -> None:
    (folder / f"{step}.jsonl").write_bytes(header(rng.choice("xyz")) + line(1, str(rng.randrange(3))))


def append(_folder: Path, _step: int, rng: random.Random, file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"".join(line(rng.randrange(1, 9)) for _ in range(rng.randrange(1, 4))))


def cut_line(_folder: Path, _step: int, rng: random.Random, file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(line(rng.randrange(1, 9))[: rng.randrange(1, 90)])


def finish_line(_folder: Path, _step: int, _rng: random.Random, file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b'"}\n')


def rewrite(_folder: Path, _step: int, _rng: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"hi"', b'"ho"', 1))


def truncate(_folder: Path, _step: int, rng: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(1, file.stat().st_size)])


def delete(_folder: Path, _step: int, _rng: random.Random, file: Path) -> None:
    file.unlink()


def copy(folder: Path, step: int, _rng: random.Random, file: Path) -> None:
    shutil.copy(file, folder / f"{step}.jsonl")


def rename(folder: Path, step: int, _rng: random.Random, file: Path) -> None:
    file.rename(folder / f"{step}.jsonl")


def touch(_folder: Path, step: int, _rng: random.Random, file: Path) -> None:
    os.utime(file, (step + 1, step + 1))


STEPS = (append, append, cut_line, finish_line, rewrite, truncate, delete, copy, rename, touch, new)


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_keep_every_live_file_s_bytes(store: Store, tmp_path: Path, seed: int) -> None:
    """A plain model: after each import every file that is there is what the session its path names gives back."""
    rng = random.Random(seed)
    folder = tmp_path / "in"
    folder.mkdir()
    ever: set[bytes] = set()
    for step in range(25):
        files = sorted(folder.iterdir())
        change = rng.choice(STEPS) if files else new
        change(folder, step, rng, rng.choice(files) if files else folder)
        report = store.import_paths([folder])
        skipped = {Path(s.path) for s in report.skipped}
        live = [file for file in folder.iterdir() if file not in skipped]
        assert report.imported + report.updated + report.unchanged == len(live)
        for file in live:
            assert exported(store, file) == file.read_bytes()
            ever.add(file.read_bytes())
        states = {v.path: v.state for v in store.verify()}
        assert {states[str(file)] for file in live} <= {"equal"}
    # Every content that was ever seen is still held, alone or as the beginning of what grew from it.
    held = [exported(store, info) for info in store.sessions(superseded=True)]
    assert all(any(content.startswith(seen) for content in held) for seen in ever)
