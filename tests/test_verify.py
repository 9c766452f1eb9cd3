"""`verify` says of each source whether every byte of it is held: may it be deleted? (the issue's part 6; B64)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.verify import Verdict
from tests.support import GOLDEN, dump, entry, exported, header, sha, tables, with_blobs, write

LINES = [
    header(),
    entry(1),
    b"\n",
    entry(2, 1, "é"),
    b"{torn\n",
    entry(3, 2)[:-1] + entry(4, 3),
    b"\xff\xfe no text\r\n",
    entry(5, 4)[:-1],
]
"""Every kind of line, the last without its newline."""


def only(store: Store) -> Verdict:
    (verdict,) = store.verify()
    return verdict


def told(verdict: Verdict) -> tuple[str, int, bool, bool]:
    return verdict.state, verdict.lines, verdict.is_good, verdict.is_deletable


def test_an_untouched_source_is_equal_and_may_be_deleted(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *LINES)
    store.import_paths([file])
    verdict = only(store)
    assert told(verdict) == ("equal", 0, True, True)
    assert (verdict.session, verdict.path, verdict.ahead, verdict.missing_blobs) == ("s-1", str(file), 0, ())


@pytest.mark.parametrize("where", ["first byte", "middle", "last byte"])
@pytest.mark.parametrize("number", range(1, len(LINES) + 1))
def test_one_flipped_byte_is_found_on_its_line(store: Store, tmp_path: Path, number: int, where: str) -> None:
    file = write(tmp_path / "s.jsonl", *LINES)
    store.import_paths([file])
    changed = list(LINES)
    line = bytearray(changed[number - 1])
    at = {"first byte": 0, "middle": len(line) // 2, "last byte": -1}[where]
    line[at] ^= 1
    changed[number - 1] = bytes(line)
    write(file, *changed)
    assert told(only(store)) == ("changed", number, False, False)


def test_a_flipped_byte_far_into_a_large_file_is_found_on_its_line(store: Store, tmp_path: Path) -> None:
    lines = [header(), *(entry(n, n - 1 or None, "x" * 3000) for n in range(1, 1500))]
    file = write(tmp_path / "s.jsonl", *lines)
    store.import_paths([file])
    lines[1400] = lines[1400].replace(b"xxx", b"xyx", 1)
    write(file, *lines)
    assert told(only(store)) == ("changed", 1401, False, False)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("newline", [True, False], ids=["newline at the end", "none"])
def test_a_source_that_grew_tells_how_many_lines(store: Store, tmp_path: Path, count: int, newline: bool) -> None:
    file = write(tmp_path / "s.jsonl", *LINES[:-1])
    store.import_paths([file])
    tail = b"".join(entry(n, n - 1) for n in range(6, 6 + count))
    write(file, *LINES[:-1], tail if newline else tail[:-1])
    assert told(only(store)) == ("grown", count, False, False)
    store.refresh()
    assert told(only(store)) == ("equal", 0, True, True)


SHORTER = {
    "a line less": (LINES[:-1], len(LINES)),
    "half the last line": ([*LINES[:-1], LINES[-1][:20]], len(LINES)),
    "only the header": (LINES[:1], 2),
    "empty": ([], 1),
    "a line less in the middle": ([*LINES[:3], *LINES[4:]], 4),
    "a line more in the middle": ([*LINES[:3], b"\n", *LINES[3:]], 4),
}


@pytest.mark.parametrize(("lines", "first"), SHORTER.values(), ids=SHORTER)
def test_a_source_that_lost_or_gained_bytes_is_changed(
    store: Store, tmp_path: Path, lines: list[bytes], first: int
) -> None:
    file = write(tmp_path / "s.jsonl", *LINES)
    store.import_paths([file])
    write(file, *lines)
    assert told(only(store)) == ("changed", first, False, False)


def test_a_change_that_keeps_size_and_time_is_found(store: Store, tmp_path: Path) -> None:
    """`verify` reads the bytes, whatever the file's facts say."""
    file = write(tmp_path / "s.jsonl", header(), entry(1, text="aaaa"))
    store.import_paths([file])
    seen = file.stat()
    file.write_bytes(file.read_bytes().replace(b"aaaa", b"bbbb"))
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert told(only(store)) == ("changed", 2, False, False)


