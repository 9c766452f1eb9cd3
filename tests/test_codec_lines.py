"""Lines: nothing is lost and only 0x0A cuts (FORMAT.md, L1 to L4)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondb.jsonl import JS_WHITESPACE, is_blank, split_lines, strip_bom, strip_js

GOLDEN = Path(__file__).parent / "golden" / "jsonl"


class Trickle(io.BytesIO):
    """A stream whose reads give what they like, as pipes do."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(content)
        self.size = size
        self.asked: set[int | None] = set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.add(size)
        return super().read(self.size)


file_bytes = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\xe2\x80\xa8", b"\x85", b"\0", b"xyz" * 5])).map(
    b"".join
)


@given(content=file_bytes, chunk_size=st.integers(1, 12))
def test_the_lines_joined_are_the_stream(content: bytes, chunk_size: int) -> None:
    lines = list(split_lines(io.BytesIO(content), chunk_size=chunk_size))
    assert b"".join(lines) == content
    assert all(line.endswith(b"\n") for line in lines[:-1])
    assert all(line and b"\n" not in line[:-1] for line in lines)


@given(content=file_bytes, size=st.integers(1, 5))
def test_a_stream_that_gives_less_than_asked_is_cut_the_same(content: bytes, size: int) -> None:
    assert list(split_lines(Trickle(content, size))) == list(split_lines(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"\n", [b"\n"], id="one newline"),
        pytest.param(b"a", [b"a"], id="no newline at the end"),
        pytest.param(b"a\r\nb\r\n", [b"a\r\n", b"b\r\n"], id="CR LF"),
        pytest.param(b"a\rb\n", [b"a\rb\n"], id="CR alone cuts nothing"),
        pytest.param(
            "a\u2028b\u2029c\u0085d\n".encode(), ["a\u2028b\u2029c\u0085d\n".encode()], id="U+2028 cuts nothing"
        ),
        pytest.param(b"\x0b\x0c\x1c\x1d\x1e\n", [b"\x0b\x0c\x1c\x1d\x1e\n"], id="VT, FF and separators cut nothing"),
    ],
)
def test_only_a_newline_ends_a_line(content: bytes, lines: list[bytes]) -> None:
    assert list(split_lines(io.BytesIO(content))) == lines


def test_a_stream_is_read_a_chunk_at_a_time() -> None:
    stream = Trickle(b"x" * 10_000, 7)
    assert b"".join(split_lines(stream, chunk_size=64)) == b"x" * 10_000
    assert stream.asked == {64}


def test_every_golden_file_is_its_lines() -> None:
    files = sorted(GOLDEN.rglob("*.jsonl"))
    assert len(files) > 40
    for file in files:
        with file.open("rb") as stream:
            assert b"".join(split_lines(stream, chunk_size=100)) == file.read_bytes(), file


@pytest.mark.parametrize(
    ("raw", "blank"),
    [
        (b"", True),
        (b" \t\r\n", True),
        (b"\x0b\x0c\n", True),
        (b"\xef\xbb\xbf\n", True),
        ("\u00a0\u2028\u3000\n".encode(), True),
        ("\u0085\n".encode(), False),
        (b"\x1c\n", False),
        (b"\0\n", False),
        (b"\xff\n", False),
        ("\u180e\n".encode(), False),
        (b" 0\n", False),
    ],
)
def test_a_line_is_blank_when_javascript_trims_it_away(raw: bytes, blank: bool) -> None:
    assert is_blank(raw) is blank


def test_trim_takes_javascripts_white_space_and_no_more() -> None:
    assert strip_js(JS_WHITESPACE + "a b" + JS_WHITESPACE) == "a b"
    assert len(set(JS_WHITESPACE)) == len(JS_WHITESPACE) == 25
    assert strip_js("\u0085\x1ca\u180e") == "\u0085\x1ca\u180e"


def test_one_byte_order_mark_is_taken_off() -> None:
    assert strip_bom(b"\xef\xbb\xbf\xef\xbb\xbf{}") == b"\xef\xbb\xbf{}"
    assert strip_bom(b"{}") == b"{}"
