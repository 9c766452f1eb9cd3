"""A few words of a text around what was looked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sessiondb.words import Span

BEFORE: Final = 40
"""Characters in front of the first match."""

BLANKS: Final = re.compile(r"\s+")
CUT: Final = "…"


def snippet_of(text: str, spans: Sequence[Span], size: int) -> tuple[str, list[Span]]:
    """About `size` characters of the text in one line, and where the matches stand in them.

    They begin where most matches lie close to each other; without a match, with the text.
    """
    start = _best_start(spans, size)
    end = min(len(text), start + size)
    start, end = _at_blank(text, start, -1), _at_blank(text, end, 1)
    while start < end and text[start].isspace():
        start += 1
    pieces: list[str] = [CUT] if text[:start].strip() else []
    marks: list[Span] = []
    length, place = len(pieces), start
    for begin, stop in [*(span for span in spans if span[0] < end and span[1] > start), (end, end)]:
        begin, stop = max(begin, place), min(stop, end)
        between = BLANKS.sub(" ", text[place:begin])
        match = BLANKS.sub(" ", text[begin:stop])
        length += len(between)
        pieces += [between, match]
        if match:
            marks.append((length, length + len(match)))
        length, place = length + len(match), stop
    if text[end : end + 1_000].strip():
        pieces.append(CUT)
    return "".join(pieces), marks


def _best_start(spans: Sequence[Span], size: int) -> int:
    best, most = 0, 0
    for number, (start, _) in enumerate(spans):
        inside = sum(1 for other in spans[number : number + 50] if other[1] <= start - BEFORE + size)
        if inside > most:
            best, most = max(0, start - BEFORE), inside
        if number > 500:
            break
    return best


def _at_blank(text: str, place: int, step: int) -> int:
    """The nearest place at a blank, not far away, so that no word is cut."""
    for moved in range(place, place + 12 * step, step):
        if moved <= 0 or moved >= len(text):
            return max(0, min(moved, len(text)))
        if text[moved].isspace():
            return moved + (step < 0)
    return place
