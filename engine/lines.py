"""The one door: a session's lines, in file order, become rows. Import, growth, append and reindex pass through here.

The line is the record; everything else in these rows is derived from it and can be built again by feeding the same
bytes. A row of `line` is one *slot*: a whole line, or one piece of a line that holds several entries (glued), a torn
part and an entry, or more bytes than SQLite takes in a value. The slots of a session, joined, are its bytes.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

from sessiondb.jsonl import (
    NOTHING,
    Fault,
    derived_entry_id,
    parse_line,
    parse_time,
    parse_title_slot,
    strip_bom,
)
from sessiondb.metadata import Metadata, text_of
from sessiondb.schema import SLOT_BITS

PIECE_BYTES: Final = 1 << 28
"""How much of a line over SQLite's limit goes into one slot."""

BLOB_REFERENCE = re.compile(rb"blob:sha256:([0-9a-f]{64})(?![0-9A-Za-z])")

LineRow = tuple[int, bytes, bool]
"""Key, bytes, and whether they are text (UTF-8 that parsed) or a blob."""

EntryRow = tuple[Any, ...]
"""The columns of INSERT_ENTRY in order."""

FaultRow = tuple[int, int, int, str, str]
"""Session key, line (from 1), byte offset in the session, kind, message."""


@dataclass(slots=True)
class Rows:
    """What has been derived since the rows were last taken."""

    lines: list[LineRow] = field(default_factory=list)
    entries: list[EntryRow] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)
    blobs: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Place:
    """How far a session has been read: the next slot, line (from 0) and byte, and what each slot's depth is."""

    slot: int = 0
    line: int = 0
    offset: int = 0
    depths: array[int] = field(default_factory=lambda: array("i"))
    slot_of: dict[str, int] = field(default_factory=dict)


