"""Random values against node's own JSON.parse and JSON.stringify (FORMAT.md, V1 to V5 and E1 to E3)."""

from __future__ import annotations

import base64
import math
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from sessiondb.jsonl import Fault, encode_entry, parse_line

ORACLE = Path(__file__).parent / "clients" / "json-oracle.mjs"
REAL = Path(__file__).parents[2] / "shared" / "corpus" / "real"
GOLDEN = Path(__file__).parent / "golden" / "jsonl"

# ruff: disable[SIM905] (tables of words are read more easily than lists of quoted ones)
EDGE_NUMBERS = """
    0 -0 -0.0 0.0 1.0 10 1e5 1E5 1e+5 1e-5 0.00001 0.000001 0.0000011 9.999999e-7 1e-7 1e20 1e21 999999999999999900000
    1e400 -1e400 5e-324 2e-324 1.7976931348623157e308 1.7976931348623159e308 0.1 4.35 123e-20 4503599627370495.5
    9007199254740991 9007199254740992 9007199254740993 -9007199254740993 18446744073709551615 18446744073709551616
    9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
""".split()
BROKEN_NUMBERS = "01 -01 1. .5 +1 1e 1e+ - -. 0x10 1_000 NaN Infinity -Infinity 1.e5 --1 1.5.5 ٣".split()
EDGE_KEYS = """
    0 1 2 9 10 42 4294967294 4294967295 4294967296 99999999999 00 01 -1 1.5 1e3 １ ² length __proto__ constructor
""".split()
ESCAPES = r"""
    \n \t \r \b \f \" \\ \/ \u0000 \u001f \u0041 \u00E9 \uFFFF \ud83d\ude00
""".split()
# ruff: enable[SIM905]
RAW = "\x7f\x80\x85\u00a0é漢\u2028\u2029\ufeff\ufffe\ufffd😀\U0010ffff"
BROKEN_PIECES = [
    *(b"\xff", b"\xc3", b"\xe6\xbc", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80", b"\xf4\x90\x80\x80"),
    *(b"\\", b"\x00", b"\x1f"),
    *(bytes([byte]) for byte in b'"{}[],:0eE.-+ '),
]


class Values:
    """JSON texts of every shape, most of them right, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def line(self) -> bytes:
        text = self.spaced(self.value(self.rng.randrange(5))).encode()
        return self.damaged(text) if self.rng.random() < 0.2 else text

    def value(self, depth: int) -> str:
        choice = self.rng.random()
        if depth and choice < 0.3:
            members = ",".join(f"{self.spaced(self.key())}:{self.spaced(self.value(depth - 1))}" for _ in self.few(6))
            return "{" + members + self.spaced("") + "}"
        if depth and choice < 0.5:
            return "[" + ",".join(self.spaced(self.value(depth - 1)) for _ in self.few(5)) + "]"
        if choice < 0.75:
            return self.number()
        return self.string() if choice < 0.95 else self.rng.choice(["null", "true", "false"])

    def number(self) -> str:
        rng = self.rng
        if rng.random() < 0.01:
            return rng.choice(BROKEN_NUMBERS)
        shapes = (
            lambda: rng.choice(EDGE_NUMBERS),
            lambda: str(rng.randrange(-1000, 1000)),
            lambda: str(rng.randrange(10 ** rng.randrange(1, 40))),
            lambda: str(2 ** rng.randrange(45, 70) + rng.randrange(-3, 4)),
            lambda: repr(self.double()),
            lambda: f"{rng.uniform(-1, 1) * 10.0 ** rng.randrange(-9, 24):.{rng.randrange(1, 18)}g}",
            lambda: f"{rng.randrange(100_000)}.{rng.randrange(10 ** rng.randrange(1, 21))}",
            lambda: f"0.{'0' * rng.randrange(9)}{rng.randrange(1, 10**9)}",
            lambda: f"-{rng.randrange(10)}.{rng.randrange(10**6)}e{rng.choice(['', '+', '-'])}{rng.randrange(330)}",
            lambda: f"{rng.randrange(1, 10**15)}{'0' * rng.randrange(12)}",
        )
        return rng.choice(shapes)()

    def double(self) -> float:
        while not math.isfinite(number := struct.unpack("<d", self.rng.randbytes(8))[0]):
            pass
        return float(number)

    def key(self) -> str:
        choice = self.rng.random()
        if choice < 0.3:
            return f'"{self.rng.choice(EDGE_KEYS)}"'
        if choice < 0.4:
            return f'"{self.rng.randrange(10 ** self.rng.randrange(1, 12))}"'
        return f'"{self.rng.choice("abcdef")}"' if choice < 0.8 else self.string()

    def string(self) -> str:
        return '"' + "".join(self.characters() for _ in self.few(12)) + '"'

    def characters(self) -> str:
        rng = self.rng
        choice = rng.randrange(9)
        if choice < 4:
            return rng.choice("abc xyz012:,{}[]'/")
        if choice == 4:
            return rng.choice(ESCAPES)
        if choice == 5:
            return rng.choice(RAW)
        if choice == 6:
            return f"\\u{rng.randrange(0xD800, 0xE000):{rng.choice('xX')}}"
        code = rng.choice([rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x110000)])
        return chr(code) if chr(code) not in '"\\' else "x"

    def spaced(self, text: str) -> str:
        if self.rng.random() < 0.9:
            return text
        space = self.rng.choice(
            [" ", "\t", "\r", "  ", " \t\r", *(["\u00a0", "\v", "\u2028"] if self.rng.random() < 0.05 else [])]
        )
        return space + text if self.rng.random() < 0.5 else text + space

    def damaged(self, text: bytes) -> bytes:
        damaged = bytearray(text)
        for _ in range(self.rng.randrange(1, 3)):
            at = self.rng.randrange(len(damaged) + 1)
            piece = self.rng.choice([self.rng.randbytes(1), self.rng.choice(BROKEN_PIECES)])
            damaged[at : at + self.rng.randrange(3)] = piece
        return bytes(damaged)

    def few(self, most: int) -> range:
        return range(self.rng.randrange(most))


def ask_node(question: str, asked: bytes) -> list[bytes]:
    node = shutil.which("node")
    if node is None:
        assert not os.environ.get("CI"), "CI must have node: these values are compared with its JSON"
        pytest.skip("node is not installed; values are compared with its JSON")
    done = subprocess.run([node, ORACLE, question], input=asked, capture_output=True, check=True)
    return done.stdout.split(b"\n")[:-1]


def ours(raw: bytes) -> bytes:
    value = parse_line(raw)
    return b"!" if isinstance(value, Fault) else encode_entry(value)


def assert_agrees_with_node(raws: list[bytes]) -> int:
    """Compare what each line parses to and is written as; return how many of them node refuses."""
    answers = ask_node("parse", b"".join(base64.b64encode(raw) + b"\n" for raw in raws))
    assert len(answers) == len(raws)
    differing = [(raw, answer, ours(raw)) for raw, answer in zip(raws, answers, strict=True) if ours(raw) != answer]
    assert differing[:5] == []
    # what JavaScript wrote comes back as it is
    assert [answer for answer in answers if answer != b"!" and ours(answer) != answer][:5] == []
    return answers.count(b"!")


def test_a_sample_of_random_values_is_read_and_written_as_node_does() -> None:
    values = Values(seed=1)
    refused = assert_agrees_with_node([values.line() for _ in range(5_000)])
    assert 300 < refused < 3_000  # both verdicts are well represented


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 15))
def test_200_000_random_values_are_read_and_written_as_node_does(seed: int) -> None:
    values = Values(seed)
    assert assert_agrees_with_node([values.line() for _ in range(40_000)]) > 2_000


def doubles(seed: int, count: int) -> list[float]:
    values = Values(seed)
    rng = values.rng
    shapes = (
        values.double,
        lambda: rng.random() * 10.0 ** rng.randrange(-9, 23),
        lambda: float(f"{rng.random() * 10.0 ** rng.randrange(-9, 6):.{rng.randrange(1, 17)}g}"),
        lambda: rng.randrange(10**9) / 10 ** rng.randrange(12),
        lambda: float(2 ** rng.randrange(40, 80) + rng.randrange(3)),
    )
    return [rng.choice(shapes)() for _ in range(count)]


@pytest.mark.parametrize("count", [20_000, pytest.param(500_000, marks=pytest.mark.slow)])
def test_random_doubles_are_written_as_node_writes_them(count: int) -> None:
    numbers = doubles(seed=3, count=count)
    answers = ask_node("double", struct.pack(f"<{count}d", *numbers))
    written = [encode_entry(number) for number in numbers]
    assert [row for row in zip(numbers, written, answers, strict=True) if row[1] != row[2]][:5] == []


def test_the_golden_lines_are_read_and_written_as_node_does() -> None:
    raws = [raw for file in sorted(GOLDEN.rglob("*.jsonl")) for raw in file.read_bytes().splitlines(keepends=True)]
    assert assert_agrees_with_node(raws) > 5


def test_lines_of_real_sessions_are_read_and_written_as_node_does() -> None:
    if not REAL.is_dir():
        pytest.skip("the folder of real session files is not beside this repository; it is too large to be part of it")
    raws = [raw for file in sorted(REAL.glob("*.jsonl")) for raw in file.read_bytes().split(b"\n") if raw]
    assert len(raws) > 4000
    assert_agrees_with_node(raws)
