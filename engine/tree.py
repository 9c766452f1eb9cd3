"""The tree that a session's entries form, as the clients hold it; pure rules over entries in file order.

An entry is found by its id; of several with one id the last in the file answers. A parent is found the same way, so
parents may stand later in the file, and may lead back: every walk here ends, where the clients' would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, Final, NamedTuple, Protocol

from sessiondb.jsonl import UNSET, js_time, js_truthy, parse_time

Entry = dict[str, Any]
TreeNode = dict[str, Any]

SETTINGS: Final = frozenset(
    {
        "thinking_level_change", "model_change", "service_tier_change", "mode_change", "context_change",
        "ttsr_injection", "mcp_tool_selection",
    }
)  # fmt: skip
"""Types whose effect on a context lasts beyond a compaction."""


class Label(NamedTuple):
    """A label that stands: its text, and the timestamp of the label entry that set it."""

    text: Any
    timestamp: Any


class Window(NamedTuple):
    """What a context needs of a path.

    `path` is the end of the path: from the first kept entry (or the compaction when nothing before it is kept) to the
    leaf; all of it without a compaction. `above`, in path order, are the entries further up whose settings count: those
    of the types in `SETTINGS`, and the last assistant message when `path` holds none.
    """

    above: list[Entry]
    path: list[Entry]


class Tree(Protocol):
    """The entries of one session, read only as far as asked."""

    def get(self, entry_id: str) -> Entry | None:
        """The entry of that id."""

    def last(self) -> Entry | None:
        """The last entry in file order that has an id: the leaf after a session is opened."""

    def entries(self) -> list[Any]:
        """All in file order, migrated to version 3, without the header; also values that are no objects."""

    def path(self, entry_id: str) -> list[Entry]:
        """Root to entry; empty when there is none of that id. A cycle is cut at its entry that comes last."""

    def window(self, entry_id: str) -> Window:
        """As much of the path as a context needs."""

    def children(self, parent_id: str | None) -> list[Entry]:
        """Those with exactly this `parentId`; None gives the roots."""

    def labels(self) -> dict[str, Label]:
        """The labels that stand by target, in the order they were first set; see `fold_label`."""

    def has_assistant(self) -> bool:
        """Whether any entry is an assistant's message."""

    def usage_entries(self) -> Iterable[Entry]:
        """The entries that usage is counted from: assistant messages, and results of the tool `task`."""

    def latest_message_leaf(self) -> str | None:
        """The last entry of the branch that holds the newest message."""

    def __contains__(self, entry_id: str) -> bool:
        """Whether there is an entry of that id."""

    def __len__(self) -> int:
        """How many entries."""


class MemoryTree:
    """A Tree over a list, which it keeps and adds to."""

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        self._entries: list[Any] = []
        self._by_id: dict[str, Entry] = {}
        self._labels: dict[str, Label] = {}
        self._last: Entry | None = None
        self._has_assistant = False
        for entry in entries:
            self.add(entry)

    def add(self, entry: Any) -> None:
        """Take one more entry, behind all others."""
        self._entries.append(entry)
        if type(entry) is not dict:
            return
        if type(entry_id := entry.get("id")) is str:
            self._by_id[entry_id] = self._last = entry
        if entry.get("type") == "label":
            fold_label(self._labels, entry)
        elif role_of(entry) == "assistant":
            self._has_assistant = True

    def get(self, entry_id: str) -> Entry | None:
        return self._by_id.get(entry_id)

    def last(self) -> Entry | None:
        return self._last

    def entries(self) -> list[Any]:
        return list(self._entries)

    def path(self, entry_id: str) -> list[Entry]:
        leaf = self._by_id.get(entry_id)
        return [] if leaf is None else path_to(leaf, self._by_id, self._entries)

    def window(self, entry_id: str) -> Window:
        return Window([], self.path(entry_id))

    def children(self, parent_id: str | None) -> list[Entry]:
        return [e for e in self._by_id.values() if e.get("parentId", e) == parent_id]

    def labels(self) -> dict[str, Label]:
        return dict(self._labels)

    def has_assistant(self) -> bool:
        return self._has_assistant

    def usage_entries(self) -> Iterator[Entry]:
        return (entry for entry in self._entries if counts_usage(entry))

    def latest_message_leaf(self) -> str | None:
        newest: str | None = None
        newest_ms: int | None = None
        for entry in self._by_id.values():
            time_ms = parse_time(entry.get("timestamp")) if entry.get("type") == "message" else None
            if time_ms is not None and (newest_ms is None or time_ms >= newest_ms):
                newest, newest_ms = entry["id"], time_ms
        if newest is None:
            return None
        below: set[str | None] = {newest}
        for entry in self._entries:  # a parent may stand later, but who hangs under a message was written after it
            parent_id = entry.get("parentId") if type(entry) is dict else None
            if type(parent_id) is str and parent_id in below:
                below.add(_id_of(entry))
        below.discard(None)
        return next(entry_id for entry_id in map(_id_of, reversed(self._entries)) if entry_id in below)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._by_id

    def __len__(self) -> int:
        return len(self._entries)


