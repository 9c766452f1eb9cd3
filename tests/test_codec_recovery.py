"""What is saved from torn and glued lines (FORMAT.md, R1 to R7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiondb.jsonl import NOTHING, Fault, parse_line
from sessiondb.jsonl.recovery import WORK_FLOOR, WORK_PER_BYTE, Cut

GOLDEN = Path(__file__).parent / "golden" / "jsonl"

ENTRY = b'{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user"}}'
V1_ENTRY = b'{"type":"message","timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user"}}'
HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}'
SLOT = b'{"type":"title","v":1,"title":"T","updatedAt":"2026-01-01T00:00:00.000Z","pad":""}'
TEXT = b'{"type":"text","text":"x"}'
CALL = b'{"type":"toolCall","id":"call_1","name":"bash","arguments":{}}'
EVENT = b'{"type":"event","timestamp":"2026-01-01T00:00:00.000Z"}'
TORN = b'{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:00.000Z","message":{"content":['


def fault_of(raw: bytes) -> Fault:
    fault = parse_line(raw)
    assert isinstance(fault, Fault)
    assert fault.pieces[0].start == 0
    assert fault.pieces[-1].end == len(raw)
    return fault


def cut_of(raw: bytes) -> list[tuple[bytes, bool]]:
    """The bytes of each piece and whether they gave an entry; what an entry is must be what its bytes are."""
    fault = fault_of(raw)
    for piece in fault.pieces:
        if piece.value is not NOTHING:
            assert piece.value == parse_line(raw[piece.start : piece.end].strip(b" \t\r\n\0"))
    return [(raw[piece.start : piece.end], piece.value is not NOTHING) for piece in fault.pieces]


@pytest.mark.parametrize(
    ("raw", "kind", "pieces"),
    [
        pytest.param(ENTRY + HEADER + b"\n", "glued", [(ENTRY, True), (HEADER + b"\n", True)], id="two entries"),
        pytest.param(
            b" " + V1_ENTRY + b" \t" + ENTRY + b"\r\n",
            "glued",
            [(b" " + V1_ENTRY + b" \t", True), (ENTRY + b"\r\n", True)],
            id="white space goes to the piece before",
        ),
        pytest.param(SLOT + HEADER, "glued", [(SLOT, True), (HEADER, True)], id="title slot and header"),
        pytest.param(
            b'{"a":1}' + ENTRY, "glued", [(b'{"a":1}', False), (ENTRY, True)], id="an object that is no entry"
        ),
        pytest.param(b'{"a":1}{"b":2}\n', "glued", [(b'{"a":1}{"b":2}\n', False)], id="two objects, no entry"),
        pytest.param(b"1 2", "glued", [(b"1 2", False)], id="two numbers"),
        pytest.param(ENTRY + b" // x\n", "torn", [(ENTRY + b" ", True), (b"// x\n", False)], id="entry and junk"),
        pytest.param(ENTRY + TORN, "torn", [(ENTRY, True), (TORN, False)], id="entry and a torn one"),
        pytest.param(ENTRY + b"\0\0", "torn", [(ENTRY, True), (b"\0\0", False)], id="entry and zero bytes"),
        pytest.param(
            b'{"type":"mess' + ENTRY, "torn", [(b'{"type":"mess', False), (ENTRY, True)], id="torn in a string"
        ),
        pytest.param(
            b'{"type"' + V1_ENTRY, "torn", [(b'{"type"', False), (V1_ENTRY, True)], id="torn behind a key, v1 behind"
        ),
        pytest.param(
            b"{" + SLOT + HEADER, "torn", [(b"{", False), (SLOT, True), (HEADER, True)], id="torn, slot, header"
        ),
        pytest.param(
            b"\0" * 9 + ENTRY + b"\n",
            "torn",
            [(b"\0" * 9, False), (ENTRY + b"\n", True)],
            id="zero bytes, then an entry",
        ),
        pytest.param(TORN + ENTRY, "torn", [(TORN, False), (ENTRY, True)], id="torn where a value could stand"),
        pytest.param(
            TORN + HEADER, "torn", [(TORN, False), (HEADER, True)], id="torn where a value could stand, header"
        ),
        pytest.param(
            TORN + ENTRY + TORN + ENTRY,
            "torn",
            [(TORN, False), (ENTRY, True), (TORN, False), (ENTRY, True)],
            id="twice",
        ),
        pytest.param(
            b'{"type":"message","x":"\xff\xc3' + ENTRY.replace(b"user", "ü\u2028".encode()) + b"\n",
            "torn",
            [(b'{"type":"message","x":"\xff\xc3', False), (ENTRY.replace(b"user", "ü\u2028".encode()) + b"\n", True)],
            id="bytes that are no ASCII before and in the entry",
        ),
        pytest.param(
            b'{"type": "message", "x": "' + ENTRY.replace(b'"type":', b'"type": '),
            "torn",
            [(b'{"type": "message", "x": "', False), (ENTRY.replace(b'"type":', b'"type": '), True)],
            id="spaced separators",
        ),
    ],
)
def test_whole_entries_are_read_off_a_faulty_line(raw: bytes, kind: str, pieces: list[tuple[bytes, bool]]) -> None:
    assert fault_of(raw).kind == kind
    assert cut_of(raw) == pieces


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(TORN + TEXT, id="text block, torn behind it"),
        pytest.param(TORN + CALL, id="tool call, torn behind it"),
        pytest.param(TORN + TEXT + b"," + CALL + b"]", id="blocks inside"),
        pytest.param(TORN + EVENT, id="nested object with type and time"),
        pytest.param(TORN + ENTRY + b"]", id="a whole entry that something follows"),
        pytest.param(TORN + ENTRY + b',{"type":"x"', id="a whole entry with a comma behind"),
        pytest.param(TORN + b'{"type":"x","in":[' + ENTRY + b"]}", id="a whole entry inside a whole object"),
        pytest.param(TORN[:-1] + b'"\\*",[' + EVENT + b"]}}", id="bad escape, nested objects behind"),
        pytest.param(TORN + b'{"type":"x","timestamp":5}', id="a time that is no string"),
        pytest.param(b'"' + ENTRY.replace(b'"', b'\\"'), id="an entry as the text of a torn string"),
        pytest.param(b'x{"id":"a","type":"message","timestamp":"t"}', id="behind broken bytes, another key first"),
        pytest.param(b"\xff\xfe\x00garbage", id="garbage"),
    ],
)
def test_parts_of_a_torn_entry_are_never_entries(raw: bytes) -> None:
    assert fault_of(raw).kind == "malformed"
    assert cut_of(raw) == [(raw, False)]


@pytest.mark.parametrize(
    ("file", "line", "kind", "ids"),
    [
        ("bugcases/bc01-torn-tail.jsonl", -1, "malformed", []),
        ("bugcases/bc02-torn-then-fused.jsonl", 4, "torn", ["bbbb0005"]),
        ("bugcases/bc03-two-objects-one-line.jsonl", 2, "glued", ["cccc0002", "cccc0003"]),
        ("bugcases/bc30-mask-broke-escape.jsonl", 1, "malformed", []),
        ("specimens/unparseable-two-objects-glued.jsonl", 0, "glued", [None, None]),
        ("specimens/unparseable-two-objects-glued.jsonl", 1, "glued", [None, None]),
        ("specimens/unparseable-mask-broke-escape.jsonl", 0, "malformed", []),
        ("specimens/unparseable-mask-broke-escape.jsonl", 1, "malformed", []),
        ("specimens/unparseable-mask-broke-escape.jsonl", 2, "malformed", []),
    ],
)
def test_lines_from_real_accidents_give_their_entries(file: str, line: int, kind: str, ids: list[str | None]) -> None:
    raw = (GOLDEN / file).read_bytes().splitlines(keepends=True)[line]
    fault = fault_of(raw)
    assert (fault.kind, [entry.get("id") for entry in fault.entries]) == (kind, ids)


def test_an_entry_torn_anywhere_gives_the_one_glued_to_it_and_nothing_else() -> None:
    torn = TORN + TEXT + b"," + CALL + b"," + TEXT[:-1] + b',"t":"\\u00e9 [{:"}],"details":' + EVENT + b"}"
    for cut in range(1, len(torn) - 1):
        assert [piece for piece in cut_of(torn[:cut] + ENTRY + b"\n") if piece[1]] == [(ENTRY + b"\n", True)], torn[
            :cut
        ]


def test_the_message_says_what_is_wrong_where_and_what_was_saved() -> None:
    assert (
        fault_of(b'{"a":"b' + ENTRY).message
        == "'t' where ',' or '}' should be at byte 9; 1 whole entry on the line recovered"
    )
    assert (
        fault_of(ENTRY + HEADER).message
        == f"2 values on one line, the second at byte {len(ENTRY)}; 2 whole entries among them"
    )


SIZE = 20_000
HOSTILE: dict[str, bytes] = {
    "nested types": b'{"type":' * SIZE,
    "nested types in arrays": b'{"type":[' * SIZE,
    "types in strings": b'{"type":"' * SIZE,
    "strings that never end": b'{"type":"a","b":"' * SIZE,
    "keys that break": b'{"type":"a",' * SIZE,
    "deep arrays in each": (b'{"type":' + b"[" * 9_000) * 20,
    "blanks in each": (b"{" + b" " * 40 + b'"type"' + b" " * 40) * SIZE,
    "blanks before each": (b'":' + b" " * 40 + EVENT) * SIZE,
    "entries in an array": b'{"type":"x","k":[' + b",".join([EVENT] * SIZE),
    "entries glued": EVENT * SIZE + b"x",
    "entries torn": (b'{"a":1 ' + EVENT) * SIZE,
    "values": b"1 " * SIZE + b"x",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_line_is_read_a_few_times_and_no_more(raw: bytes) -> None:
    cut = Cut(raw, parse_line)
    cut.run()
    # one look more may start while the budget lasts, and reads the line once at most
    assert cut.work <= (WORK_PER_BYTE + 1) * len(raw) + WORK_FLOOR


def test_work_given_up_is_said() -> None:
    fault = fault_of(HOSTILE["nested types"] * 8 + b"\0" + ENTRY)
    assert fault.message.endswith("; the search for further entries was given up")
    assert fault.entries == []


def test_recovered_values_are_read_like_any_line() -> None:
    second: dict[str, Any] = fault_of(ENTRY + b'{"type":"x","timestamp":"t","n":1e400,"s":"\\ud800\xff"}').entries[1]
    assert second == {"type": "x", "timestamp": "t", "n": float("inf"), "s": "\ud800\ufffd"}
