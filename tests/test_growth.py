"""Files that grew, changed, moved or went between two imports (DESIGN: What is a session; invariants 1, 7, 10)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.sessions import SessionInfo
from tests.support import dump, entry, exported, header

_stamps = iter(range(1_700_000_000, 2_000_000_000))


def write(path: Path, *lines: bytes) -> Path:
    """Write the file in place, with a time of its own: what tells a change is the rule, not the clock's resolution."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    stamp = next(_stamps)
    os.utime(path, (stamp, stamp))
    return path


def append(path: Path, *lines: bytes) -> Path:
    return write(path, path.read_bytes(), *lines)


def ids(store: Store, ref: str | Path | SessionInfo) -> list[str]:
    return [e["id"] for e in store.entries(ref)]


def counts(report: object) -> dict[str, int]:
    names = ("imported", "updated", "unchanged", "replaced")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


# A file that grew


A, B, C = entry(1), entry(2, 1), entry(3, 2)
GROWTHS = {
    # name: (before, behind it, ids before, ids after, faults before, faults after)
    "whole lines": (header() + A, B + C, [1], [1, 2, 3], 0, 0),
    "no newline at the end before": (header() + A[:-1], b"\n" + B, [1], [1, 2], 0, 0),
    "only the newline came": (header() + A[:-1], b"\n", [1], [1], 0, 0),
    "no newline at the end after": (header() + A, B[:-1], [1], [1, 2], 0, 0),
    "a torn line is completed": (header() + A + B[:60], B[60:] + C, [1], [1, 2, 3], 1, 0),
    "a torn line is completed without its newline": (header() + A + B[:60], B[60:-1], [1], [1, 2], 1, 0),
    "a torn line grows and stays torn": (header() + A + B[:40], B[40:60], [1], [1], 1, 1),
    "a torn line gets a whole one glued on": (header() + A + B[:60], C, [1], [1, 3], 1, 2),  # its parent is lost
    "a second entry is glued to the last": (header() + A[:-1], B, [1], [1, 2], 0, 1),
    "inside the second of two glued entries": (header() + A[:-1] + B[:60], B[60:] + C, [1], [1, 2, 3], 1, 1),
    "a third is glued on": (header() + A[:-1] + B[:-1], C, [1, 2], [1, 2, 3], 1, 1),
    "inside a character": (header() + entry(1, None, "é")[:-6], entry(1, None, "é")[-6:], [], [1], 1, 0),
    "blank lines": (header() + A, b"\n \n\r\n", [1], [1], 0, 0),
    "a carriage return, then its newline": (header() + A[:-1] + b"\r", b"\n" + B, [1], [1, 2], 0, 0),
    "a header alone gets entries": (header(), A + B, [], [1, 2], 0, 0),
    "a torn header is completed": (header()[:50], header()[50:] + A, [], [1], 1, 0),
}


@pytest.mark.parametrize("case", GROWTHS.values(), ids=GROWTHS)
@pytest.mark.parametrize("by", ["import", "refresh"])
def test_a_file_that_grew_adds_exactly_its_tail(
    store: Store, tmp_path: Path, by: str, case: tuple[bytes, bytes, list[int], list[int], int, int]
) -> None:
    before, tail, ids_before, ids_after, faults_before, faults_after = case
    file = write(tmp_path / "in/2026_s-1.jsonl", before)
    store.import_paths([tmp_path / "in"])
    first = store.session(file)
    assert ids(store, file) == [f"{n:08x}" for n in ids_before]
    assert len(store.faults(file)) == faults_before
    append(file, tail)
    report = store.refresh() if by == "refresh" else store.import_paths([tmp_path / "in"])
    assert counts(report) == {"updated": 1}
    info = store.session(file)
    assert (info.pk, info.superseded, info.replaced_from) == (first.pk, False, None)
    assert ids(store, file) == [f"{n:08x}" for n in ids_after]
    assert len(store.faults(file)) == info.fault_count == faults_after
    assert exported(store, file) == exported(store, file, "original") == before + tail
    assert (info.byte_count, info.entry_count) == (len(before + tail), len(ids_after))
    assert [v.state for v in store.verify()] == ["equal"]


