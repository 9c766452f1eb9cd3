"""What can be saved from a line that is not one JSON value.

Two accidents make such lines: an append glued to an entry that lost its newline, and an append glued to the torn half
of one. In both a whole entry stands on the line and would be lost with it. Rules R1 to R6 of FORMAT.md are the ones
kept here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .faults import NOTHING, Fault, FaultKind, Nothing, Piece
from .grammar import GrammarError, TooDeepError, read_value, skip_space

WORK_PER_BYTE = 4
WORK_FLOOR = 1 << 16
"""What recovery may read before it stops looking: the line four times over, and 64 KiB for the short ones (R6)."""

# Every client writes `type` as the first key of an entry, a header and a title slot.
_CANDIDATE = re.compile(r'\{[ \t]*"type"[ \t]*:')
# Zero bytes: what a power cut leaves where a file system had grown the file but not written it.
_ENDS_CLEANLY = re.compile(r"[ \t\r\n\0]*(?:\{|\Z)")
_BEFORE_NESTED = ":,["

ParseBytes = Callable[[bytes], Any]


def explain(raw: bytes, parse: ParseBytes) -> Fault:
    """The `Fault` of a line that is neither blank nor one JSON value. `parse` reads the bytes of one whole value."""
    cut = Cut(raw, parse)
    cut.run()
    return Fault(cut.kind(), cut.message(), cut.offset, cut.pieces())


class Cut:
    """One pass over a broken line: whole values are read off as long as they follow each other, broken bytes searched
    for the start of a whole entry, and so on to the end.

    The text is the line as Latin-1, so that an index into it is an index into the bytes. JSON's own characters are
    ASCII, so the structure is the same as in UTF-8; only the values differ, and those are read from the bytes again.
    """

    def __init__(self, raw: bytes, parse: ParseBytes) -> None:
        self.raw = raw
        self.text = raw.decode("latin-1").rstrip("\r\n")  # or a torn string would seem to hold a control character
        self.parse = parse
        self.work = 0  # characters read by the grammar so far
        self.budget = WORK_PER_BYTE * len(raw) + WORK_FLOOR
        self.offset = 0  # of the first thing wrong
        self.fault: GrammarError | None = None
        self.values = 0  # whole values that follow each other from the start of a run
        self.out_of_budget = False
        self._starts: list[tuple[int, dict[str, Any] | Nothing]] = []

    def run(self) -> None:
        """Cut the whole line; afterwards `pieces` and the rest can be asked for."""
        at = 0
        while skip_space(self.text, at) < len(self.text):
            if self._is_spent():
                self._starts.append((at, NOTHING))
                return
            end = self._whole_value(at)
            if end is None:  # and from here the line is broken up to the next whole entry
                found = self._find_entry(skip_space(self.text, at) + 1)
                self._starts.append((at, NOTHING))
                if found is None:
                    return
                at, end, entry = found
                self._starts.append((at, entry))
            at = skip_space(self.text, end)

    def kind(self) -> FaultKind:
        """The kind of the fault (`Fault`)."""
        if self.fault is None:
            return "glued"
        if any(value is not NOTHING for _, value in self._starts):
            return "torn"
        return "too-deep" if isinstance(self.fault, TooDeepError) else "malformed"

    def message(self) -> str:
        """One line for people."""
        saved = sum(value is not NOTHING for _, value in self._starts)
        entries = "1 whole entry" if saved == 1 else f"{saved} whole entries"
        if self.fault is None:
            return f"{self.values} values on one line, the second at byte {self.offset}; {entries} among them"
        text = f"{self.fault.reason} at byte {self.offset}"
        if saved:
            text += f"; {entries} on the line recovered"
        if self.out_of_budget:
            text += "; the search for further entries was given up"
        return text

    def pieces(self) -> tuple[Piece, ...]:
        """The cut, with neighbours that gave nothing taken together."""
        kept: list[tuple[int, dict[str, Any] | Nothing]] = []
        for start, value in self._starts:
            if not (kept and value is NOTHING and kept[-1][1] is NOTHING):
                kept.append((start, value))
        ends = [start for start, _ in kept[1:]] + [len(self.raw)]
        return tuple(Piece(start, end, value) for (start, value), end in zip(kept, ends, strict=True))

    def _whole_value(self, at: int) -> int | None:
        """Read the value at `at` off the line and return its end, or None when it is broken."""
        try:
            end = self._read(at)
        except GrammarError as error:
            if self.fault is None:
                self.fault, self.offset = error, error.at
            return None
        self.values += 1
        if self.values == 2 and self.fault is None:
            self.offset = skip_space(self.text, at)
        value = self.parse(self.raw[at:end])
        self._starts.append((at, value if is_entry(value) else NOTHING))
        return end

    def _find_entry(self, at: int) -> tuple[int, int, dict[str, Any]] | None:
        """The next whole entry behind broken bytes: its start, its end and itself."""
        while match := _CANDIDATE.search(self.text, at):
            start = match.start()
            if self._is_spent():
                return None
            try:
                end = self._read(start)
            except GrammarError:
                at = start + 1  # another may begin inside what looked like this one
                continue
            at = end  # whatever stands inside a whole object is part of it
            if _ENDS_CLEANLY.match(self.text, end):
                value = self.parse(self.raw[start:end])
                if is_entry(value) and (is_linked(value) or not self._may_be_nested(start)):
                    return start, end, value
        return None

    def _is_spent(self) -> bool:
        self.out_of_budget = self.work >= self.budget
        return self.out_of_budget

    def _may_be_nested(self, start: int) -> bool:
        """Whether a value of the torn entry itself could stand here: then the object may be a part of it."""
        before = start - 1
        while before >= 0 and self.text[before] in " \t\r\n":
            before -= 1
        return before >= 0 and self.text[before] in _BEFORE_NESTED

    def _read(self, at: int) -> int:
        try:
            end = read_value(self.text, at)[1]
        except GrammarError as error:
            self.work += error.at - at
            raise
        self.work += end - at
        return end


def is_entry(value: Any) -> bool:
    """Whether a recovered value is an entry, a header or a title slot and not, say, a content block."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] == "title":
        return isinstance(value.get("title"), str)
    return isinstance(value.get("timestamp"), str)


def is_linked(value: dict[str, Any]) -> bool:
    """Whether an entry carries what only whole entries of version 2 and later, and headers, carry."""
    return isinstance(value.get("id"), str) and ("parentId" in value or value["type"] == "session")
