"""omp's title slot (FORMAT.md, T1 and T2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondb.jsonl import TITLE_SLOT_SIZE, UNSET, encode_title_slot, parse_line, parse_title_slot

GOLDEN = Path(__file__).parent / "golden" / "jsonl"
SLOTS = (GOLDEN / "title-slots.jsonl").read_bytes().splitlines(keepends=True)
TIME = "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize("raw", SLOTS, ids=range(len(SLOTS)))
def test_a_slot_that_omp_wrote_is_written_again_to_the_byte(raw: bytes) -> None:
    slot = parse_title_slot(raw)
    assert slot is not None
    assert encode_title_slot(slot["title"], slot.get("source", UNSET), updated_at=slot["updatedAt"]) == raw


@given(title=st.text(st.characters() | st.sampled_from('\ud83d\ude00\ud800"\\\n\0'), max_size=300))
def test_any_title_gives_exactly_256_bytes_and_keeps_whole_code_points(title: str) -> None:
    raw = encode_title_slot(title, "user", updated_at=TIME)
    assert len(raw) == TITLE_SLOT_SIZE == 256
    assert raw.endswith(b'"}\n')
    slot = parse_title_slot(raw)
    assert slot is not None
    joined = title.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    kept: str = slot["title"]
    assert joined.startswith(kept)
    if kept != joined:
        longest = len(raw) - len(slot["pad"]) + len(encode_escaped(joined[len(kept)]))
        assert longest > TITLE_SLOT_SIZE


def encode_escaped(text: str) -> bytes:
    return encode_title_slot(text, updated_at=TIME).partition(b'"title":"')[2].partition(b'","updatedAt"')[0]


def test_a_title_is_cut_behind_a_whole_code_point() -> None:
    empty: Any = parse_line(encode_title_slot("", updated_at=TIME))
    room = len(empty["pad"])
    for spare in range(4):
        slot = parse_title_slot(encode_title_slot("a" * (room - spare) + "😀", updated_at=TIME))
        assert slot is not None
        assert slot["title"] == "a" * (room - spare)
        assert len(slot["pad"]) == spare
    whole = parse_title_slot(encode_title_slot("a" * (room - 4) + "😀", updated_at=TIME))
    assert whole is not None
    assert whole["title"].endswith("😀")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"session","id":"s","title":"x"}\n',
        b'{"type":"title","v":1,"title":5}\n',
        b'{"type":"title","v":1}\n',
        b'["title"]\n',
        b'{"type":"title","title":"x"\n',
        b"\n",
        b"",
    ],
)
def test_a_line_that_is_no_slot_gives_none(raw: bytes) -> None:
    assert parse_title_slot(raw) is None


def test_a_slot_behind_a_byte_order_mark_is_read() -> None:
    assert parse_title_slot(b"\xef\xbb\xbf" + SLOTS[0]) == parse_title_slot(SLOTS[0])


def test_a_slot_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        encode_title_slot("t", "s" * 300, updated_at=TIME)
