"""Paths taken out of a session: into a session of their own, or as one line of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sessiondb.tree import Entry, Label

NewLabel = Callable[[str | None, str, Label, set[str]], Entry]
"""Makes a label entry from its parent's id, its target, the label, and the ids that are taken."""


def branched_entries(path: Sequence[Entry], labels: Mapping[str, Label], new_label: NewLabel) -> list[Entry]:
    """The entries of a session that holds this path alone, root first.

    The labels that stand are taken out of the path and set again at its end, for targets that are left. What hung on a
    label hangs on the entry before it, and a compaction that kept from a label on keeps from the entry after it: the
    clients leave both pointing at nothing, and lose what stands before.
    """
    kept = without_labels(path)
    taken = {entry["id"] for entry in kept}
    parent_id = kept[-1]["id"] if kept else None
    for target, label in labels.items():
        if target in taken:
            entry = new_label(parent_id, target, label, taken)
            kept.append(entry)
            parent_id = entry["id"]
            taken.add(parent_id)
    return kept


def without_labels(path: Sequence[Entry]) -> list[Entry]:
    """The path's entries that are no labels, chained past them."""
    after: dict[str, str | None] = {}  # a removed label's id: the id of the entry behind it
    following: str | None = None
    for entry in reversed(path):
        if entry.get("type") == "label":
            after[entry["id"]] = following
        else:
            following = entry["id"]
    kept: list[Entry] = []
    for entry in path:
        if entry["id"] in after:
            continue
        if entry.get("parentId") in after:
            entry = {**entry, "parentId": kept[-1]["id"] if kept else None}
        first_kept = entry.get("firstKeptEntryId")
        if entry.get("type") == "compaction" and type(first_kept) is str and first_kept in after:
            entry = {**entry, "firstKeptEntryId": after[first_kept]}
        kept.append(entry)
    return kept


def linear_entries(path: Iterable[Entry]) -> list[Entry]:
    """The path's entries, each hanging on the one before it; a `parentId` keeps its place among the keys."""
    linear: list[Entry] = []
    previous: str | None = None
    for entry in path:
        linear.append({**entry, "parentId": previous})
        previous = entry["id"]
    return linear