def test_a_grown_session_equals_one_imported_whole(store: Store, tmp_path: Path) -> None:
    """Invariant 2, byte by byte: cut anywhere, the same entries, faults and list row come out."""
    whole = header() + A + b"\n" + entry(2, 1, "é", second=5)[:-1] + C + b"{torn\n" + entry(4, 3, "end", second=9)
    reference = write(tmp_path / "whole.jsonl", whole)
    store.import_paths([reference])
    expected = store.session(reference)
    expected_faults = store.faults(reference)
    for cut in range(1, len(whole), 7):
        file = write(tmp_path / f"cut-{cut}.jsonl", whole[:cut])
        assert store.import_paths([file]).imported == 1
        write(file, whole)
        assert counts(store.import_paths([file])) in ({"updated": 1}, {"unchanged": 1}), cut
        info = store.session(file)
        for name in ("id", "entry_count", "line_count", "message_count", "fault_count", "modified_ms", "first_message"):
            assert getattr(info, name) == getattr(expected, name), (cut, name)
        assert store.faults(file) == expected_faults, cut
        assert exported(store, file) == whole, cut


def test_the_list_row_follows_the_growth(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1, second=1))
    store.import_paths([file])
    before = store.session(file)
    name = {"type": "session_info", "id": "000000aa", "parentId": "00000001", "timestamp": "2026-01-01T00:00:08.000Z"}
    append(file, dump({**name, "name": "Named"}), entry(2, 1, "later", second=9))
    store.import_paths([file])
    after = store.session(file)
    assert (after.title, after.message_count, after.first_message) == ("Named", 2, "hi")
    assert (after.modified_ms or 0) - (before.modified_ms or 0) == 8000
    assert after.created_ms == before.created_ms


