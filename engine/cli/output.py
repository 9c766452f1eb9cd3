"""Where things are printed: data on stdout, messages on stderr, and what a terminal allows."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from sessiondb.cli.printable import escaped_json, printable
from sessiondb.jsonl import encode_entry

BOLD, DIM, YELLOW, GREEN = "1", "2", "33", "32"


def prepare_streams() -> None:
    """Let a file name that is no UTF-8, or a terminal that lacks a character, never end the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """A message for people, on stderr; it may have several lines."""
    sys.stdout.flush()
    sys.stderr.write("".join(printable(line) + "\n" for line in message.split("\n")))


def put(lines: Iterable[str]) -> None:
    """Lines of data on stdout. They are printable already."""
    sys.stdout.writelines(line + "\n" for line in lines)


def put_bytes(*pieces: bytes) -> None:
    """Data on stdout exactly as it is."""
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)


def put_json(value: Any) -> None:
    """One JSON value and a newline on stdout, whatever is in it."""
    put_json_bytes(encode_entry(value))


def put_json_bytes(encoded: bytes) -> None:
    """JSON as it is, and a newline. A terminal gets it with escapes for what could steer it: the same JSON."""
    if on_terminal():
        put([escaped_json(encoded.decode("utf-8", "replace"))])
    else:
        put_bytes(encoded, b"\n")


def on_terminal() -> bool:
    """Whether somebody looks at stdout."""
    return sys.stdout.isatty()


def width() -> int | None:
    """How many columns a line may take; None when it goes to a file or pipe and nobody set COLUMNS."""
    if on_terminal():
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else None


def styled(text: str, style: str) -> str:
    """The text in one of the styles above, where a terminal shows it and NO_COLOR does not forbid it."""
    if on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"\x1b[{style}m{text}\x1b[0m"
    return text
