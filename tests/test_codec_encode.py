"""One value to the bytes of JSON.stringify (FORMAT.md, E1 to E5)."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from sessiondb.jsonl import UNSET, encode_entry, parse_line


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (1e3, "1000"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.1, "0.1"),
        (1e-5, "0.00001"),
        (5e-6, "0.000005"),
        (1.25e-6, "0.00000125"),
        (1e-7, "1e-7"),
        (-1.5e-9, "-1.5e-9"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (4503599627370495.5, "4503599627370495.5"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (-(2**53) - 1, "-9007199254740992"),
        (12345678901234567890, "12345678901234567000"),
        (2**64, "18446744073709552000"),
        (10**400, "null"),
        (-(10**400), "null"),
        (math.inf, "null"),
        (-math.inf, "null"),
        (math.nan, "null"),
    ],
)
def test_a_number_is_written_as_javascript_writes_it(number: float, written: str) -> None:
    assert encode_entry(number).decode() == written
    assert encode_entry([number, {"a": number}]).decode() == f'[{written},{{"a":{written}}}]'
    # a lone surrogate beside it takes the way without orjson
    assert encode_entry(["\ud800", number]).decode() == f'["\\ud800",{written}]'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param('"\\/', b'"\\"\\\\/"', id="quote, backslash, slash"),
        pytest.param("\b\t\n\f\r\0\x0b\x1f", b'"\\b\\t\\n\\f\\r\\u0000\\u000b\\u001f"', id="control characters"),
        pytest.param("\x7f\x80é漢\u2028\ufeff\uffff😀", '"\x7f\x80é漢\u2028\ufeff\uffff😀"'.encode(), id="raw"),
        pytest.param("\ud800", b'"\\ud800"', id="lone high"),
        pytest.param("\udfffx", b'"\\udfffx"', id="lone low, lower case"),
        pytest.param("\ude00\ud83d", b'"\\ude00\\ud83d"', id="reversed pair"),
        pytest.param("\ud83d\ude00", '"😀"'.encode(), id="pair of two halves"),
        pytest.param("\ud83d\ud83d\ude00\ude00", '"\\ud83d😀\\ude00"'.encode(), id="pair between halves"),
    ],
)
def test_a_string_is_escaped_as_javascript_escapes_it(text: str, written: bytes) -> None:
    assert encode_entry(text) == written
    assert encode_entry({text: [text]}) == b"{" + written + b":[" + written + b"]}"


def test_keys_that_are_array_indexes_come_first() -> None:
    keys = ["b", "10", "4294967295", "2", "01", "-1", "4294967294", "0", "", "1.5", "１", "00", "a"]
    ordered = ["0", "2", "10", "4294967294", "b", "4294967295", "01", "-1", "", "1.5", "１", "00", "a"]
    for extra in ({}, {"z": "\ud800"}):
        written = encode_entry(dict.fromkeys(keys, 1) | extra)
        parsed: Any = parse_line(written)
        assert list(parsed) == ordered + list(extra)
        assert encode_entry(parse_line(written)) == written


def test_unset_is_left_out_of_objects_and_null_in_arrays() -> None:
    entry = {"a": UNSET, "b": None, "1": UNSET, "0": [UNSET, {"c": UNSET}]}
    assert encode_entry(entry) == b'{"0":[null,{}],"b":null}'
    assert encode_entry(entry | {"s": "\ud800"}) == b'{"0":[null,{}],"b":null,"s":"\\ud800"}'
    assert not UNSET
    assert repr(UNSET) == "UNSET"


def test_what_is_encoded_is_not_changed() -> None:
    entry: dict[str, Any] = {"b": [2**60, UNSET, {"1": 5e-6}], "0": 1.0, "u": UNSET}
    before = repr(entry)
    encode_entry(entry)
    assert repr(entry) == before


@pytest.mark.parametrize("depth", [100, 254, 255, 1000, 100_000])
def test_there_is_no_limit_of_depth(depth: int) -> None:
    value: Any = 5e-6
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    written = encode_entry(value)
    assert written.count(b"[") + written.count(b"{") == depth
    assert b"0.000005" in written


class Colour(enum.Enum):
    RED = "red"


class Number(int):
    """An int that is not quite one."""


@pytest.mark.parametrize(
    "value",
    [UNSET, Colour.RED, Number(1), datetime(2026, 1, 1, tzinfo=UTC), (1,), {1}, b"x", object(), {1: 2}, {None: 1}],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("beside", ["plain", "\ud800"])
def test_what_json_has_no_word_for_is_a_type_error(value: Any, beside: str) -> None:
    entry = {"s": beside, "v": [value] if value is not UNSET else 1}
    with pytest.raises(TypeError):
        encode_entry(entry if value is not UNSET else value)


def test_a_value_that_contains_itself_is_a_type_error() -> None:
    knot: dict[str, Any] = {"in": []}
    knot["in"].append(knot)
    with pytest.raises(TypeError, match="contains itself"):
        encode_entry(knot)


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = {"n": 1.0}
    assert encode_entry([shared, shared, "\ud800"]) == b'[{"n":1},{"n":1},"\\ud800"]'