def role_of(entry: Any) -> Any:
    """The role of a message entry's message; None for whatever else."""
    if type(entry) is dict and entry.get("type") == "message" and type(message := entry.get("message")) is dict:
        return message.get("role")
    return None


def counts_usage(entry: Any) -> bool:
    """Whether usage is counted from this entry: an assistant's message, or a result of the tool `task`."""
    role = role_of(entry)
    return bool(role == "assistant" or (role == "toolResult" and entry["message"].get("toolName") == "task"))


def fold_label(labels: dict[str, Label], entry: Entry) -> None:
    """Let a label entry take effect: the last line of the file for a target decides, on whatever branch it stands.

    An empty or missing label clears. Setting a label again keeps its place in the order, clearing gives it up. The
    target need not exist.
    """
    target, text = entry.get("targetId"), entry.get("label")
    if type(target) is not str:
        return
    if js_truthy(text):
        labels[target] = Label(text, entry.get("timestamp", UNSET))
    else:
        labels.pop(target, None)


def path_to(leaf: Entry, by_id: Mapping[str, Entry], entries: Sequence[Any]) -> list[Entry]:
    """Root to `leaf` by `parentId`. Of a cycle the entry that comes last in the file counts as a root."""
    path: list[Entry] = []
    seen: set[int] = set()
    at: Entry | None = leaf
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        path.append(at)
        parent_id = at.get("parentId")
        at = by_id.get(parent_id) if type(parent_id) is str and parent_id else None
    if at is not None:
        place = {id(entry): i for i, entry in enumerate(entries)}
        start = next(i for i, entry in enumerate(path) if entry is at)
        closing = max(range(start, len(path)), key=lambda i: place.get(id(path[i]), -1))
        del path[closing + 1 :]
    path.reverse()
    return path


def closing_entries(parents: Mapping[int, int | None]) -> Iterator[int]:
    """Of each cycle in a parent map the greatest key: the entry that closed it. Every entry is walked over once."""
    settled: set[int] = set()
    for start in parents:
        walk: list[int] = []
        on_walk: set[int] = set()
        at: int | None = start
        while at is not None and at not in settled and at not in on_walk:
            walk.append(at)
            on_walk.add(at)
            at = parents[at]
        if at in on_walk:
            yield max(walk[walk.index(at) :])
        settled |= on_walk


def build_tree(entries: Sequence[Any], *, with_label_times: bool = False) -> list[TreeNode]:
    """The roots, each `{"entry", "children", "label"?, "labelTimestamp"?}`, as the clients' `getTree` gives them.

    Roots (no parent, an unknown one, or the entry itself) stand in file order, children by their timestamps. An id that
    comes twice has one node, of its last entry; an earlier one that is a root shows that node once more, as in the
    clients. Elsewhere a node is shown once, and of a cycle the entry that comes last is a root: the clients' tree is
    empty there, or never ends. `with_label_times`: pi tells when a label was set.
    """
    last: dict[Any, int] = {_id_of(entry): place for place, entry in enumerate(entries)}
    labels: dict[str, Label] = {}
    for entry in entries:
        if type(entry) is dict and entry.get("type") == "label":
            fold_label(labels, entry)
    nodes: dict[Any, TreeNode] = {}
    for entry_id, place in last.items():
        nodes[entry_id] = node = {"entry": entries[place], "children": []}
        if (label := labels.get(entry_id)) is not None:
            node["label"] = label.text
            if with_label_times and label.timestamp is not UNSET:
                node["labelTimestamp"] = label.timestamp
    parents = {place: _parent_place(entries[place], last) for place in last.values()}
    cut = set(closing_entries(parents))
    roots: list[TreeNode] = []
    for place, entry in enumerate(entries):
        node = nodes[_id_of(entry)]
        parent = parents.get(place, _parent_place(entry, last))
        if parent is None or place in cut:
            roots.append(node)
        elif place in parents:
            nodes[_id_of(entries[parent])]["children"].append(node)
    for node in nodes.values():
        if len(node["children"]) > 1:
            node["children"].sort(key=_by_time)
    return roots


def _id_of(entry: Any) -> str | None:
    """An entry's id; None for what has none, which clients hold under one key, `undefined`."""
    entry_id = entry.get("id") if type(entry) is dict else None
    return entry_id if type(entry_id) is str else None


def _parent_place(entry: Any, last: Mapping[Any, int]) -> int | None:
    parent_id = entry.get("parentId") if type(entry) is dict else None
    return last.get(parent_id) if type(parent_id) is str and parent_id != entry.get("id") else None


def _compare_times(a: TreeNode, b: TreeNode) -> int:
    first, second = _time_of(a["entry"]), _time_of(b["entry"])
    if first is None or second is None:  # JavaScript compares with NaN there: neither comes first
        return 0
    return first - second


def _time_of(entry: Any) -> int | None:
    return js_time(entry.get("timestamp", UNSET)) if type(entry) is dict else None


_by_time = cmp_to_key(_compare_times)
