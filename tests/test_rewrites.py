"""A session that was rewritten in the database still gives the bytes it was imported with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessiondb import Store, rows
from sessiondb.connection import select_value, transaction
from sessiondb.sessions import SessionInfo
from tests.support import dump, entry, exported, header, sha, with_blobs, write

A, B, C = entry(1), entry(2, 1), entry(3, 2)
BLANK, BROKEN, GLUED = b" \r\n", b'{"type":\n', A[:-1] + B

Change = Callable[[list[bytes]], list[bytes]]
GoOn = Callable[[Store, SessionInfo], object]

IMPORTED = {
    "plain": [header(), A, B, C],
    "no newline at the end": [header(), A, B[:-1]],
    "byte order mark": [b"\xef\xbb\xbf" + header(), A, B],
    "blank and malformed": [b"\n", header(), BLANK, A, BROKEN, b"\xff\n", B, b"42\n", b"\n"],
    "glued and torn": [header(), GLUED, C[:40] + A, b'{"a"' + C],
    "version 1": [dump({"type": "session", "id": "old"}), dump({"type": "message", "timestamp": 1, "message": {}})],
    "no header": [A, B, C],
}

REWRITES: dict[str, Change] = {
    "as it is": lambda old: old,
    "another header": lambda old: [header(cwd="/elsewhere"), *old[1:]],
    "one line more at the start": lambda old: [header(), *old],
    "shorter": lambda old: old[:2],
    "longer": lambda old: [*old, *old],
    "all other": lambda _: [header("new"), *(entry(n, n - 1, "new") for n in range(7, 19))],
    "nothing": lambda _: [],
    "blank and malformed": lambda old: [BROKEN, b"\n", *old[1:], BROKEN],
}


def rewrite(store: Store, info: SessionInfo, lines: list[bytes]) -> None:
    db = store.connection
    with transaction(db):
        rows.replace_lines(db, rows.restart(db, info.pk), lines)


def append(store: Store, info: SessionInfo, line: bytes) -> None:
    db = store.connection
    digest = select_value(db, "SELECT digest FROM session WHERE pk = :pk", {"pk": info.pk})
    with transaction(db):
        indexer = rows.resume(db, info.pk)
        indexer.add(line)
        rows.write_rows(db, indexer.take_rows())
        rows.finish_session(db, indexer, digest=digest, imported_bytes=info.imported_bytes, now_ms=info.imported_ms)


def pairs() -> Iterator[object]:
    """Each rewrite behind each; the fast tests have each behind itself and one other."""
    for (i, first), (j, second) in itertools.product(enumerate(REWRITES), repeat=2):
        marks = [] if (j - i) % len(REWRITES) in (0, 3) else [pytest.mark.slow]
        yield pytest.param(REWRITES[first], REWRITES[second], id=f"{first}, {second}", marks=marks)


@pytest.mark.parametrize(("first", "second"), list(pairs()))
def test_after_two_rewrites_the_imported_bytes_are_there(
    store: Store, tmp_path: Path, first: Change, second: Change
) -> None:  # fmt: skip
    for name, lines in IMPORTED.items():
        file = write(tmp_path / f"{name}.jsonl", *lines)
        store.import_paths([file])
        now = lines if lines[-1].endswith(b"\n") else [*lines[:-1], lines[-1] + b"\n"]
        for change in (first, second):
            now = change(now)
            rewrite(store, store.session(file), now)
            assert exported(store, file) == b"".join(now), name
            assert exported(store, file, "original") == file.read_bytes(), name
            assert [v.state for v in store.verify(file)] == ["equal"], name
        assert store.check() == [], name


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_done_to_a_session_its_imported_bytes_stay(store: Store, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = rng.choice(list(IMPORTED.values()))
    file = write(tmp_path / "s.jsonl", *lines)
    store.import_paths([file])
    now = [*lines]
    for number in range(12):
        if rng.random() < 0.5 and now and now[-1].endswith(b"\n"):
            now = [*now, entry(100 + number, 1)]
            append(store, store.session(file), now[-1])
        else:
            now = rng.choice(list(REWRITES.values()))(now[:12])
            now = [line if line.endswith(b"\n") else line + b"\n" for line in now]
            rewrite(store, store.session(file), now)
        assert exported(store, file) == b"".join(now)
        assert exported(store, file, "original") == file.read_bytes()
        assert store.check() == []
    assert [v.state for v in store.verify(file)] == ["equal"]


def test_what_was_appended_before_a_rewrite_is_not_taken_for_imported(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A)
    store.import_paths([file])
    append(store, store.session(file), B)
    rewrite(store, store.session(file), [header(cwd="/v"), A, B, C])
    assert exported(store, file, "original") == header() + A
    assert exported(store, file) == header(cwd="/v") + A + B + C
    assert [v.state for v in store.verify(file)] == ["equal"]


def test_only_slots_that_change_are_kept_twice(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, B, C)
    store.import_paths([file])
    rewrite(store, store.session(file), [header(cwd="/v"), A, B, C])
    assert store.sql("SELECT pk & 4294967295 AS slot FROM original") == [{"slot": 0}]


def test_the_new_lines_may_be_read_from_the_old_and_a_failure_changes_nothing(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, B)
    store.import_paths([file])
    info, db = store.session(file), store.connection
    with transaction(db):
        lines = (line.replace(b'"hi"', b'"ho"') for line in rows.read_lines(db, info.pk))
        rows.replace_lines(db, rows.restart(db, info.pk), lines)
    changed = exported(store, file)
    assert changed == (header() + A + B).replace(b'"hi"', b'"ho"')
    with pytest.raises(ZeroDivisionError), transaction(db):
        rows.replace_lines(db, rows.restart(db, info.pk), (b"%d\n" % (1 // n) for n in (1, 0)))
    assert exported(store, file) == changed


def test_what_was_known_from_the_old_lines_gives_way(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, BROKEN, entry(2, 9))
    store.import_paths([file])
    before = store.session(file)
    rewrite(store, before, [header(cwd="/v", title="T"), A, entry(2, 1, "later", second=9)])
    after = store.session(file)
    assert (after.pk, after.cwd, after.fault_count, after.imported_bytes) == (before.pk, "/v", 0, before.imported_bytes)
    assert [e["id"] for e in store.entries(file)] == ["00000001", "00000002"]
    assert store.faults(file) == []
    assert after.imported_ms == before.imported_ms


def test_blobs_that_only_the_imported_lines_refer_to_are_still_referred_to(store: Store, tmp_path: Path) -> None:
    digest = sha(b"image")
    file = write(tmp_path / "s.jsonl", header(), with_blobs(digest))
    write(tmp_path / f"blobs/{digest}", b"image")
    store.import_paths([file])
    for text in ("one", "two"):
        rewrite(store, store.session(file), [header(), entry(7, None, text)])
        assert [h for h, _ in store.blobs.of_session(store.session(file).pk)] == [digest]


def test_the_saved_pointer_goes_on_naming_its_entry(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, B, C)
    store.import_paths([file])
    info, db = store.session(file), store.connection
    base = info.pk << 32
    for pointer, expected in [(None, None), (0, 0), (base + 1, base + 3), (base + 2, None), (base + 9, None)]:
        rewrite(store, info, [header(), A, B, C])
        db.execute("UPDATE session SET pointer_pk = ? WHERE pk = ?", (pointer, info.pk))
        rewrite(store, info, [header(), BLANK, BROKEN, A, C])
        assert store.sql("SELECT pointer_pk FROM session") == [{"pointer_pk": expected}]


def rewrite_and_append(store: Store, info: SessionInfo) -> None:
    rewrite(store, info, [header(), A])
    append(store, info, C)


WENT_ON: dict[str, GoOn] = {
    "appended to": lambda store, info: append(store, info, C),
    "rewritten": lambda store, info: rewrite(store, info, [header(cwd="/v"), A, B]),
    "rewritten as it was": lambda store, info: rewrite(store, info, [header(), A, B]),
    "rewritten and appended to": rewrite_and_append,
}

FILES = {
    "grew": header() + A + B + entry(9, 2, "from the agent"),
    "grew by half a line": header() + A + B + C[:30],
    "changed": header() + A.replace(b"hi", b"ho") + B,
    "was cut": header() + A,
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
@pytest.mark.parametrize("go_on", WENT_ON.values(), ids=WENT_ON)
def test_a_session_that_went_on_here_and_its_file_that_went_on_there_are_two(
    store: Store, tmp_path: Path, go_on: GoOn, content: bytes
) -> None:
    """Nothing is glued, nothing lost, neither hides the other."""
    file = write(tmp_path / "s.jsonl", header(), A, B)
    store.import_paths([file])
    ours = store.session(file)
    go_on(store, ours)
    as_is = exported(store, ours)
    file.write_bytes(content)
    assert store.import_paths([file]).imported == 1
    theirs = store.session(file)
    assert theirs.pk != ours.pk
    assert exported(store, theirs) == content
    assert exported(store, ours) == as_is
    assert exported(store, ours, "original") == header() + A + B
    assert {s.pk for s in store.sessions()} == {ours.pk, theirs.pk}
    assert store.import_paths([file]).unchanged == 1
    file.write_bytes(content + entry(10, 2))
    assert store.import_paths([file]).updated + store.import_paths([file]).unchanged >= 1
    assert exported(store, file) == content + entry(10, 2)


@pytest.mark.parametrize("go_on", WENT_ON.values(), ids=WENT_ON)
def test_a_file_that_stays_as_it_was_stays_with_its_session(store: Store, tmp_path: Path, go_on: GoOn) -> None:
    file = write(tmp_path / "s.jsonl", header(), A, B)
    store.import_paths([file])
    ours = store.session(file)
    go_on(store, ours)
    as_is = exported(store, ours)
    for _ in range(2):
        assert store.import_paths([file]).unchanged == 1
        file.write_bytes(header() + A + B)  # the same again, with another time
    write(tmp_path / "copy.jsonl", header(), A, B)
    assert store.import_paths([tmp_path]).imported == 0
    assert store.session(file).pk == store.session(tmp_path / "copy.jsonl").pk == ours.pk
    assert exported(store, file) == as_is
    assert len(store.sessions()) == 1
