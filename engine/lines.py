"""The one door: a session's lines, in file order, become rows. Import, growth and check pass through here.

The line is the record; everything else in these rows is derived from it and can be built again by feeding the same
bytes. A row of `line` is one *slot*: a whole line, or one piece of a line that holds several entries (glued), a torn
part and an entry, or more bytes than SQLite takes in a value. The slots of a session, joined, are its bytes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from sessiondb.jsonl import (
    NOTHING,
    Fault,
    derived_entry_id,
    is_utf8,
    parse_line,
    parse_time,
    parse_title_slot,
    strip_bom,
)
from sessiondb.metadata import Metadata, text_of
from sessiondb.schema import SLOT_BITS
from sessiondb.text_index import TextRow
from sessiondb.texts import texts_of
from sessiondb.tree import SETTINGS
from sessiondb.words import spaced

PIECE_BYTES: Final = 1 << 28
"""How much of a line over SQLite's limit goes into one slot."""

BLOB_REFERENCE = re.compile(rb'"blob:sha256:([0-9a-f]{64})"')
"""A string that is nothing but a reference: text that speaks of one does not refer to it."""

SURROGATE_ESCAPE = re.compile(
    rb"(\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""What to pass over (another escape, a whole pair) or half a pair."""

DEPTH_SHIFT: Final = 32
ONE_DEEPER: Final = 1 << DEPTH_SHIFT
STATE_MASK: Final = ONE_DEEPER - 1
ROOT_LEVEL: Final = 0
UNKNOWN_STATE: Final = STATE_MASK
"""An entry's *level*: its depth in the upper bits, its *state* below: 1 + the slot of the nearest settings entry at or
above it, 0 when there is none, UNKNOWN_STATE when it was not looked for. One number: one is made for each line."""

LineRow = tuple[int, bytes]
"""Key and bytes."""

EntryRow = tuple[Any, ...]
"""The columns of INSERT_ENTRY in order."""

FaultRow = tuple[int, int, int, str, str]
"""Session key, line (from 1), byte offset in the session, kind, message."""


@dataclass(slots=True)
class Rows:
    """What has been derived since the rows were last taken. Text lines are UTF-8 that parsed, the others blobs."""

    text_lines: list[LineRow] = field(default_factory=list)
    blob_lines: list[LineRow] = field(default_factory=list)
    entries: list[EntryRow] = field(default_factory=list)
    texts: list[TextRow] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)

    def take_texts(self) -> list[TextRow]:
        """The texts, for a caller that writes them apart from the other rows."""
        texts, self.texts = self.texts, []
        return texts


class Levels(Protocol):
    """Each slot's level, in the order of the slots."""

    def __getitem__(self, slot: int, /) -> int: ...

    def append(self, level: int, /) -> None: ...


@dataclass(slots=True)
class Place:
    """How far a session has been read: the next slot, line (from 0) and byte, and each slot's level."""

    slot: int = 0
    line: int = 0
    offset: int = 0
    levels: Levels = field(default_factory=lambda: array("q"))
    slot_of: dict[str, int] = field(default_factory=dict)
    find_state: Callable[[int], int] | None = None  # of a slot whose state is UNKNOWN_STATE


