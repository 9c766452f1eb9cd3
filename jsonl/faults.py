"""What is said about a line that is not one JSON value."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Literal

FaultKind = Literal["blank", "malformed", "torn", "glued", "too-deep"]


class Nothing(enum.Enum):
    """The type of `NOTHING`; an enum, so that a type checker can narrow ``piece.value is NOTHING``."""

    NOTHING = "NOTHING"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing.NOTHING
"""The value of a piece that gave no entry; no JSON value equals it, null included."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes `start` to `end` of a line, with the entry found in them or `NOTHING`."""

    start: int
    end: int
    value: dict[str, Any] | Nothing


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a line is not one JSON value, and what could be recovered from it.

    `kind`: ``blank`` (nothing but white space), ``malformed`` (nothing recovered), ``torn`` (at least one whole entry
    beside broken bytes), ``glued`` (two or more whole values and nothing else), ``too-deep`` (nested beyond
    `MAX_DEPTH`). `offset` is the byte in the line at which it is wrong. `pieces` follow each other and cover the line
    exactly, terminator included in the last one; joined, their bytes are the line.
    """

    kind: FaultKind
    message: str
    offset: int
    pieces: tuple[Piece, ...]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The recovered entries, in the order of their bytes."""
        return [piece.value for piece in self.pieces if piece.value is not NOTHING]
