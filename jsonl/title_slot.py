"""The title slot of omp: a first line of fixed size, so that a rename overwrites it in place."""

from __future__ import annotations

from typing import Any, Final

from .encode import encode_entry
from .lines import strip_bom
from .unset import UNSET, Unset
from .values import parse_line

TITLE_SLOT_SIZE: Final = 256
"""Bytes of the slot, newline included."""


def parse_title_slot(raw: bytes) -> dict[str, Any] | None:
    """The title slot that a file's first line holds, or None when it holds something else.

    An empty title in it means that the session has none, whatever the header says.
    """
    if b'"title"' not in raw:  # most first lines are headers: do not parse them twice
        return None
    value = parse_line(strip_bom(raw))
    if isinstance(value, dict) and value.get("type") == "title" and isinstance(value.get("title"), str):
        return value
    return None


def header_with_slot(header: dict[str, Any], slot: dict[str, Any]) -> dict[str, Any]:
    """The header as omp holds it: the slot's title and source in place of its own; an empty title takes them away."""
    if not slot["title"]:
        return {key: value for key, value in header.items() if key not in ("title", "titleSource")}
    source = {"titleSource": slot["source"]} if "source" in slot else {}
    return header | {"title": slot["title"]} | source


def encode_title_slot(title: str, source: str | Unset = UNSET, *, updated_at: str) -> bytes:
    """The slot's line: exactly `TITLE_SLOT_SIZE` bytes, newline included.

    A title that does not fit is cut behind a whole code point. `source` is ``auto`` or ``user``; `updated_at` is ISO
    text. Raises ValueError when the line is too long without any title.
    """
    # two halves of a pair are one code point; no more of them than bytes can fit
    kept = title.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")[:TITLE_SLOT_SIZE]
    while (room := TITLE_SLOT_SIZE - 1 - len(_encode_slot(kept, source, updated_at, pad=""))) < 0:
        if not kept:
            raise ValueError(f"source and time leave no room in a title slot of {TITLE_SLOT_SIZE} bytes")
        kept = kept[:-1]
    return _encode_slot(kept, source, updated_at, pad=" " * room) + b"\n"


def _encode_slot(title: str, source: str | Unset, updated_at: str, *, pad: str) -> bytes:
    slot = {"type": "title", "v": 1, "title": title, "source": source, "updatedAt": updated_at, "pad": pad}
    return encode_entry(slot)
