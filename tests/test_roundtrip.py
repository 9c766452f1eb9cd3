"""Odd files and old versions go in and out byte for byte; `current` is what the client writes (invariants 1, 3)."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.jsonl import encode_entry

ROOT = Path(__file__).resolve().parent.parent

def exported(store: Store, path: Path, form: str = "as-is") -> bytes:
    out = io.BytesIO()
    store.export(path, out, form)  # type: ignore[arg-type]  # a table of forms
    return out.getvalue()


def test_the_reference_cases_round_trip_too(store: Store, corpus: Path) -> None:
    cases = corpus.parent / "reference/cases"
    report = store.import_paths([cases])
    assert [Path(s.path).name for s in report.skipped] == ["12-empty-file.jsonl"]
    for file in cases.glob("*.jsonl"):
        if file.stat().st_size:
            assert exported(store, file) == file.read_bytes()


def line(number: int, parent: int | None = None, text: str = "hi", **more: object) -> bytes:
    entry = {
        "type": "message", "id": f"{number:08x}", "parentId": None if parent is None else f"{parent:08x}",
        "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": "user", "content": text}, **more,
    }  # fmt: skip
    return encode_entry(entry) + b"\n"


HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'

ODD_FILES = {
    "no final newline": HEADER + line(1)[:-1],
    "CR LF": HEADER.replace(b"\n", b"\r\n") + line(1).replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + HEADER + line(1),
    "blank lines at all ends": b"\n \n\r\n" + HEADER + b"\n\t\n" + line(1) + b"\n\n",
    "NUL and invalid UTF-8": HEADER + b"\x00\xff\xfe\n" + line(1) + b'{"type":"custom","x":"\xff"}\n',
    "U+2028 and U+0085 raw": HEADER + line(1, text="a\u2028b\u0085c"),
    "cut in the middle of a character": HEADER + line(1, text="é")[:-20],
    "values that are no objects": HEADER + b'42\n"x"\n[]\ntrue\nnull\n' + line(1),
    "no header": line(1) + line(2, 1),
    "header last": line(1) + HEADER,
    "three glued entries and a torn one": HEADER + line(1)[:-1] + line(2, 1)[:-1] + line(3, 2)[:-1] + line(4, 3)[:40],
    "a lone surrogate and a pair": HEADER + line(1, text="x").replace(b"x", rb"\ud83d\ude00 \udead \\ud800"),
    "duplicate keys and index keys": HEADER + b'{"b":1,"1":2,"type":"custom","b":3,"timestamp":"2026"}\n',
    "only a header": HEADER,
    "values nested deep": HEADER
    + b"".join(
        b'{"type":"custom","id":%s,"timestamp":%s,"x":"%s"}\n' % (b"[" * deep + b"]" * deep, b"[" * 9 + b"]" * 9, odd)
        for deep, odd in ((900, b""), (5000, b""), (5000, rb"\ud800"), (20_000, b""))
    ),
    "an id of a megabyte, twice": HEADER + 2 * (b'{"type":"custom","id":"%s","timestamp":"2026"}\n' % (b"x" * 10**6)),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_an_odd_file_round_trips(store: Store, tmp_path: Path, name: str) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(ODD_FILES[name])
    assert store.import_paths([file]).imported == 1
    assert exported(store, file) == ODD_FILES[name]
    (verdict,) = store.verify()
    assert (verdict.state, verdict.is_deletable) == ("equal", True)


def test_entries_of_glued_and_torn_lines_are_entries(store: Store, tmp_path: Path) -> None:
    """B02, B03."""
    file = tmp_path / "glued.jsonl"
    file.write_bytes(HEADER + line(1)[:50] + line(2)[:-1] + line(3, 2) + line(4, 3))
    store.import_paths([file])
    assert [e["id"] for e in store.entries(file)] == ["00000002", "00000003", "00000004"]
    assert [(f["line"], f["kind"]) for f in store.faults(file)] == [(2, "torn")]
    assert store.raw_entry(file, "00000003") == line(3, 2)[:-1]


def test_a_line_longer_than_sqlite_takes_is_kept_in_pieces_and_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B71, with the limit lowered: the same code runs at a gigabyte."""
    monkeypatch.setattr("sessiondb.rows.longest_line", lambda _db: 1000)
    monkeypatch.setattr("sessiondb.lines.PIECE_BYTES", 300)
    file = tmp_path / "long.jsonl"
    file.write_bytes(HEADER + line(1, text="x" * 2000) + line(2))
    assert store.import_paths([file]).imported == 1
    assert exported(store, file) == file.read_bytes()
    assert [(f["line"], f["kind"]) for f in store.faults(file)] == [(2, "oversized")]
    assert [e["id"] for e in store.entries(file)] == ["00000002"]


def test_version_1_is_migrated_when_read_and_kept_as_it_was(store: Store, tmp_path: Path) -> None:
    """The ids that a version 1 entry lacks: SHA-256(session id, NUL, line number), 8 hex digits (DESIGN)."""
    file = tmp_path / "v1.jsonl"
    file.write_bytes(
        b'{"type":"session","id":"old","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/w"}\n'
        b'{"type":"message","timestamp":"2025-01-01T00:00:01.000Z","message":{"role":"user","content":"a"}}\n'
        b"\n"
        b'{"type":"message","timestamp":"2025-01-01T00:00:02.000Z","message":{"role":"hookMessage","content":"b"}}\n'
        b'{"type":"compaction","timestamp":"2025-01-01T00:00:03.000Z","summary":"s","firstKeptEntryIndex":1}\n'
    )
    store.import_paths([file])
    ids = [hashlib.sha256(b"old\0%d" % number).hexdigest()[:8] for number in (2, 4, 5)]
    first, second, compaction = store.entries(file)
    assert [e["id"] for e in (first, second, compaction)] == ids
    assert [e["parentId"] for e in (first, second, compaction)] == [None, *ids[:2]]
    assert second["message"]["role"] == "custom"
    assert list(compaction) == ["type", "timestamp", "summary", "id", "parentId", "firstKeptEntryId"]
    assert compaction["firstKeptEntryId"] == ids[0]
    assert exported(store, file) == exported(store, file, "original") == file.read_bytes()
    current = exported(store, file, "current").splitlines()
    assert current[0].endswith(b'"cwd":"/w","version":3}')
    assert current[1:] == [encode_entry(e) for e in store.entries(file)]


def test_current_is_what_pi_wrote_when_it_migrated_the_file(store: Store, corpus: Path) -> None:
    """Reference case 23, apart from the ids, which pi makes at random."""
    case = corpus.parent / "reference/cases/23-v1-compaction.jsonl"
    outputs = json.loads((case.parent / "expected.json").read_text())["cases"]
    pi = next(c for c in outputs if c["input"] == case.name)["outputs"][0]
    store.import_paths([case])
    ours = [json.loads(row) for row in exported(store, case, "current").splitlines()]
    theirs = [json.loads(row) for row in pi["file_after_open"]["text"].splitlines()]
    names = {}
    for our, their in zip(ours[1:], theirs[1:], strict=True):
        names[our["id"]] = their["id"]
    text = exported(store, case, "current").decode()
    for our_id, their_id in names.items():
        text = text.replace(our_id, their_id)
    assert text == pi["file_after_open"]["text"]


def test_current_of_version_3_is_the_file_as_it_is(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "v3.jsonl"
    file.write_bytes(HEADER + b'{ "type" : "custom", "timestamp":"2026-01-01T00:00:00.000Z", "n": 1.0 }\n')
    store.import_paths([file])
    assert exported(store, file, "current") == file.read_bytes()
