"""Damage inside the database is found, whatever the sources say; what was appended since is told apart."""

from __future__ import annotations

import io
import json
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


def test_damaged_bytes_in_the_database_are_found_whatever_the_source_says(tmp_path: Path, source: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.import_paths([source])
        db = apsw.Connection(str(store.database))
        db.execute("UPDATE line SET raw = replace(raw, 'custom', 'costum') WHERE pk = (SELECT max(pk) FROM line)")
        db.close()
        assert next(store.verify()).state == "damaged"
        source.unlink()
        assert next(store.verify()).state == "damaged"
        assert any("digest" in problem for problem in store.check())


def test_check_finds_rows_that_differ_from_their_lines(tmp_path: Path, source: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.import_paths([source])
        db = apsw.Connection(str(store.database))
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
    db = store.connection
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