def test_a_version_1_session_keeps_its_ids_as_it_grows(store: Store, tmp_path: Path) -> None:
    lines = [
        dump(
            {"type": "message", "timestamp": f"2026-01-01T00:00:0{n}.000Z", "message": {"role": "user", "content": "x"}}
        )
        for n in range(5)
    ]
    v1_header = dump({"type": "session", "id": "old", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"})
    whole = write(tmp_path / "whole/s.jsonl", v1_header, *lines, b"\n")
    file = write(tmp_path / "s.jsonl", v1_header, *lines[:2])
    store.import_paths([file, whole])
    for line in lines[2:]:
        append(file, line)
        store.import_paths([file])
    assert store.entries(file) == store.entries(whole)
    assert [e["parentId"] for e in store.entries(file)] == [None, *ids(store, file)[:-1]]


def test_refresh_takes_in_what_grew_and_what_came_and_nothing_else(store: Store, tmp_path: Path) -> None:
    grows = write(tmp_path / "in/grows.jsonl", header("grows"), A)
    alone = write(tmp_path / "out/alone.jsonl", header("alone"), A)
    write(tmp_path / "in/stays.jsonl", header("stays"), A)
    store.import_paths([tmp_path / "in", alone])
    append(grows, B)
    append(alone, B)
    came = write(tmp_path / "in/new/came.jsonl", header("came"), A)
    write(tmp_path / "out/beside.jsonl", header("beside"), A)
    assert counts(store.refresh()) == {"imported": 1, "updated": 2, "unchanged": 1}
    for file in (grows, alone, came):
        assert exported(store, file) == file.read_bytes()
    assert sorted(s.id for s in store.sessions()) == ["alone", "came", "grows", "stays"]


def test_a_file_that_came_to_be_a_session_is_taken_in_by_refresh(store: Store, tmp_path: Path) -> None:
    """An agent makes the file first and writes to it later."""
    file = write(tmp_path / "in/s.jsonl", b"")
    assert [s.path for s in store.import_paths([tmp_path / "in"]).skipped] == [str(file)]
    append(file, header(), A)
    assert counts(store.refresh()) == {"imported": 1}
    assert exported(store, file) == file.read_bytes()


def test_refresh_before_any_import_does_nothing(store: Store) -> None:
    report = store.refresh()
    assert (report.files, report.imported, report.skipped) == (0, 0, [])


# A file whose old part changed


CHANGES = {
    "a byte in the middle": header() + A.replace(b'"hi"', b'"ho"') + B,
    "the header": header(cwd="/v") + A + B,
    "the last byte": header() + A + B[:-1] + b" ",
    "an entry went": header() + B,
    "shrunk to its first lines": header() + A,
    "shrunk into a line": header() + A + B[:30],
    "the old part changed and it grew": header() + A.replace(b'"hi"', b'"ho"') + B + C,
    "another session altogether": header("s-2") + C,
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_changed_file_becomes_a_new_session_and_the_old_one_is_kept(
    store: Store, tmp_path: Path, changed: bytes
) -> None:
    """Invariant 7: an agent overwrites a file that it cannot read."""
    old_bytes = header() + A + B
    file = write(tmp_path / "s.jsonl", old_bytes)
    store.import_paths([file])
    old = store.session(file)
    write(file, changed)
    report = store.import_paths([file])
    assert counts(report) == {"imported": 1, "replaced": 1}
    new = store.session(file)
    assert (new.replaced_from, new.superseded) == (old.pk, False)
    assert exported(store, file) == changed
    assert [s.pk for s in store.sessions()] == [new.pk]
    by_key = {s.pk: s for s in store.sessions(superseded=True)}
    assert set(by_key) == {old.pk, new.pk}
    assert by_key[old.pk].superseded
    assert exported(store, by_key[old.pk]) == exported(store, by_key[old.pk], "original") == old_bytes
    assert store.session(new.id).pk == new.pk
    assert [v.state for v in store.verify(file)] == ["equal"]
    assert all(v.is_good for v in store.verify())


def test_a_file_changed_back_is_the_first_session_again(store: Store, tmp_path: Path) -> None:
    first_bytes, second_bytes = header() + A, header() + B
    file = write(tmp_path / "s.jsonl", first_bytes)
    store.import_paths([file])
    first = store.session(file).pk
    write(file, second_bytes)
    store.import_paths([file])
    second = store.session(file).pk
    write(file, first_bytes)
    store.import_paths([file])
    assert store.session(file).pk == first
    assert exported(store, file) == first_bytes
    assert [s.pk for s in store.sessions()] == [first]
    assert {s.pk: exported(store, s) for s in store.sessions(superseded=True)} == {
        first: first_bytes,
        second: second_bytes,
    }


def test_a_file_cut_short_and_grown_again_as_before_is_the_first_session_again(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, B)
    store.import_paths([file])
    first = store.session(file).pk
    write(file, header(), A)
    store.import_paths([file])
    assert store.session(file).pk != first
    append(file, B)
    store.import_paths([file])
    assert exported(store, file) == header() + A + B
    assert len(store.sessions()) == 1
    assert not store.session(file).superseded


def test_a_superseded_session_is_reached_by_no_id_while_the_new_one_has_it(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A)
    for text in ("one", "two", "three"):
        write(file, header(), entry(1, None, text))
        store.import_paths([file])
    assert exported(store, "s-1") == exported(store, file) == header() + entry(1, None, "three")
    assert len(store.sessions()) == 1
    assert len(store.sessions(superseded=True)) == 3


def test_a_change_that_keeps_size_and_time_is_seen(store: Store, tmp_path: Path) -> None:
    """`sed -i` and `touch -r`: the file's size and time are as before, its bytes are not."""
    file = write(tmp_path / "s.jsonl", header(), entry(1, None, "aaaa"))
    store.import_paths([file])
    seen = file.stat()
    file.write_bytes(header() + entry(1, None, "bbbb"))
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    store.import_paths([file])
    assert exported(store, file) == file.read_bytes()


# Several paths


def test_of_two_equal_files_the_one_that_grew_goes_its_own_way(store: Store, tmp_path: Path) -> None:
    grows = write(tmp_path / "a.jsonl", header(), A)
    stays = write(tmp_path / "b.jsonl", header(), A)
    store.import_paths([grows, stays])
    append(grows, B)
    store.import_paths([grows, stays])
    assert exported(store, grows) == header() + A + B
    assert exported(store, stays) == header() + A
    assert store.session(grows).grown_from == store.session(stays).pk
    assert len(store.sessions()) == 2
    append(stays, B)
    store.import_paths([grows, stays])
    assert store.session(grows).pk == store.session(stays).pk
    assert exported(store, stays) == header() + A + B
    assert [v.state for v in store.verify(grows)] == ["equal", "equal"]


def test_of_two_equal_files_the_one_that_changed_supersedes_nothing(store: Store, tmp_path: Path) -> None:
    changes = write(tmp_path / "a.jsonl", header(), A)
    stays = write(tmp_path / "b.jsonl", header(), A)
    store.import_paths([changes, stays])
    write(changes, header(), B)
    store.import_paths([changes, stays])
    assert exported(store, changes) == header() + B
    assert exported(store, stays) == header() + A
    assert not store.session(stays).superseded
    assert len(store.sessions()) == 2


def test_two_equal_files_that_grow_alike_stay_one_session(store: Store, tmp_path: Path) -> None:
    files = [write(tmp_path / name, header(), A) for name in ("a.jsonl", "b.jsonl")]
    store.import_paths(files)
    for file in files:
        append(file, B)
    store.import_paths(files)
    assert [exported(store, f) for f in files] == [header() + A + B] * 2
    assert store.session(files[0]).pk == store.session(files[1]).pk
    assert [sorted(s.paths) for s in store.sessions()] == [[str(f) for f in files]]


def test_a_file_written_anew_with_the_same_bytes_is_unchanged(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A)
    store.import_paths([file])
    before = store.session(file)
    os.replace(write(tmp_path / "temporary", file.read_bytes()), file)
    assert counts(store.import_paths([file])) == {"unchanged": 1}
    assert store.session(file) == before


def test_a_moved_file_answers_to_its_new_path(store: Store, tmp_path: Path) -> None:
    old = write(tmp_path / "in/a/s.jsonl", header(), A)
    store.import_paths([tmp_path / "in"])
    pk = store.session(old).pk
    new = tmp_path / "in/b/moved.jsonl"
    new.parent.mkdir()
    old.rename(new)
    report = store.refresh()
    assert counts(report) == {"unchanged": 1}
    assert report.vanished == [str(old)]
    assert store.session(new).pk == pk
    assert store.session("s-1").paths[0] == str(new)
    append(new, B)
    assert counts(store.refresh()) == {"updated": 1}
    assert exported(store, new) == header() + A + B
    assert len(store.sessions()) == 1


def test_two_files_that_changed_places_answer_to_their_new_paths(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", header("one"), A)
    two = write(tmp_path / "two.jsonl", header("two"), B)
    store.import_paths([one, two])
    first, second = one.read_bytes(), two.read_bytes()
    write(one, second)
    write(two, first)
    store.import_paths([one, two])
    assert (store.session(one).id, store.session(two).id) == ("two", "one")
    assert {s.id for s in store.sessions()} == {"one", "two"}
    assert len(store.sessions(superseded=True)) == 2


def test_a_file_cut_to_nothing_is_skipped_and_its_session_kept(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "in/s.jsonl", header(), A)
    store.import_paths([tmp_path / "in"])
    write(file, b"")
    report = store.refresh()
    assert [s.path for s in report.skipped] == [str(file)]
    assert counts(report) == {}
    assert exported(store, "s-1") == header() + A
    assert [s.id for s in store.sessions()] == ["s-1"]
    write(file, header(), A, B)
    store.refresh()
    assert exported(store, file) == header() + A + B
    assert len(store.sessions()) == 1


def test_a_deleted_file_that_comes_back_different_costs_nothing(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "in/s.jsonl", header(), A)
    store.import_paths([tmp_path / "in"])
    file.unlink()
    store.refresh()
    write(file, header(), B)
    store.refresh()
    assert exported(store, file) == header() + B
    assert {exported(store, s) for s in store.sessions(superseded=True)} == {header() + A, header() + B}


# Long random sequences against a plain model


NAMES = ["a.jsonl", "b.jsonl", "sub/c.jsonl", "sub/d.jsonl", "e_x.jsonl"]


def random_content(rng: random.Random) -> bytes:
    lines = [header(rng.choice(["s-1", "s-2"]))] if rng.random() < 0.8 else []
    lines += [random_piece(rng) for _ in range(rng.randint(0, 4))]
    return b"".join(lines)


def random_piece(rng: random.Random) -> bytes:
    whole = entry(rng.randint(1, 5), rng.choice([None, 1, 2, 3, 9]), rng.choice(["x", "é", "long " * 9]))
    kind = rng.random()
    if kind < 0.6:
        return whole
    if kind < 0.75:
        return whole[: rng.randint(1, len(whole) - 1)]
    return rng.choice([b"\n", b"\r\n", b"noise\n", b"\xff\n", b"42\n", b"{broken\n", whole[:-1]])


def step(rng: random.Random, folder: Path) -> None:
    there = [folder / n for n in NAMES if (folder / n).exists()]
    one, two = folder / rng.choice(NAMES), folder / rng.choice(NAMES)
    action = rng.choice(["append"] * 6 + ["rewrite", "truncate", "delete", "copy", "copy", "rename", "new", "flip"])
    if not there or action == "new":
        write(one, random_content(rng))
        return
    source = rng.choice(there)
    content = source.read_bytes()
    if action == "append":
        append(source, *(random_piece(rng) for _ in range(rng.randint(1, 3))))
    elif action == "rewrite":
        write(source, random_content(rng))
    elif action == "truncate":
        write(source, content[: rng.randint(0, len(content))])
    elif action == "flip" and content:
        at = rng.randrange(len(content))
        write(source, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif action == "delete":
        source.unlink()
    elif action == "copy":
        write(two, content)
    elif action == "rename" and source != two:
        two.parent.mkdir(exist_ok=True)
        source.rename(two)


def is_session(content: bytes) -> bool:
    return any(line.lstrip(b" \t\r\f\v").startswith(b"{") for line in content.split(b"\n"))


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 60))])
def test_after_any_sequence_every_live_file_is_held_and_nothing_seen_is_lost(
    store: Store, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "in"
    folder.mkdir()
    seen: set[bytes] = set()
    for number in range(30):
        for _ in range(rng.randint(1, 3)):
            step(rng, folder)
        report = store.import_paths([folder])
        live = {p: p.read_bytes() for p in sorted(folder.rglob("*.jsonl"))}
        taken = {p: content for p, content in live.items() if is_session(content)}
        where = f"seed {seed}, step {number}"
        assert {Path(s.path) for s in report.skipped} == live.keys() - taken.keys(), where
        listed = {s.pk for s in store.sessions()}
        for path, content in taken.items():
            info = store.session(path)
            assert exported(store, info) == content, f"{where}, {path.name}"
            assert info.pk in listed, f"{where}, {path.name}: superseded"
        by_bytes: dict[bytes, set[int]] = {}
        for path, content in taken.items():
            by_bytes.setdefault(content, set()).add(store.session(path).pk)
        assert all(len(keys) == 1 for keys in by_bytes.values()), where
        seen.update(taken.values())
        held = [exported(store, s) for s in store.sessions(superseded=True)]
        assert all(any(h.startswith(content) for h in held) for content in seen), where
        again = store.import_paths([folder])
        assert counts(again) == ({"unchanged": len(taken)} if taken else {}), where
        states = {Path(v.path): v.state for v in store.verify()}
        assert {p: states[p] for p in taken} == dict.fromkeys(taken, "equal"), where
        assert store.check() == [], where
