"""Which session a file is: headers, ids, twins, namesakes, and the ways to name one (DESIGN: What is a session)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.errors import AmbiguousSessionError, SessionNotFoundError
from tests.support import (
    BUGCASES,
    entry,
    exported,
    header,
    write,
)

HEADERLESS_NAMES = {
    "2026-01-01T00-00-00-000Z_0199-abc.jsonl": "0199-abc",
    "a_b_c.jsonl": "c",
    "plain-name.jsonl": "plain-name",
    "with.dots.jsonl": "with.dots",
}


@pytest.mark.parametrize(("name", "expected"), HEADERLESS_NAMES.items(), ids=HEADERLESS_NAMES)
def test_a_headerless_file_has_its_id_from_its_name(store: Store, tmp_path: Path, name: str, expected: str) -> None:
    """B06."""
    file = write(tmp_path / name, entry(1), entry(2, 1))
    assert store.import_paths([file]).imported == 1
    info = store.session(expected)
    assert info.paths == (str(file),)
    assert store.header(info) is None
    assert [e["id"] for e in store.entries(info)] == ["00000001", "00000002"]
    assert exported(store, info.id) == file.read_bytes()


def test_a_given_id_goes_before_the_file_name(store: Store, tmp_path: Path) -> None:
    """B06."""
    file = write(tmp_path / "x_y.jsonl", entry(1))
    store.import_paths([file], session_id="my-own")
    assert store.session("my-own").paths == (str(file),)
    with pytest.raises(SessionNotFoundError):
        store.session("y")


def test_a_header_that_comes_late_is_the_header(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "late_x.jsonl", entry(1), header("late-id", cwd="/late"), entry(2, 1))
    store.import_paths([file])
    info = store.session("late-id")
    assert info.cwd == "/late"
    assert [e["id"] for e in store.entries(info)] == ["00000001", "00000002"]
    assert (store.header(info) or {})["id"] == "late-id"


def test_a_broken_header_costs_no_entry(store: Store, tmp_path: Path) -> None:
    """B05: every good entry is kept, the file is left as it is, the line is named."""
    content = (BUGCASES / "bc06-bad-header.jsonl").read_bytes()
    file = write(tmp_path / "2026_lost.jsonl", content)
    report = store.import_paths([file])
    assert report.imported == 1
    assert [e["id"] for e in store.entries("lost")] == ["aaaa0001", "aaaa0002", "aaaa0003", "aaaa0004"]
    assert [(f.path, f.line) for f in report.faults] == [(str(file), 1)]
    assert file.read_bytes() == content


def test_identical_bytes_are_one_session_that_answers_to_both_paths(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "a/one.jsonl", header(), entry(1))
    two = write(tmp_path / "b/two.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "a", tmp_path / "b"])
    assert (report.imported, report.unchanged, report.known_elsewhere) == (1, 1, 1)
    assert store.session(one).pk == store.session(two).pk
    assert sorted(store.session("s-1").paths) == [str(one), str(two)]
    assert len(store.sessions()) == 1


def test_equal_ids_with_different_bytes_are_two_sessions_and_a_warning(store: Store, tmp_path: Path) -> None:
    """B31."""
    one = write(tmp_path / "a.jsonl", header("harbor"), entry(1, text="task one"))
    two = write(tmp_path / "b.jsonl", header("harbor"), entry(1, text="task two"))
    report = store.import_paths([one, two])
    assert report.imported == 2
    assert any("harbor" in w for w in report.warnings)
    assert store.session(one).pk != store.session(two).pk
    assert store.session(one).grown_from is None
    assert store.session(two).grown_from is None
    with pytest.raises(AmbiguousSessionError) as caught:
        store.session("harbor")
    assert isinstance(caught.value, LookupError)
    assert len(set(caught.value.candidates)) == 2
    assert all(c in str(caught.value) for c in caught.value.candidates)
    assert {exported(store, one), exported(store, two)} == {one.read_bytes(), two.read_bytes()}


def test_a_session_answers_to_its_id_a_unique_prefix_and_every_path(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.jsonl", header("abc-123"), entry(1))
    write(tmp_path / "b.jsonl", header("abd-456"), entry(2))
    store.import_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    monkeypatch.chdir(tmp_path)
    for ref in ("abc-123", "abc", file, str(file), "a.jsonl", "./a.jsonl", store.session("abc")):
        assert store.session(ref).id == "abc-123", ref
    with pytest.raises(AmbiguousSessionError) as caught:
        store.session("ab")
    assert len(caught.value.candidates) == 2
    for unknown in ("zzz", str(tmp_path / "no.jsonl"), "ABC", "%", "*"):
        with pytest.raises(SessionNotFoundError):
            store.session(unknown)


def test_an_id_that_is_the_start_of_another_is_found_by_itself(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", header("run"), entry(1))
    write(tmp_path / "b.jsonl", header("run-2"), entry(2))
    store.import_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert store.session("run").id == "run"


@pytest.mark.parametrize("short_first", [True, False], ids=["short first", "long first"])
def test_a_session_exported_again_longer_is_linked_to_the_first(
    store: Store, tmp_path: Path, short_first: bool
) -> None:
    """B31, bc31a and bc31c: another header time and cwd, the same entries and more, in both orders of import."""
    short = write(
        tmp_path / "a.jsonl",
        header("harbor", timestamp="2026-03-02T10:00:00.000Z", cwd="/root/work"),
        entry(1, text="task one"),
        entry(2, 1, text="one", role="assistant"),
    )
    long = write(
        tmp_path / "c.jsonl",
        header("harbor", timestamp="2026-03-02T10:40:00.000Z", cwd="/srv/work"),
        entry(1, text="task one"),
        entry(2, 1, text="one", role="assistant"),
        entry(3, 2, text="more"),
    )
    for file in (short, long) if short_first else (long, short):
        assert store.import_paths([file]).imported == 1
    assert store.session(long).grown_from == store.session(short).pk
    assert store.session(short).grown_from is None
    assert {s.superseded for s in store.sessions()} == {False}
    assert len(store.sessions()) == 2


@pytest.mark.parametrize("short_first", [True, False], ids=["short first", "long first"])
def test_a_copy_that_went_on_elsewhere_is_linked(store: Store, tmp_path: Path, short_first: bool) -> None:
    short = write(tmp_path / "a.jsonl", header(), entry(1))
    long = write(tmp_path / "b.jsonl", header(), entry(1), entry(2, 1))
    for file in (short, long) if short_first else (long, short):
        store.import_paths([file])
    assert store.session(long).grown_from == store.session(short).pk
    assert exported(store, short) == short.read_bytes()
