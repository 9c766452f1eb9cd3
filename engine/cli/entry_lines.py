"""On which line of its file each entry stands."""

from __future__ import annotations

import io
from typing import Final

from sessiondb.jsonl import Fault, parse_line, split_lines, strip_bom
from sessiondb.lines import PIECE_BYTES
from sessiondb.schema import LAST_SLOT
from sessiondb.sessions import SessionInfo
from sessiondb.store import Store

SELECT_SLOTS = "SELECT pk & ? AS slot FROM entries WHERE session_pk = ? ORDER BY pk"

SPREADING_FAULTS: Final = frozenset({"glued", "torn", "oversized"})
"""Faults of a line that the database keeps as several pieces, so that the pieces behind it count ahead of the lines."""


def entry_lines(store: Store, info: SessionInfo) -> list[int]:
    """The line, from 1, of every entry in the order of `Store.entries`."""
    slots: list[int] = [row["slot"] for row in store.sql(SELECT_SLOTS, (LAST_SLOT, info.pk))]
    spread = {fault["line"] for fault in store.faults(info) if fault["kind"] in SPREADING_FAULTS}
    if not spread:
        return [slot + 1 for slot in slots]
    line_of_slot = _line_of_slot(store, info, spread)
    return [line_of_slot[slot] for slot in slots]


def _line_of_slot(store: Store, info: SessionInfo, spread: set[int]) -> list[int]:
    whole = io.BytesIO()
    store.export(info, whole)
    whole.seek(0)
    lines: list[int] = []
    for number, raw in enumerate(split_lines(whole), start=1):
        lines += [number] * (_pieces(raw, is_first=number == 1) if number in spread else 1)
    return lines


def _pieces(raw: bytes, *, is_first: bool) -> int:
    if len(raw) > PIECE_BYTES:
        return -(-len(raw) // PIECE_BYTES)
    value = parse_line(strip_bom(raw) if is_first else raw)
    return len(value.pieces) if isinstance(value, Fault) else 1
