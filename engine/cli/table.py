"""Aligned columns: plain text in a pipe, with a bold head and fitted to the width on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sessiondb.cli.output import BOLD, styled, width
from sessiondb.cli.printable import columns_of, cut, pad

GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `least` is the width to which it may shrink (0: never); `keep_end` keeps a path's end when it does."""

    title: str
    right: bool = False
    least: int = 0
    keep_end: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, head: bool = True) -> Iterator[str]:
    """The lines of a table. The cells are printable already."""
    widths = [
        max([columns_of(column.title) if head else 0, *(columns_of(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]
    available = width()
    if available is not None:
        _shrink(widths, columns, available - len(GAP) * (len(columns) - 1))
    if head:
        yield styled(_line(columns, [column.title for column in columns], widths), BOLD)
    for row in rows:
        yield _line(columns, row, widths)


def fits(columns: Sequence[Column]) -> bool:
    """Whether the columns can be shrunk to the width there is."""
    available = width()
    return available is None or sum(c.least + len(GAP) for c in columns) - len(GAP) <= available


def _shrink(widths: list[int], columns: Sequence[Column], available: int) -> None:
    """Take from the widest column that can give until all fit."""
    while (excess := sum(widths) - available) > 0:
        giving = [i for i, column in enumerate(columns) if column.least and widths[i] > column.least]
        if not giving:
            return
        widest = max(giving, key=lambda i: widths[i])
        others = [widths[i] for i in giving if widths[i] < widths[widest]]
        level = max([*others, columns[widest].least, widths[widest] - excess])
        widths[widest] = level if level < widths[widest] else widths[widest] - 1


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        pad(cut(cell, size, keep_end=column.keep_end), size, right=column.right)
        for column, cell, size in zip(columns, cells, widths, strict=True)
    ]
    return GAP.join(shown).rstrip()