class Indexer:
    """Derives the rows of one session from its lines, fed in order with `add`.

    `max_line` is the longest value the database takes, in bytes. Every fed byte ends up in exactly one line row.
    """

    def __init__(self, session_pk: int, metadata: Metadata, place: Place | None = None, *, max_line: int) -> None:
        self.session_pk = session_pk
        self.metadata = metadata
        self.place = place or Place()
        self.rows = Rows()
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
        if len(raw) > self._max_line:
            self._add_oversized(raw)
        else:
            value = parse_line(raw if place.offset else strip_bom(raw))
            is_text = raw.isascii() or self._is_utf8(raw)
            if type(value) is dict:
                self._add_object(raw, value, is_text)
            elif isinstance(value, Fault):
                self._add_unparsed(raw, value)
            else:
                self._add_plain_value(raw, value, is_text)
        place.offset += len(raw)

    def _is_utf8(self, raw: bytes) -> bool:
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            self._fault("invalid-utf8", "bytes that are no UTF-8; clients read U+FFFD there", error.start)
            return False
        return True

    def _add_oversized(self, raw: bytes) -> None:
        self._fault("oversized", f"{len(raw):,} bytes, more than SQLite takes in one value; kept whole but not read")
        for start in range(0, len(raw), PIECE_BYTES):
            self._keep(raw[start : start + PIECE_BYTES], is_text=False)

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
                self._add_object(part, piece.value, is_text=_decodes(part))

    def _add_plain_value(self, raw: bytes, value: Any, is_text: bool) -> None:
        name = {str: "a string", list: "a list", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
        self._fault("not-an-object", f"{name} where an entry is expected")
        if value is not None:
            # pi keeps such a value as an entry without id, a root of its own; it fails on null, which is no entry here.
            self._keep_entry(self._entry_row(None, None, None, 0, None, None))
        self._keep(raw, is_text)

    def _add_object(self, raw: bytes, value: dict[str, Any], is_text: bool) -> None:
        kind = value.get("type")
        if b"blob:sha256:" in raw:
            self.rows.blobs.update(h.decode() for h in BLOB_REFERENCE.findall(raw))
        if b"\\ud" in raw or b"\\uD" in raw:
            value = self._without_lone_surrogates(value)
        if kind == "session":
            self._note_header(value)
        elif kind == "title" and self.place.slot == 0 and parse_title_slot(raw) is not None:
            self.metadata.note_title_slot(value)
        else:
            self._keep_entry(self._entry(value, kind if type(kind) is str else None))
        self._keep(raw, is_text)

    def _without_lone_surrogates(self, value: dict[str, Any]) -> dict[str, Any]:
        """The value with U+FFFD for every lone surrogate, which no column can hold; the line keeps the escape."""
        cleaned = _replace_surrogates(value)
        if cleaned != value:
            self._fault("lone-surrogate", "half of a surrogate pair; searched and shown as U+FFFD")
        return cleaned  # type: ignore[no-any-return]

    def _note_header(self, value: dict[str, Any]) -> None:
        metadata, place = self.metadata, self.place
        if metadata.header_slot is not None:
            self._fault("second-header", "another header line; the first one counts")
            return
        if metadata.entry_count:
            self._fault("header-not-first", "the header stands behind entries; clients refuse or overwrite such a file")
        if type(value.get("id")) is not str:
            self._fault("header-without-id", f"the header has no id; {metadata.session_id!r} stands for it")
        metadata.note_header(value, place.slot)

    def _entry(self, value: dict[str, Any], kind: str | None) -> EntryRow:
        place, metadata = self.place, self.metadata
        entry_id, parent_id = value.get("id"), value.get("parentId")
        if metadata.chains or type(entry_id) is not str:
            if not metadata.chains and "parentId" in value:
                parent_id = value["parentId"]
            else:
                parent_id = metadata.last_id
            entry_id = derived_entry_id(metadata.session_id, place.line, place.slot_of)
        if entry_id in place.slot_of:
            self._fault("duplicate-id", f"the id {entry_id} stands on an earlier line too; the last one counts")
            metadata.tangled = True
        parent_slot = None
        depth = 0
        if type(parent_id) is not str:
            parent_id = None
        elif (parent_slot := place.slot_of.get(parent_id)) is None or parent_id == entry_id:
            parent_slot = None
            metadata.tangled = True
        else:
            depth = place.depths[parent_slot] + 1
        time_ms = parse_time(value.get("timestamp"))
        if time_ms is None:
            self._fault("bad-time", f"no time that can be read: {value.get('timestamp', 'missing')!s:.60}")
        row = self._entry_row(entry_id, parent_id, parent_slot, depth, kind, time_ms, *_columns(kind, value))
        place.slot_of[entry_id] = place.slot
        metadata.note_entry(value, kind, entry_id, time_ms)
        return row

    def _entry_row(
        self, entry_id: str | None, parent_id: str | None, parent_slot: int | None, depth: int, kind: str | None,
        time_ms: int | None, *columns: Any,
    ) -> EntryRow:  # fmt: skip
        base = self._base
        parent_pk = None if parent_slot is None else base + parent_slot
        return (
            base + self.place.slot, self.session_pk, entry_id, parent_id, parent_pk, depth, kind, time_ms,
            *(columns or NO_COLUMNS),
        )  # fmt: skip

    def _keep_entry(self, row: EntryRow) -> None:
        self.rows.entries.append(row)
        self.metadata.entry_count += 1
        self.metadata.leaf_slot = self.place.slot
        place = self.place
        place.depths.extend([0] * (place.slot - len(place.depths)))
        place.depths.append(row[DEPTH])

    def _keep(self, raw: bytes, is_text: bool) -> None:
        self.rows.lines.append((self._base + self.place.slot, raw, is_text))
        self.place.slot += 1

    def _fault(self, kind: str, message: str, offset: int = 0) -> None:
        place = self.place
        self.rows.faults.append((self.session_pk, place.line, place.offset + offset, kind, message))
        self.metadata.fault_count += 1


def _decodes(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


DEPTH: Final = 5
NO_COLUMNS: Final = (None,) * 10
MAX_INTEGER: Final = (1 << 63) - 1


def _columns(kind: str | None, value: dict[str, Any]) -> tuple[Any, ...]:
    """role, provider, model, tool, stop_reason, input, output, cache_read, cache_write, cost of an entry."""
    if kind == "message":
        message = value.get("message")
        if type(message) is not dict:
            return NO_COLUMNS
        role = text_of(message.get("role"))
        if role == "toolResult":
            return (role, None, None, text_of(message.get("toolName")), *NO_COLUMNS[:6])
        if role != "assistant":
            return (role, *NO_COLUMNS[:9])
        usage = message.get("usage")
        return (
            role, text_of(message.get("provider")), text_of(message.get("model")), None,
            text_of(message.get("stopReason")), *(_usage(usage) if type(usage) is dict else NO_COLUMNS[:5]),
        )  # fmt: skip
    if kind == "model_change":
        model = value.get("modelId", value.get("model"))
        return (None, text_of(value.get("provider")), text_of(model), *NO_COLUMNS[:7])
    return NO_COLUMNS


def _usage(usage: dict[str, Any]) -> tuple[int | None, int | None, int | None, int | None, float | None]:
    get = usage.get
    cost = get("cost")
    total = cost.get("total") if type(cost) is dict else None
    return (
        _count(get("input")), _count(get("output")), _count(get("cacheRead")), _count(get("cacheWrite")),
        _money(total),
    )  # fmt: skip


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


def _replace_surrogates(value: Any) -> Any:
    if type(value) is str:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if type(value) is dict:
        return {_replace_surrogates(k): _replace_surrogates(v) for k, v in value.items()}
    if type(value) is list:
        return [_replace_surrogates(v) for v in value]
    return value