def test_a_source_that_is_gone_is_good_by_its_digest_and_cannot_be_deleted(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "in/s.jsonl", *LINES)
    store.import_paths([tmp_path / "in"])
    file.unlink()
    assert told(only(store)) == ("gone", 0, True, False)
    store.refresh()
    assert told(only(store)) == ("gone", 0, True, False)
    (tmp_path / "in").rmdir()
    assert told(only(store)) == ("gone", 0, True, False)


def test_what_stands_in_a_source_s_place_and_cannot_be_read_hangs_nothing(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *LINES)
    store.import_paths([file])
    file.unlink()
    file.mkdir()
    assert told(only(store)) == ("unreadable", 0, False, False)
    assert only(store).detail
    file.rmdir()
    os.mkfifo(file)
    assert told(only(store)) == ("unreadable", 0, False, False)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
def test_a_source_whose_bytes_cannot_be_read_is_unreadable(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *LINES)
    store.import_paths([file])
    file.unlink()
    file.symlink_to("/proc/self/mem")
    verdict = only(store)
    assert (verdict.state, verdict.is_deletable) == ("unreadable", False)


def test_each_path_of_a_session_has_a_verdict_of_its_own(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        write(tmp_path / f"{name}.jsonl", *LINES)
    store.import_paths([tmp_path])
    (tmp_path / "b.jsonl").unlink()
    write(tmp_path / "c.jsonl", *LINES, b"\n", entry(9))
    write(tmp_path / "d.jsonl", b"[", *LINES)
    states = {Path(v.path).name: v.state for v in store.verify("s-1")}
    assert states == {"a.jsonl": "equal", "b.jsonl": "gone", "c.jsonl": "grown", "d.jsonl": "changed"}
    assert [Path(v.path).name for v in store.verify() if v.is_deletable] == ["a.jsonl"]


def test_only_the_session_that_was_asked_for_is_verified(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", header("one"), entry(1))
    two = write(tmp_path / "two.jsonl", header("two"), entry(2))
    store.import_paths([one, two])
    assert [v.session for v in store.verify("one")] == ["one"]
    assert [v.session for v in store.verify(two)] == ["two"]
    assert sorted(v.session for v in store.verify()) == ["one", "two"]


def test_a_source_may_be_deleted_only_when_every_blob_is_held(store: Store, tmp_path: Path) -> None:
    here, missing = b"here", b"missing"
    write(tmp_path / "in/blobs" / sha(here), here)
    file = write(tmp_path / "in/s.jsonl", header(), with_blobs(sha(here), sha(missing)))
    store.import_paths([tmp_path / "in"])
    verdict = only(store)
    assert (verdict.state, verdict.missing_blobs, verdict.is_deletable) == ("equal", (sha(missing),), False)
    write(tmp_path / "in/blobs" / sha(missing), missing)
    assert not only(store).is_deletable
    store.refresh()
    assert told(only(store)) == ("equal", 0, True, True)
    assert exported(store, file) == file.read_bytes()


def test_verify_reads_only(store: Store, tmp_path: Path) -> None:
    for file in GOLDEN.rglob("*.jsonl"):
        write(tmp_path / "in" / file.name, file.read_bytes())
    store.import_paths([tmp_path / "in"])
    write(tmp_path / "in/01-plain.jsonl", dump({"changed": True}))
    (tmp_path / "in/02-blank-lines.jsonl").unlink()
    before = tables(store)
    states = {Path(v.path).name: v.state for v in store.verify()}
    assert {n: s for n, s in states.items() if s != "equal"} == {
        "01-plain.jsonl": "changed",
        "02-blank-lines.jsonl": "gone",
    }
    assert tables(store) == before


def test_a_session_whose_file_holds_other_bytes_now_is_held_against_its_digest(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))
    store.import_paths([file])
    write(file, header(), entry(1, text="other"))
    assert told(only(store)) == ("changed", 2, False, False)
    store.import_paths([file])
    verdicts = list(store.verify())
    assert sorted((v.path, v.state, v.is_good, v.is_deletable) for v in verdicts) == [
        ("", "gone", True, False),
        (str(file), "equal", True, True),
    ]
