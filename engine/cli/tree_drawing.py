"""Lays a tree of entries out in lines. Nothing here recurses: sessions are chains of a hundred thousand entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sessiondb.cli.output import DIM, GREEN, YELLOW, styled
from sessiondb.cli.preview import kind_of, preview
from sessiondb.cli.printable import PREVIEW_CHARS, columns_of, cut, one_line, printable
from sessiondb.cli.times import entry_time, full_time
from sessiondb.jsonl import parse_time

FORK, LAST_FORK, RAIL, SPACE = "├─ ", "└─ ", "│  ", "   "

SHOWN_LEVELS: Final = 8
"""How many levels of branches are drawn; of more the innermost, behind a `…`, so that the text keeps its room."""

LEAST_PREVIEW: Final = 12
KIND_COLUMNS: Final = 15


@dataclass(frozen=True, slots=True)
class Drawn:
    """An entry and where it stands in the drawing. `rails` are the columns left of it, `fork` what joins it to them."""

    entry: Any
    id: str | None
    parent_id: str | None
    depth: int
    label: str | None
    rails: tuple[str, ...]
    fork: str
    levels: int


def drawn(roots: list[dict[str, Any]]) -> Iterator[Drawn]:
    """Every node, parents before children, each branch to its end before the next. Several roots are branches too."""
    waiting = list(reversed(list(_siblings(roots, None, 0, (), 0))))
    while waiting:
        node, place = waiting.pop()
        yield place
        rails = _under(place)
        waiting += reversed(list(_siblings(node["children"], place.id, place.depth + 1, rails, place.levels)))


def _siblings(
    nodes: list[dict[str, Any]], parent_id: str | None, depth: int, rails: tuple[str, ...], levels: int
) -> Iterator[tuple[dict[str, Any], Drawn]]:  # fmt: skip
    for number, node in enumerate(nodes, start=1):
        fork = "" if len(nodes) == 1 else LAST_FORK if number == len(nodes) else FORK
        entry = node["entry"]
        entry_id = entry.get("id") if type(entry) is dict else None
        yield node, Drawn(
            entry, entry_id if type(entry_id) is str else None, parent_id, depth, node.get("label"), rails, fork,
            levels + bool(fork),
        )  # fmt: skip


def _under(place: Drawn) -> tuple[str, ...]:
    """The rails for what continues a node: its own, and one more below a fork. Only those that are drawn are kept."""
    if not place.fork:
        return place.rails
    return (*place.rails, RAIL if place.fork == FORK else SPACE)[-SHOWN_LEVELS:]


def tree_lines(nodes: Iterable[Drawn], leaf: str | None, columns: int | None) -> Iterator[str]:
    """The drawing, one line an entry, in `columns` if there is a limit. The last node with the leaf's id is marked."""
    listed = list(nodes)
    leaf_place = next((node for node in reversed(listed) if node.id == leaf), None)
    for node in listed:
        yield _line(node, columns, is_leaf=node is leaf_place)


def _line(node: Drawn, columns: int | None, *, is_leaf: bool) -> str:
    stem = _stem(node)
    time_ms = parse_time(node.entry.get("timestamp")) if type(node.entry) is dict else None
    when = full_time(time_ms) if columns is None else entry_time(time_ms)
    facts = [printable(node.id) if node.id else "(no id)", when, kind_of(node.entry, KIND_COLUMNS)]
    label = f"[{one_line(node.label, 24)}]" if node.label else ""
    mark = "← leaf" if is_leaf else ""
    taken = columns_of(" ".join([stem, *facts, label, mark])) + 1
    room = PREVIEW_CHARS if columns is None else max(LEAST_PREVIEW, columns - taken)
    words = [
        styled(facts[0], DIM),
        styled(facts[1], DIM),
        facts[2],
        styled(label, YELLOW) if label else "",
        cut(preview(node.entry), room),
        styled(mark, GREEN) if mark else "",
    ]
    return stem + " ".join(word for word in words if word)


def _stem(node: Drawn) -> str:
    elided = node.levels - bool(node.fork) > len(node.rails)
    return ("… " if elided else "") + "".join(node.rails) + node.fork
