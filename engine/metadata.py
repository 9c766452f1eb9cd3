"""What is known of a session as a whole, folded from its lines one at a time: id, dialect, name, times, counts.

Rules per dialect: what the clients show in their lists (see jsonl/FORMAT.md), except that a session's activity is
always the time of its messages and never the file's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import orjson

from sessiondb.errors import UnknownDialectError
from sessiondb.jsonl import UNSET, migration_steps, parse_time

Dialect = Literal["xcsh", "pi", "omp"]
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)
MARKS_GO_BY: Final[tuple[Dialect, ...]] = ("omp", "xcsh", "pi")
"""Whose marks decide when a session has several: a fork of a client writes its elder's too."""

AGENT_FOLDERS: Final[dict[str, Dialect]] = {".pi": "pi", ".omp": "omp", ".xcsh": "xcsh", ".openclaw": "pi"}
"""The folders of the agents in a home folder, and the dialect that their sessions are taken for."""

LATEST_PLAUSIBLE_MS: Final = 4_102_444_800_000
"""2100-01-01: later times are another unit or junk and never count as activity."""

FIRST_MESSAGE_CHARS: Final = 2_000
"""How much of the first user text a list row keeps; the entry has it whole."""

XCSH_TYPES: Final = frozenset({"ttsr_injection", "mode_change", "session_init", "context_change"})
OMP_TYPES: Final = frozenset({"title_change", "credential_pin", "reset_boundary"})


def require_dialect(name: str | None) -> Dialect | None:
    """The dialect of that name, or None for None; UnknownDialectError for any other."""
    known = next((dialect for dialect in DIALECTS if dialect == name), None)
    if known != name:
        raise UnknownDialectError(str(name), DIALECTS)
    return known


def text_of(value: Any) -> str | None:
    """The value when it is a string, else None: what a text column may hold."""
    return value if type(value) is str else None


