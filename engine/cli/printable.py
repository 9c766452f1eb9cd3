"""Text from sessions made harmless for a terminal, and measured in its columns."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Final
from unicodedata import category, east_asian_width

JOINERS: Final = "\u200c\u200d\ufe0f"
"""Format characters that Persian, Indic scripts and emoji need and that can hide nothing."""

PREVIEW_CHARS: Final = 120
"""How much of a text a line has when nothing else limits it."""

_BLANKS = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]")


def printable(text: str) -> str:
    """The text on one line, without any character that steers a terminal or reorders what is shown.

    Control characters, terminal escapes, bidirectional and other invisible controls and lone surrogates are spelled as
    `\\x1b`, `\\u202e`; a byte of a file name that is no UTF-8 as `\\xff`; line breaks and tabs become spaces.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in _BLANKS.sub(" ", text))


def escaped_json(text: str) -> str:
    """JSON text with escapes for all that `printable` spells out; the value stays the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in JOINERS else json.dumps(c)[1:-1] for c in text)


def one_line(text: str, limit: int = PREVIEW_CHARS) -> str:
    """The start of the text, white space collapsed, printable, at most `limit` columns."""
    start = text[: 4 * limit + 1000]
    return cut(printable(" ".join(start.split())), limit)


def counted(number: int, noun: str) -> str:
    """`1 file`, `1,234 files`, `2 entries`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def with_tilde(path: str) -> str:
    """The path with the home folder as `~`, printable."""
    home = str(Path.home())
    if path == home or path.startswith(home.rstrip("/") + "/"):
        path = "~" + path[len(home) :]
    return printable(path)


def columns_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of_char, text))


def cut(text: str, columns: int, *, keep_end: bool = False) -> str:
    """The text in at most `columns` columns; what is left out leaves a `…` at the end, or at the start."""
    if columns_of(text) <= columns:
        return text
    kept: list[str] = []
    left = columns - 1
    for char in reversed(text) if keep_end else text:
        left -= _columns_of_char(char)
        if left < 0:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if keep_end else "".join(kept).rstrip() + "…"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text filled up with spaces to `columns`, behind it or (`right`) before it."""
    fill = " " * (columns - columns_of(text))
    return fill + text if right else text + fill


def _spelled(char: str) -> str:
    code = ord(char)
    if char in JOINERS or category(char) in ("Cn", "Co"):  # unassigned here: an emoji newer than this Python
        return char
    if category(char) == "Zs":
        return " "
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a file name that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=4096)
def _columns_of_char(char: str) -> int:
    if char == "\ufe0f":  # asks for the emoji form, which is one column wider
        return 1
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
