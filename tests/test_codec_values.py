"""One line to one value, as JSON.parse reads it (FORMAT.md, V1 to V7)."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiondb.jsonl import MAX_DEPTH, NOTHING, Fault, encode_entry, parse_line, strip_bom

GOLDEN = Path(__file__).parent / "golden" / "jsonl"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param(
            b' \t\r\n{"a":[1,null,true,false,"x"]} \r\n', {"a": [1, None, True, False, "x"]}, id="white space around"
        ),
        pytest.param(b'"\\ud800"', "\ud800", id="lone high surrogate"),
        pytest.param(b'"\\udc00x\\ud800"', "\udc00x\ud800", id="lone surrogates, low first"),
        pytest.param(b'{"\\ud800":"\\uD83D\\uDE00"}', {"\ud800": "😀"}, id="lone in a key, pair in the value"),
        pytest.param(b'"\\u0000\x7f\\/"', "\0\x7f/", id="NUL, DEL, slash"),
        pytest.param(b'"a\xffb"', "a\ufffdb", id="byte that is no UTF-8"),
        pytest.param(b'"\xe6\xbc"', "\ufffd", id="sequence cut short"),
        pytest.param(b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd", id="encoded surrogate"),
        pytest.param(b'"\xff\\ud800"', "\ufffd\ud800", id="no UTF-8 and a lone surrogate"),
        pytest.param(b"1e400", math.inf, id="beyond a double"),
        pytest.param(b"[-1e400,1]", [-math.inf, 1], id="beyond a double, negative"),
        pytest.param(b"1" * 5000, math.inf, id="5000 digits"),
        pytest.param(b"[%d,%d]" % (2**64 - 1, -(2**63)), [2**64 - 1, -(2**63)], id="64 bits"),
        pytest.param(b"[%d]" % 2**64, [2.0**64], id="65 bits"),
        pytest.param(b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}, id="repeated key"),
        pytest.param(b'{"__proto__":{"x":1}}', {"__proto__": {"x": 1}}, id="__proto__"),
        pytest.param('"\u2028\u2029\u0085"'.encode(), "\u2028\u2029\u0085", id="line separators"),
        pytest.param(b"null", None, id="null"),
    ],
)
def test_a_line_is_what_json_parse_gives(raw: bytes, value: Any) -> None:
    parsed = parse_line(raw)
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_repeated_key_keeps_its_first_place() -> None:
    for raw in (b'{"a":1,"b":2,"a":3}', b'{"a":1,"b":"\\ud800","a":3}'):
        parsed: Any = parse_line(raw)
        assert list(parsed) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "offset", "reason"),
    [
        (b"{", 1, "the end of the line where a key should be"),
        (b'{"a":1,}', 7, "'}' where a key should be"),
        (b"[1,]", 3, "']' where a value should be"),
        (b'{"a" 1}', 5, "'1' where ':' should be"),
        (b"NaN", 0, "'N' where a value should be"),
        (b'{"a":Infinity}', 5, "'I' where a value should be"),
        (b"-Infinity", 0, "'-' where a value should be"),
        (b'{"a":01}', 6, "'1' where ',' or '}' should be"),
        (b"[1.]", 2, "'.' where ',' or ']' should be"),
        (b"[+1]", 1, "'+' where a value should be"),
        (b"['a']", 1, '"\'" where a value should be'),
        (b"[tru]", 1, "'t' where a value should be"),
        (b"[True]", 1, "'T' where a value should be"),
        (b'"a\tb"', 2, "invalid control character"),
        (b'"a\\xb"', 2, "invalid \\escape"),
        (b'"\\u12g4"', 2, "invalid \\uxxxx escape"),
        (b'["abc\n', 5, "string without an end"),
        (b'\xef\xbb\xbf{"a":1}', 0, "'\\xef' where a value should be"),
        ("\u00a0{}".encode(), 0, "'\\xc2' where a value should be"),
        ('["é" x]'.encode(), 6, "'x' where ',' or ']' should be"),
        (b'["\xff" x]', 5, "'x' where ',' or ']' should be"),
        (b"{} // comment", 3, "'/' where a value should be"),
    ],
)
def test_a_broken_line_is_a_fault_that_names_the_byte(raw: bytes, offset: int, reason: str) -> None:
    fault = parse_line(raw)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.offset) == ("malformed", offset)
    assert fault.message == f"{reason} at byte {offset}"
    assert [(piece.start, piece.end, piece.value) for piece in fault.pieces] == [(0, len(raw), NOTHING)]


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n", b"\xef\xbb\xbf\n", "\u2028".encode()])
def test_a_blank_line_is_a_fault_of_its_own_kind(raw: bytes) -> None:
    fault = parse_line(raw)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.entries, len(fault.pieces)) == ("blank", [], 1)


def test_a_byte_order_mark_is_read_after_it_is_taken_off() -> None:
    first = (GOLDEN / "cases" / "03-bom.jsonl").read_bytes().partition(b"\n")[0]
    assert isinstance(parse_line(first), Fault)
    header: Any = parse_line(strip_bom(first))
    assert header["type"] == "session"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [1024, 1025, MAX_DEPTH])
def test_nesting_up_to_the_limit_is_read(opening: bytes, depth: int) -> None:
    raw = (
        opening * (depth - 1)
        + (b"[]" if opening == b"[" else b"{}")
        + (b"]" if opening == b"[" else b"}") * (depth - 1)
    )
    value = parse_line(raw)
    assert not isinstance(value, Fault)
    assert encode_entry(value) == raw


@pytest.mark.parametrize("opening", [b"[", b'{"type":'])
def test_nesting_beyond_the_limit_is_a_fault(opening: bytes) -> None:
    fault = parse_line(opening * (MAX_DEPTH + 1))
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.offset) == ("too-deep", len(opening) * MAX_DEPTH)


def test_the_verdict_does_not_depend_on_the_callers_stack() -> None:
    raws = [b"[" * depth + b"]" * depth for depth in (10, 900, 1100, MAX_DEPTH, MAX_DEPTH + 1)] + [b"[" * 5000]
    expected = [isinstance(parse_line(raw), Fault) for raw in raws]

    def at_depth(depth: int, call: Callable[[], list[bool]]) -> list[bool]:
        return call() if depth == 0 else at_depth(depth - 1, call)

    room = sys.getrecursionlimit() - len_of_stack() - 40
    assert at_depth(room, lambda: [isinstance(parse_line(raw), Fault) for raw in raws]) == expected


def len_of_stack() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def assert_says_something_sound(raw: bytes) -> None:
    value = parse_line(raw)
    if isinstance(value, Fault):
        assert value.pieces[0].start == 0
        assert value.pieces[-1].end == len(raw)
        assert all(a.end == b.start for a, b in zip(value.pieces, value.pieces[1:], strict=False))
        assert all(a.start < a.end for a in value.pieces) or raw == b""
        assert 0 <= value.offset <= len(raw)
        assert "\n" not in value.message
    else:
        encode_entry(value)


SEEDS = [
    b'{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{"role":"user","content":[{"type":"text"}]}}',
    b'{"type":"title","title":"x"}',
    b'{"type":"session","id":"s","timestamp":"t"}',
    b'[1,-2.5e3,{"a":"\\ud800\\n"},null]',
    '"é漢😀"'.encode(),
    b"\0\0\0",
    b"\xef\xbb\xbf",
]


@pytest.mark.parametrize("seed", range(4))
def test_no_bytes_raise(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3000):
        whole = b"".join(rng.choice(SEEDS) for _ in range(rng.randrange(1, 4)))
        cut = bytearray(whole[rng.randrange(len(whole)) :] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(cut) + 1)
            cut[at : at + rng.randrange(3)] = rng.choice([rng.randbytes(2), b'"', b"{", b"}", b"\\", b" ", b"\n", b":"])
        assert_says_something_sound(bytes(cut))
        assert_says_something_sound(rng.randbytes(rng.randrange(40)))
