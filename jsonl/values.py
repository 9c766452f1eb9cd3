"""One line to one value, as ``JSON.parse`` reads it."""

from __future__ import annotations

from typing import Any

import orjson

from .faults import NOTHING, Fault, Piece
from .grammar import GrammarError, read_value, skip_space
from .lines import is_blank
from .recovery import explain


def parse_line(raw: bytes) -> Any | Fault:
    """What ``JSON.parse`` gives for the line, or a `Fault` that says what is wrong and what could be recovered.

    The terminator may be there or not. Bytes are decoded as UTF-8 with U+FFFD for what is not UTF-8, as browsers and
    node do; lone surrogates stay lone surrogates in the str; ``1e400`` is inf, an integer beyond 64 bits a float; of
    a repeated key the first position and the last value stay. A byte order mark is an error here as there: see
    `strip_bom`. Never raises, whatever the bytes, and never depends on the depth of the caller's stack.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass  # not necessarily wrong: orjson takes less than JavaScript does
    if is_blank(raw):
        return Fault("blank", "blank line", 0, (Piece(0, len(raw), NOTHING),))
    try:
        return _read_whole(raw.decode("utf-8", "replace"))
    except GrammarError:
        return explain(raw, parse_line)


def _read_whole(text: str) -> Any:
    try:
        return orjson.loads(text)  # quick for the line whose only oddity was invalid UTF-8
    except orjson.JSONDecodeError:
        pass
    value, end = read_value(text, 0)
    end = skip_space(text, end)
    if end != len(text):
        raise GrammarError("more text behind the value", end)
    return value