class Indexer:
    """Derives the rows of one session from its lines, fed in order with `add`.

    `blobs` are the hashes that the fed lines refer to, `max_line` is the longest value the database takes, in bytes.
    Every fed byte ends up in exactly one line row.
    """

    def __init__(self, session_pk: int, metadata: Metadata, place: Place | None = None, *, max_line: int) -> None:
        self.session_pk = session_pk
        self.metadata = metadata
        self.place = place or Place()
        self.rows = Rows()
        self.blobs: set[str] = set()
        self._base = session_pk << SLOT_BITS
        self._max_line = max_line

    def take_rows(self) -> Rows:
        """The rows derived since the last call; the caller writes them."""
        rows, self.rows = self.rows, Rows()
        return rows

    def add(self, raw: bytes) -> None:
        """Take one line, terminator included."""
        place = self.place
        place.line += 1
        if b"blob:sha256:" in raw:  # in broken lines too: who deletes a file must not lose what it refers to
            self.blobs |= blob_references(raw)
        if len(raw) > self._max_line:
            self._add_oversized(raw)
        else:
            try:
                # orjson takes a part of what parse_line takes, and nothing with broken UTF-8 or half a surrogate pair:
                # most lines need no further look.
                value = orjson.loads(raw)
            except orjson.JSONDecodeError:
                self._add_odd(raw)
            else:
                self._add_value(raw, value, is_text=True)
        place.offset += len(raw)

    def _add_value(self, raw: bytes, value: Any, is_text: bool) -> None:
        level = ROOT_LEVEL
        if type(value) is not dict:
            self._note_plain_value(value)
        else:
            kind = value.get("type")
            if kind == "session":
                self._note_header(value)
            elif kind == "title" and self.place.slot == 0 and parse_title_slot(raw) is not None:
                self.metadata.note_title_slot(value)
            else:
                level = self._add_entry(value, kind if type(kind) is str else None)
            if texts := texts_of(value):
                key = self._base + self.place.slot
                self.rows.texts.append((key, {kind: spaced(text) for kind, text in texts.items()}))
        self._keep(raw, is_text, level)

    def _add_odd(self, raw: bytes) -> None:
        """A line that is blank, broken, or JSON with something in it that few other programs read."""
        line = raw if self.place.offset else strip_bom(raw)
        value = parse_line(line)
        if isinstance(value, Fault):
            self._add_unparsed(raw, value)
            return
        is_text = True
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            is_text = False
            self._fault("invalid-utf8", "bytes that are no UTF-8; clients read U+FFFD there", error.start)
        self._add_value(raw, self._without_lone_surrogates(line, value), is_text)

    def _add_unparsed(self, raw: bytes, fault: Fault) -> None:
        if fault.kind == "blank":
            self._keep(raw, is_text=False)
            return
        # A byte order mark was cut off before parsing; the pieces do not know of it.
        skipped = len(raw) - fault.pieces[-1].end
        self._fault(fault.kind, fault.message, fault.offset + skipped)
        start = 0
        for piece in fault.pieces:
            part = raw[start : piece.end + skipped]
            start = piece.end + skipped
            if piece.value is NOTHING:
                self._keep(part, is_text=False)
            else:
                self._add_value(part, self._without_lone_surrogates(part, piece.value), is_text=is_utf8(part))

    def _add_oversized(self, raw: bytes) -> None:
        self._fault("oversized", f"{len(raw):,} bytes, more than SQLite takes in one value; kept whole but not read")
        for start in range(0, len(raw), PIECE_BYTES):
            self._keep(raw[start : start + PIECE_BYTES], is_text=False)

    def _without_lone_surrogates(self, raw: bytes, value: Any) -> Any:
        """The value with U+FFFD for every lone surrogate, which no column can hold; the line keeps the escape."""
        cleaned = SURROGATE_ESCAPE.sub(_keep_pairs, raw)
        if cleaned == raw:
            return value
        self._fault("lone-surrogate", "half of a surrogate pair; searched and shown as U+FFFD")
        return read_slot(cleaned)

    def _note_plain_value(self, value: Any) -> None:
        name = {str: "a string", list: "a list", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
        self._fault("not-an-object", f"{name} where an entry is expected")
        if value is not None:
            # pi keeps such a value as an entry without id, a root of its own; it fails on null, which is no entry here.
            slot = self.place.slot
            self.rows.entries.append(
                (self._base + slot, self.session_pk, None, None, None, 0, None, None, *NO_COLUMNS, None)
            )
            self.metadata.leaf_slot = slot
            self.metadata.entry_count += 1

    def _note_header(self, value: dict[str, Any]) -> None:
        metadata = self.metadata
        if metadata.header_slot is not None:
            self._fault("second-header", "another header line; the first one counts")
            return
        if metadata.entry_count:
            self._fault("header-not-first", "the header stands behind entries; clients refuse or overwrite such a file")
        if type(value.get("id")) is not str:
            self._fault("header-without-id", f"the header has no id; {metadata.session_id!r} stands for it")
        metadata.note_header(value, self.place.slot)

    def _add_entry(self, value: dict[str, Any], kind: str | None) -> int:
        """Derive an entry's row; its level is returned."""
        place, metadata, base = self.place, self.metadata, self._base
        entry_id, parent_id = value.get("id"), value.get("parentId")
        if metadata.chains or type(entry_id) is not str:
            if metadata.chains or "parentId" not in value:
                parent_id = metadata.last_id
            entry_id = derived_entry_id(metadata.session_id, place.line, place.slot_of)
        elif entry_id in place.slot_of:
            self._fault("duplicate-id", f"the id {entry_id:.40} stands on an earlier line too; the last one counts")
            metadata.tangled = True
        parent_pk, level = None, ROOT_LEVEL
        if type(parent_id) is not str:
            parent_id = None
        elif parent_id and (parent_slot := place.slot_of.get(parent_id)) is not None and parent_id != entry_id:
            parent_pk, level = base + parent_slot, place.levels[parent_slot] + ONE_DEEPER
        else:
            metadata.tangled = True
        time_ms = parse_time(value.get("timestamp"))
        if time_ms is None:
            self._fault("bad-time", f"no time that can be read: {_shown(value.get('timestamp', 'missing'))}")
        slot, state_pk = place.slot, None
        if kind == "message":
            message = value.get("message")
            columns = _message_columns(message) if type(message) is dict else NO_COLUMNS
            metadata.note_message(message, time_ms)
        else:
            columns = _model_columns(value) if kind == "model_change" else NO_COLUMNS
            metadata.note_other(value, kind)
            if (is_settings := kind in SETTINGS) or kind == "compaction":
                level = self._with_state(level, parent_pk)
                above = level & STATE_MASK
                state_pk = base + above - 1 if above else None
                if is_settings:
                    level += slot + 1 - above
        depth = level >> DEPTH_SHIFT
        self.rows.entries.append(
            (base + slot, self.session_pk, entry_id, parent_id, parent_pk, depth, kind, time_ms, *columns, state_pk)
        )
        place.slot_of[entry_id] = metadata.leaf_slot = slot
        metadata.entry_count += 1
        metadata.last_id = entry_id
        if time_ms is not None:
            metadata.last_ms = time_ms
        return level

    def _with_state(self, level: int, parent_pk: int | None) -> int:
        """The level with its state known; it is looked for only where it was not kept."""
        find_state = self.place.find_state
        if level & STATE_MASK != UNKNOWN_STATE or find_state is None or parent_pk is None:
            return level
        return level - UNKNOWN_STATE + find_state(parent_pk - self._base)

    def _keep(self, raw: bytes, is_text: bool, level: int = ROOT_LEVEL) -> None:
        place = self.place
        (self.rows.text_lines if is_text else self.rows.blob_lines).append((self._base + place.slot, raw))
        place.levels.append(level)
        place.slot += 1

    def _fault(self, kind: str, message: str, offset: int = 0) -> None:
        place = self.place
        self.rows.faults.append((self.session_pk, place.line, place.offset + offset, kind, message))
        self.metadata.fault_count += 1


def blob_references(raw: bytes) -> set[str]:
    """The hashes that a line refers to."""
    return {digest.decode() for digest in BLOB_REFERENCE.findall(raw)}


def read_slot(raw: bytes) -> Any:
    """The value in the bytes of a slot that an entry was found in: what stands beside a recovered entry is left out."""
    value: Any = parse_line(strip_bom(raw))
    return value.entries[0] if isinstance(value, Fault) else value


def _shown(value: Any) -> str:
    """A few words for a value. Never the repr of a container: it may nest deeper than Python recurses."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{value!s:.60}"


NO_COLUMNS: Final = (None,) * 10
NO_COUNTS: Final = (None,) * 5
MAX_INTEGER: Final = (1 << 63) - 1


def _message_columns(message: dict[str, Any]) -> tuple[Any, ...]:
    """role, provider, model, tool, stop_reason, input, output, cache_read, cache_write, cost of a message."""
    get = message.get
    role = get("role")
    if role == "assistant":
        usage = get("usage")
        counts = _usage(usage) if type(usage) is dict else NO_COUNTS
        return (role, text_of(get("provider")), text_of(get("model")), None, text_of(get("stopReason")), *counts)
    if role == "toolResult":
        return (role, None, None, text_of(get("toolName")), None, None, None, None, None, None)
    return (text_of(role), *NO_COLUMNS[1:])


def _model_columns(entry: dict[str, Any]) -> tuple[Any, ...]:
    model = entry.get("modelId", entry.get("model"))
    return (None, text_of(entry.get("provider")), text_of(model), *NO_COLUMNS[3:])


def _usage(usage: dict[str, Any]) -> tuple[Any, ...]:
    """input, output, cache_read, cache_write, cost."""
    get = usage.get
    counts = [get("input"), get("output"), get("cacheRead"), get("cacheWrite")]
    for i, count in enumerate(counts):
        if type(count) is not int or count > MAX_INTEGER:
            counts[i] = _count(count)
    cost = get("cost")
    return (*counts, _money(cost.get("total")) if type(cost) is dict else None)


def _count(value: Any) -> int | None:
    """A token count as the client wrote it; None for what is no number or does not fit."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER else None


def _money(value: Any) -> float | None:
    if type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER:
        return float(value)
    # NaN and infinity are no amounts; JSON.stringify would write null for them.
    return value if type(value) is float and value - value == 0 else None


def _keep_pairs(match: re.Match[bytes]) -> bytes:
    return match[1] or rb"\ufffd"
