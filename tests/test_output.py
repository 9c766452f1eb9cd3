"""Exports are whole, private and overwrite nothing; verify says of each file what the database has of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from sessiondb import Store, rows
from sessiondb.connection import transaction
from sessiondb.errors import DatabaseUnavailableError, ExportExistsError
from sessiondb.places import file_name, folder_for_cwd

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


def test_an_export_is_private_whatever_the_umask_and_leaves_no_temporary_file(store: Store, source: Path) -> None:
    store.import_paths([source])
    before = os.umask(0)
    try:
        size = store.export("s", source.parent / "new/deep/out.jsonl")
    finally:
        os.umask(before)
    out = source.parent / "new/deep/out.jsonl"
    assert (out.read_bytes(), size) == (source.read_bytes(), source.stat().st_size)
    assert out.stat().st_mode & 0o777 == 0o600
    assert (source.parent / "new").stat().st_mode & 0o777 == 0o700
    assert [p.name for p in out.parent.iterdir()] == ["out.jsonl"]


def test_an_existing_file_is_replaced_only_when_forced(store: Store, source: Path, tmp_path: Path) -> None:
    store.import_paths([source])
    out, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    out.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for path in (out, link):
        with pytest.raises(ExportExistsError, match="--force"):
            store.export("s", path)
    assert out.read_text() == "mine"
    store.export("s", out, force=True)
    assert out.read_bytes() == source.read_bytes()


def test_an_export_that_fails_leaves_nothing(store: Store, source: Path, tmp_path: Path) -> None:
    store.import_paths([source])
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseUnavailableError, match="cannot be written"):
        store.export("s", tmp_path / "file/out.jsonl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db", "file", "in"]


HOSTILE = ["../../x", "a/b", "..", ".hidden", "nul\0", "😀", "x" * 400, "-rf", "a b", ""]


@pytest.mark.parametrize("session_id", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_id_or_cwd_stays_inside_the_folder(store: Store, tmp_path: Path, session_id: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(header(session_id, cwd=f"/x/../{session_id}") + line(1))
    store.import_paths([source])
    report = store.export_all(tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.jsonl")
    assert file.read_bytes() == source.read_bytes()
    assert (report.files, report.renamed, report.refused) == (1, [], [])
    assert file.parent.parent == tmp_path / "out/sessions"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db", "in.jsonl", "out"]
    assert not file.name.startswith(".")


def test_names_that_clash_get_a_number_and_are_listed(store: Store, tmp_path: Path) -> None:
    for name, cwd in (("a", "/a-b/c"), ("b", "/a/b-c"), ("c", "/a-b/c")):
        (tmp_path / f"{name}.jsonl").write_bytes(header("same", cwd=cwd) + line(ord(name)))
    store.import_paths([tmp_path])
    report = store.export_all(tmp_path / "out")
    stem = "sessions/--a-b-c--/2026-01-01T00-00-00-000Z_same"
    assert report.renamed == [(f"{stem}.jsonl", f"{stem}-2.jsonl"), (f"{stem}.jsonl", f"{stem}-3.jsonl")]
    contents = {p.read_bytes() for p in (tmp_path / "out").rglob("*.jsonl")}
    assert contents == {(tmp_path / f"{name}.jsonl").read_bytes() for name in "abc"}
    again = store.export_all(tmp_path / "out")
    assert (again.files, len(again.refused)) == (0, 3)
    assert store.export_all(tmp_path / "out", force=True).files == 3


def test_an_export_of_everything_with_its_blobs_can_be_imported_again(
    open_store: Callable[..., Store], tmp_path: Path, corpus: Path
) -> None:
    blob = b"pretend image"
    digest = hashlib.sha256(blob).hexdigest()
    (tmp_path / "in/blobs").mkdir(parents=True)
    (tmp_path / "in/blobs" / digest).write_bytes(blob)
    (tmp_path / "in/x.jsonl").write_bytes(header("x", image=f"blob:sha256:{digest}"))
    first, second = open_store("first.db"), open_store("second.db")
    first.import_paths([tmp_path / "in", corpus / "bugcases"])
    report = first.export_all(tmp_path / "out")
    assert (tmp_path / "out/blobs" / digest).read_bytes() == blob
    assert (report.blobs, report.files) == (1, len(first.sessions()))
    assert second.import_paths([tmp_path / "out"]).imported == report.files
    # A file without a header takes its id from its new name; its bytes are what counts.
    digests = "SELECT hex(digest) AS d FROM session ORDER BY d"
    assert first.sql(digests) == second.sql(digests)
    assert second.blobs.get(digest) == blob


def test_folders_are_named_as_pi_names_them(corpus: Path) -> None:
    recorded = json.loads((corpus.parent / "reference/extra/cwd-dirs.json").read_text())
    pi = next(entry for entry in recorded if entry["client"] == "@mariozechner/pi-coding-agent")
    assert {cwd: folder_for_cwd(cwd, "pi") for cwd in pi["dirs"]} == pi["dirs"]


def test_folders_are_named_as_omp_names_them(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the recorded names those that do not depend on the recording machine's current folder."""
    recorded = json.loads((corpus.parent / "reference/extra/cwd-dirs.json").read_text())
    omp = next(entry for entry in recorded if entry["client"].startswith("@oh-my-pi"))["dirs"]
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")  # noqa: S108 - only its name is used
    absolute = {cwd: name for cwd, name in omp.items() if cwd.startswith("/") and "link" not in cwd}
    assert {cwd: folder_for_cwd(cwd, "omp") for cwd in absolute} == absolute


def test_a_file_is_named_after_its_time_and_id() -> None:
    assert file_name("0199-a", "2025-10-09T08:53:21.000Z") == "2025-10-09T08-53-21-000Z_0199-a.jsonl"
    assert file_name("a/b:c", None) == "a_b_c.jsonl"


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
