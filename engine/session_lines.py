"""A whole session in memory, read from its lines as the clients do it and written back without losing a line.

What a rewrite must not lose, and clients do: lines that hold no entry (broken ones, `null`, further headers). They keep
their places between the entries. Blank lines go, as in the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sessiondb.jsonl import (
    MAX_DEPTH,
    NOTHING,
    Fault,
    derived_entry_id,
    encode_entry,
    is_outdated,
    is_utf8,
    migrate,
    migration_steps,
    parse_line,
    parse_time,
    parse_title_slot,
    strip_bom,
)
from sessiondb.metadata import Metadata
from sessiondb.tree import Entry

Encode = Callable[[Any], bytes]


@dataclass(slots=True)
class SessionLines:
    """Header (None when the lines have none), entries in file order, and what else the lines hold.

    `others` has, by the number of entries before them, the lines that are no entry: bytes as they are, or a further
    header. `was_outdated`: the lines were of an older version, and the client would write them again.
    """

    header: Entry | None = None
    entries: list[Any] = field(default_factory=list)
    others: dict[int, list[Any]] = field(default_factory=dict)
    title_slot: bytes | None = None
    starts_with_header: bool = False
    was_outdated: bool = False
    derived_ids: set[str] = field(default_factory=set)
    is_utf8: bool = True

    def lines(self, encode: Encode = encode_entry) -> Iterator[bytes]:
        """The lines of the session as its client writes them, each without a newline."""
        if self.title_slot is not None:
            yield self.title_slot.removesuffix(b"\n")
        if self.header is not None:
            yield encode(self.header)
        for place, entry in enumerate(self.entries):
            yield from self._others_at(place)
            yield encode(entry)
        for place in sorted(self.others):
            if place >= len(self.entries):
                yield from self._others_at(place)

    def _others_at(self, place: int) -> Iterator[bytes]:
        for other in self.others.get(place, ()):
            yield other if isinstance(other, bytes) else encode_entry(other)


def encode_line(value: Any) -> bytes:
    """The bytes of an entry's line, without a newline. TypeError for what is no JSON, or nests too deep to be read."""
    raw = encode_entry(value)
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and isinstance(parse_line(raw), Fault):
        raise TypeError(f"nested deeper than {MAX_DEPTH:,}: no reader would find it again")
    return raw


def read_session_lines(
    lines: Iterable[bytes], metadata: Metadata, new_entry_id: Callable[[], str] | None = None
) -> SessionLines:
    """Read a session, brought to version 3; `metadata` is told of every line.

    Entries without id, and all entries of version 1, get `new_entry_id()`, or else derived ids (FORMAT.md, M7), and
    the entry before them as parent.
    """
    reader = _Reader(metadata, new_entry_id)
    for line in lines:
        reader.add(line)
    return reader.finish()


class _Reader:
    def __init__(self, metadata: Metadata, new_entry_id: Callable[[], str] | None) -> None:
        self._metadata = metadata
        self._new_entry_id = new_entry_id
        self._session = SessionLines()
        self._line = 0
        self._ids: dict[str, None] = {}
        self._all_ids: list[str] = []
        self._lacking: list[tuple[Entry, str, Any]] = []  # entries without id, what they get as id and as parent
        self._last_id: str | None = None

    def add(self, raw: bytes) -> None:
        self._line += 1
        self._session.is_utf8 = self._session.is_utf8 and is_utf8(raw)
        value = parse_line(strip_bom(raw) if self._line == 1 else raw)
        if not isinstance(value, Fault):
            self._add_value(value, raw)
        elif value.kind != "blank":
            start = 0
            for piece in value.pieces:
                end = piece.end + len(raw) - value.pieces[-1].end  # a byte order mark was cut off
                part, start = raw[start:end], end
                self._add_value(None if piece.value is NOTHING else piece.value, part)

    def _add_value(self, value: Any, raw: bytes) -> None:
        session, metadata = self._session, self._metadata
        if type(value) is dict and value.get("type") == "session":
            if session.header is None:
                session.header, session.starts_with_header = value, not session.entries
                metadata.note_header(value, 0)
            else:
                self._add_other(value)
        elif self._line == 1 and type(value) is dict and (slot := parse_title_slot(raw)) is not None:
            session.title_slot = strip_bom(raw)
            metadata.note_title_slot(slot)
            return
        elif value is None:
            self._add_other(raw.rstrip(b"\r\n"))
        else:
            self._add_entry(value)

    def _add_other(self, other: Any) -> None:
        self._session.others.setdefault(len(self._session.entries), []).append(other)

    def _add_entry(self, value: Any) -> None:
        metadata = self._metadata
        self._all_ids.append(self._id_of(value) if type(value) is dict else "")
        metadata.note_entry(value, parse_time(value.get("timestamp")) if type(value) is dict else None)
        self._session.entries.append(value)

    def _id_of(self, value: Entry) -> str:
        """The entry's own id, or the one that it gets at the end."""
        entry_id = value.get("id")
        if self._metadata.chains or type(entry_id) is not str:
            entry_id = self._make_id()
            self._lacking.append((value, entry_id, value.get("parentId", self._last_id)))
        self._last_id = entry_id
        self._ids[entry_id] = None
        return entry_id

    def _make_id(self) -> str:
        if self._new_entry_id is not None:
            return self._new_entry_id()
        return derived_entry_id(self._metadata.session_id, self._line, self._ids)

    def finish(self) -> SessionLines:
        session = self._session
        version = None if session.header is None else session.header.get("version")
        if session.header is not None:
            session.was_outdated = is_outdated(version)
            if self._lacking and len(self._lacking) == sum(type(entry) is dict for entry in session.entries):
                version = None  # of version 1 whatever the header says: pi's fork copied them under a new one
        gives_ids, changes_more = migration_steps(version) if session.header is not None else (False, False)
        if not gives_ids:  # else the migration gives them, in the order of M4
            for value, entry_id, parent_id in self._lacking:
                value |= {"id": entry_id, "parentId": parent_id}
        if not session.was_outdated:
            session.derived_ids = {entry_id for _, entry_id, _ in self._lacking}
        if gives_ids or changes_more:
            header = session.header if session.was_outdated else {"type": "session", "version": version}
            migrate([header, *session.entries], new_id=lambda index: self._all_ids[index - 1])
        if session.was_outdated and session.header is not None:
            for other in (other for group in session.others.values() for other in group if type(other) is dict):
                other["version"] = session.header["version"]
        return session