@dataclass(slots=True)
class Metadata:
    """The fold's state: all of it is derived from lines, except the hints that a file's place gave.

    `id_hint` is the id when the header gives none, `dialect_given` what the caller asked for, `folder` the agent's
    folder that the file was found in. `chains`: entries get derived ids and a linear chain, as in version 1.
    """

    id_hint: str
    dialect_given: Dialect | None = None
    folder: str | None = None
    header_id: str | None = None
    header_slot: int | None = None
    version: int = 3
    chains: bool = False
    cwd: str | None = None
    parent_session: str | None = None
    created_ms: int | None = None
    active_ms: int | None = None
    last_ms: int | None = None
    header_title: str | None = None
    slot_title: str | None = None
    info_name: str | None = None
    short_summary: str | None = None
    first_message: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    message_count: int = 0
    entry_count: int = 0
    fault_count: int = 0
    last_id: str | None = None
    leaf_slot: int | None = None
    tangled: bool = False

    def to_json(self) -> str:
        """The state as text, for the session's row."""
        return orjson.dumps(self).decode()

    @staticmethod
    def from_json(text: str) -> Metadata:
        """The state `to_json` wrote."""
        return Metadata(**orjson.loads(text))

    @property
    def session_id(self) -> str:
        """The header's id, else the hint."""
        return self.id_hint if self.header_id is None else self.header_id

    @property
    def dialect(self) -> tuple[Dialect, str]:
        """Dialect and reason: asked for, marks in the lines (omp before xcsh before pi), the folder, else pi."""
        if self.dialect_given:
            return self.dialect_given, "given"
        for name in MARKS_GO_BY:
            if name in self.marks:
                return name, f"lines: {self.marks[name]}"
        if self.folder in AGENT_FOLDERS:
            return AGENT_FOLDERS[self.folder], f"folder {self.folder}"
        return "pi", "default"

    @property
    def title(self) -> str | None:
        """The name the dialect's client would list."""
        dialect = self.dialect[0]
        if dialect == "pi":
            return (self.info_name or "").strip() or None
        if dialect == "omp" and self.slot_title is not None:
            return self.slot_title or None
        if self.header_title is not None:
            return self.header_title
        return self.short_summary if dialect == "xcsh" else None

    @property
    def modified_ms(self) -> int | None:
        """Newest activity: the latest message, else the header's time, else the last entry's. Never the file's."""
        if self.active_ms is not None and self.active_ms > 0:
            return self.active_ms
        return self.created_ms if self.created_ms is not None else self.last_ms

    def note_title_slot(self, slot: dict[str, Any]) -> None:
        self.slot_title = text_of(slot.get("title")) or ""
        self._mark("omp", "title slot")

    def note_header(self, header: dict[str, Any], slot: int) -> None:
        """Take the first header line; later ones do not count."""
        self.header_slot = slot
        self.header_id = text_of(header.get("id"))
        self.cwd = text_of(header.get("cwd"))
        self.parent_session = text_of(header.get("parentSession"))
        self.created_ms = parse_time(header.get("timestamp"))
        self.header_title = text_of(header.get("title"))
        version = header.get("version", UNSET)
        self.chains, _ = migration_steps(version)
        self.version = version if type(version) is int and 0 < version < 1_000_000 else 1 if self.chains else 3

    def note_entry(self, entry: Any, time_ms: int | None) -> None:
        """Take an entry of any type; values that are no objects tell nothing."""
        if type(entry) is dict:
            kind = text_of(entry.get("type"))
            if kind == "message":
                self.note_message(entry.get("message"), time_ms)
            else:
                self.note_other(entry, kind)

    def note_message(self, message: Any, time_ms: int | None) -> None:
        """Take a message entry's message: activity, first text, count."""
        self.message_count += 1
        if type(message) is not dict:
            return
        role = message.get("role")
        if (role == "user" or role == "assistant") and "content" in message:
            stamp = message.get("timestamp")
            when = parse_time(stamp) if type(stamp) in (int, float) else time_ms
            if when is not None and when < LATEST_PLAUSIBLE_MS and (self.active_ms is None or when > self.active_ms):
                self.active_ms = when
            if self.first_message is None and role == "user":
                self.first_message = first_text(message["content"])
        if "attribution" in message:
            self._mark("xcsh", "attribution")

    def note_other(self, entry: dict[str, Any], kind: str | None) -> None:
        """Take an entry that is no message: names, and marks of a dialect."""
        if kind == "session_info":
            self.info_name = text_of(entry.get("name"))
            self._mark("pi", "session_info")
        elif kind == "model_change":
            if "resolvedModelIsFallback" in entry:
                self._mark("omp", "resolvedModelIsFallback")
            if "model" in entry:
                self._mark("xcsh", "model_change.model")
            if "modelId" in entry:
                self._mark("pi", "modelId")
        elif kind == "compaction" and (short := text_of(entry.get("shortSummary"))) is not None:
            self.short_summary = short
        elif kind in XCSH_TYPES:
            self._mark("xcsh", kind)
        elif kind in OMP_TYPES:
            self._mark("omp", kind)
        for key, name in (("fromExtension", "xcsh"), ("attribution", "xcsh"), ("fromHook", "pi")):
            if key in entry:
                self._mark(name, key)

    def _mark(self, dialect: str, mark: str) -> None:
        self.marks.setdefault(dialect, mark)


def first_text(content: Any) -> str | None:
    """A message's text, blocks joined by a space, cut for a list row; None when there is none."""
    if type(content) is str:
        text = content
    elif type(content) is list:
        blocks = (b.get("text") for b in content if type(b) is dict and b.get("type") == "text")
        text = " ".join(t for t in blocks if type(t) is str)
    else:
        return None
    return (text if len(text) <= FIRST_MESSAGE_CHARS else text[:FIRST_MESSAGE_CHARS] + "…") or None
