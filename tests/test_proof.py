"""verify says of each file what the database has of it, check whether the database is in order."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from sessiondb import Store, rows
from sessiondb.connection import transaction

T = "2026-01-01T00:00:00.000Z"


def header(session_id: str = "s", cwd: str = "/w", **more: object) -> bytes:
    head = {"type": "session", "version": 3, "id": session_id, "timestamp": T, "cwd": cwd, **more}
    return json.dumps(head).encode() + b"\n"


def line(number: int) -> bytes:
    return json.dumps({"type": "custom", "id": str(number), "parentId": None, "timestamp": T}).encode() + b"\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in/a.jsonl"
    file.parent.mkdir()
    file.write_bytes(header() + line(1) + line(2) + line(3))
    return file


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str, int]] = {
    "untouched": (lambda b: b, "equal", 0),
    "two more lines": (lambda b: b + line(4) + line(5), "grown", 2),
    "half a line more": (lambda b: b + line(4)[:9], "grown", 1),
    "the first byte": (lambda b: b"[" + b[1:], "changed", 1),
    "a byte of the third line": (lambda b: b.replace(b'"id": "2"', b'"id": "9"'), "changed", 3),
    "the last byte": (lambda b: b[:-1] + b" ", "changed", 4),
    "the last newline gone": (lambda b: b[:-1], "changed", 4),
    "a line gone": (lambda b: b[: b.rindex(b"{")], "changed", 4),
    "a line put in": (lambda b: b.replace(line(2), line(7) + line(2)), "changed", 3),
    "emptied": (lambda _: b"", "changed", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_verify_says_what_became_of_a_source(store: Store, source: Path, name: str) -> None:
    """B64."""
    change, state, lines = CHANGES[name]
    store.import_paths([source])
    source.write_bytes(change(source.read_bytes()))
    (verdict,) = store.verify()
    assert (verdict.state, verdict.lines, verdict.path) == (state, lines, str(source))
    assert verdict.is_deletable == (state == "equal")


def test_verify_says_how_an_unfinished_last_line_went_on(store: Store, source: Path) -> None:
    source.write_bytes(header() + line(1)[:20])
    store.import_paths([source])
    source.write_bytes(header() + line(1) + line(2))
    (verdict,) = store.verify("s")
    assert (verdict.state, verdict.lines) == ("grown", 2)


def test_a_source_that_is_gone_is_held_against_the_digest_of_its_import(store: Store, source: Path) -> None:
    store.import_paths([source])
    source.unlink()
    (verdict,) = store.verify()
    assert (verdict.state, verdict.is_good, verdict.is_deletable) == ("gone", True, False)
    source.mkdir()
    assert next(store.verify()).state == "unreadable"


def test_damaged_bytes_in_the_database_are_found_whatever_the_source_says(tmp_path: Path, source: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.import_paths([source])
        db = apsw.Connection(str(store.path))
        db.execute("UPDATE line SET raw = replace(raw, 'custom', 'costum') WHERE pk = (SELECT max(pk) FROM line)")
        db.close()
        assert next(store.verify()).state == "damaged"
        source.unlink()
        assert next(store.verify()).state == "damaged"
        assert any("digest" in problem for problem in store.check())


def test_check_finds_rows_that_differ_from_their_lines(tmp_path: Path, source: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.import_paths([source])
        db = apsw.Connection(str(store.path))
        db.execute("PRAGMA foreign_keys = ON")
        for change in (
            "UPDATE entry SET depth = 7", "UPDATE session SET title = 'x'", "DELETE FROM entry",
            "INSERT INTO fault (session_pk, line, offset, kind, message) SELECT pk, 1, 0, 'x', '' FROM session",
        ):  # fmt: skip
            assert store.check() == []
            db.execute(change)
            assert store.check() != [], change
            db.execute("DELETE FROM session")
            store.import_paths([source])
        db.close()


def test_what_was_appended_since_is_ahead_and_leaves_the_source_equal(store: Store, source: Path) -> None:
    """The door that appends will use: bytes beyond the imported ones are part of `as-is`, not of `original`."""
    store.import_paths([source])
    info = store.session("s")
    db = store._db
    digest = store.sql("SELECT digest FROM session")[0]["digest"]
    with transaction(db):
        indexer = rows.resume(db, info.pk)
        indexer.add(line(4))
        rows.write_rows(db, indexer.take_rows())
        rows.finish_session(db, indexer, digest=digest, imported_bytes=info.imported_bytes, now_ms=info.imported_ms)
    (verdict,) = store.verify()
    assert (verdict.state, verdict.ahead, verdict.is_deletable) == ("equal", len(line(4)), True)
    as_is, original = io.BytesIO(), io.BytesIO()
    store.export("s", as_is)
    store.export("s", original, "original")
    assert as_is.getvalue() == source.read_bytes() + line(4)
    assert original.getvalue() == source.read_bytes()
