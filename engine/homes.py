"""Where the lines of a live session are kept: what a SessionManager asks of it, and the home in memory.

The rules of the tree, the gate and the entries are the manager's, written once. A home keeps what it is given: it
*holds* entries in memory while the gate is closed, then writes them all, then appends one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from sessiondb.jsonl import parse_time
from sessiondb.metadata import Dialect, Metadata
from sessiondb.tree import Entry, MemoryTree, Tree

NAMING_KEYS: Final = ("parentId", "targetId", "firstKeptEntryId", "fromId")
"""Keys with which an entry names another."""


class Home(Protocol):
    """One session's place. Paths and ids are text; `location` is what a parentSession of its branches names."""

    @property
    def dialect(self) -> Dialect:
        """Whose session it is; stays what it was when the home was made."""

    @property
    def header(self) -> Entry: ...

    @property
    def metadata(self) -> Metadata:
        """What is known of the session as a whole, entries held included."""

    @property
    def tree(self) -> Tree: ...

    @property
    def location(self) -> str | None:
        """The file's path, the session's id in a database, or None in memory."""

    @property
    def is_written(self) -> bool:
        """Whether the session can be found by others: its file or row is there."""

    def hold(self, entry: Entry) -> None:
        """Keep an entry in memory only."""

    def write_held(self) -> None:
        """Write all that is held, all or nothing; the whole session when it is not written yet."""

    def append(self, entry: Entry) -> None:
        """Keep an entry and write it."""

    def revise(self, header: Entry, changed: Iterable[Entry] = ()) -> None:
        """Take another header, and these entries in place of those of their id; the next `rewrite` writes them."""

    def rewrite(self) -> None:
        """Write the whole session again, all or nothing."""

    def take_back(self) -> bool:
        """Let go of the entry that was held last, since it could not be written; False where it stays in memory."""

    def set_title_slot(self, slot: bytes, header: Entry) -> None:
        """Put a title slot of omp in place of the first line, or before it; `header` is what it makes of the header."""

    def note_leaf(self, leaf_id: str | None) -> None:
        """Remember where the leaf is, where that can be remembered."""

    def saved_leaf(self) -> str | None:
        """Where the leaf was when it was last noted; the last entry where nothing is remembered."""

    def beside(self, header: Entry, entries: Iterable[Any], *, title_slot: bytes | None = None) -> Home:
        """A home in the same place for another session, all of it held."""

    def flush(self) -> None:
        """What was written is on disk when this returns."""

    def close(self) -> None:
        """Give up what is held open; nothing is written."""

    def discard(self) -> None:
        """Close, and take away again what was made for a session that nobody has used; what was there before stays.

        SessionWriteConflictError when somebody else has written to it, which then stays.
        """


class MemoryHome:
    """A session that is nowhere but in memory."""

    location = None
    is_written = False

    def __init__(self, header: Entry, entries: Iterable[Any], metadata: Metadata) -> None:
        self.dialect = metadata.dialect[0]
        self.header = header
        self.metadata = metadata
        self.tree = MemoryTree()
        metadata.note_header(header, 0)
        for entry in entries:
            self.hold(entry)

    def hold(self, entry: Entry) -> None:
        note(self.metadata, entry)
        self.tree.add(entry)

    append = hold

    def write_held(self) -> None:
        pass

    def revise(self, header: Entry, changed: Iterable[Entry] = ()) -> None:
        self.header = header
        self.tree = with_changes(self.tree, changed)

    def rewrite(self) -> None:
        pass

    def take_back(self) -> bool:
        return False

    def set_title_slot(self, slot: bytes, header: Entry) -> None:
        self.header = header

    def note_leaf(self, leaf_id: str | None) -> None:
        pass

    def saved_leaf(self) -> str | None:
        return last_id(self.tree)

    def beside(self, header: Entry, entries: Iterable[Any], *, title_slot: bytes | None = None) -> MemoryHome:
        return MemoryHome(header, entries, fresh_metadata(self.metadata, header))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def discard(self) -> None:
        pass


def last_id(tree: Tree) -> str | None:
    """Where the leaf is after a session is opened."""
    last = tree.last()
    return None if last is None else last["id"]


def fresh_metadata(old: Metadata, header: Entry) -> Metadata:
    """Metadata for another session of the same dialect."""
    return Metadata(header["id"], old.dialect_given or old.dialect[0], old.folder)


def note(metadata: Metadata, entry: Any) -> None:
    """Tell the fold of an entry."""
    metadata.note_entry(entry, parse_time(entry.get("timestamp")) if type(entry) is dict else None)


def with_changes(tree: MemoryTree, changed: Iterable[Entry]) -> MemoryTree:
    """The tree with the keys and values of each changed entry in the one of its id; entries stay the same objects."""
    for entry in changed:
        held = tree.get(entry["id"])
        if held is not None and held is not entry:
            held.clear()
            held.update(entry)
    return MemoryTree(tree.entries())
