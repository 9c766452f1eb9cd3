"""Entries and headers as each dialect's client lays them out: which keys, in which order, with which defaults.

The order is what `JSON.stringify` writes, so it is part of the bytes. Recorded lines of every call: the reference
layouts that `tests/test_layouts.py` holds these functions against.
"""

from __future__ import annotations

from typing import Any

from sessiondb.errors import NotSupportedError
from sessiondb.jsonl import CURRENT_VERSION, UNSET, Unset, strip_js
from sessiondb.tree import Entry

PAYLOAD_FIRST = frozenset({"custom", "custom_message"})
"""Types whose own keys stand before `id`, `parentId` and `timestamp`."""

Fields = dict[str, Any]


def entry(kind: str, entry_id: str, parent_id: str | None, timestamp: str | Unset, fields: Fields) -> Entry:
    """One entry: the keys every entry has, and `fields`; without what is UNSET."""
    base = {"type": kind, "id": entry_id, "parentId": parent_id, "timestamp": timestamp}
    keys = {"type": kind, **fields, **base} if kind in PAYLOAD_FIRST else {**base, **fields}
    return {key: value for key, value in keys.items() if value is not UNSET}


def header(
    session_id: str, timestamp: str, cwd: str, *, parent_session: str | Unset = UNSET, title: str | Unset = UNSET,
    title_source: str | Unset = UNSET, title_first: bool = False,
) -> Entry:  # fmt: skip
    """A session's header, version 3. `title_first` is the order of xcsh's `fork`, which copies the title early."""
    titles = {"title": title, "titleSource": title_source}
    fields = {
        "type": "session",
        "version": CURRENT_VERSION,
        "id": session_id,
        **(titles if title_first else {}),
        "timestamp": timestamp,
        "cwd": cwd,
        "parentSession": parent_session,
        **titles,
    }
    return {key: value for key, value in fields.items() if value is not UNSET}


def omp_branch_header(new: Entry, old: Entry) -> Entry:
    """The header of a branch of an omp session, which takes over more of the old one, in omp's own order."""
    own = {key: value for key, value in new.items() if key != "parentSession"}
    titles = {key: old[key] for key in ("title", "titleSource") if key in old}
    more = {key: old[key] for key in ("additionalDirectories",) if key in old}
    parent = {key: new[key] for key in ("parentSession",) if key in new}
    return own | titles | parent | more


def thinking_level_change(dialect: str, level: Any, configured: Any) -> Fields:
    if dialect == "pi":
        return {"thinkingLevel": level}
    fields = {"thinkingLevel": _or_null(level)}
    if dialect == "omp":
        fields["configured"] = _or_null(configured)
    return fields


def model_change(dialect: str, model: str, role: Any, is_fallback: bool) -> Fields:
    """`model` is `provider/model`; pi keeps the two apart and knows no roles."""
    if dialect != "pi":
        fields = {"model": model, "role": role}
        return fields | {"resolvedModelIsFallback": is_fallback} if dialect == "omp" else fields
    provider, slash, model_id = model.partition("/")
    if not slash:
        raise ValueError(f"{model!r} names no provider; pi keeps provider and model apart: give 'provider/model'")
    if role is not UNSET:
        raise ValueError(f"pi knows no roles of models, and {role!r} was given; leave it out")
    return {"provider": provider, "modelId": model_id}


def compaction(
    dialect: str, summary: Any, first_kept_entry_id: Any, tokens_before: Any, details: Any, *, short_summary: Any,
    from_extension: Any, preserve_data: Any, tokens_after: Any, method: Any, replay_through: Any,
) -> Fields:  # fmt: skip
    if dialect == "pi":
        _refuse_in("pi", shortSummary=short_summary, preserveData=preserve_data)
    if dialect != "omp":
        _refuse_in(
            dialect, tokensAfter=tokens_after, method=method, providerReplayThroughEntryId=replay_through
        )  # fmt: skip
    return {
        "summary": summary,
        "shortSummary": short_summary,
        "firstKeptEntryId": first_kept_entry_id,
        "tokensBefore": tokens_before,
        "tokensAfter": tokens_after,
        "method": method,
        "providerReplayThroughEntryId": replay_through,
        "details": details,
        _from_key(dialect): from_extension,
        "preserveData": preserve_data,
    }


def branch_summary(dialect: str, from_id: str | None, summary: Any, details: Any, from_extension: Any) -> Fields:
    return {
        "fromId": "root" if from_id is None else from_id,
        "summary": summary,
        "details": details,
        _from_key(dialect): from_extension,
    }


def custom_message(
    dialect: str, custom_type: Any, content: Any, display: Any, details: Any, attribution: Any
) -> Fields:  # fmt: skip
    if dialect == "pi":
        _refuse_in("pi", attribution=attribution)
        return {"customType": custom_type, "content": content, "display": display, "details": details}
    if dialect == "omp":
        custom_type = "custom-message" if custom_type is UNSET else custom_type
        content = "" if content is UNSET else content
        display = False if display is UNSET else display
        if type(details) is dict and "__queueChipText" in details:  # a mark of its input box, not of the session
            details = {key: value for key, value in details.items() if key != "__queueChipText"}
    return {
        "customType": custom_type,
        "content": content,
        "display": display,
        "details": details,
        "attribution": "agent" if attribution is UNSET else attribution,
    }


def title_change(title: str, source: str, previous: Any, trigger: Any) -> Fields:
    return {"title": title, "source": source, "previousTitle": previous or UNSET, "trigger": trigger}


def session_title(name: str) -> str:
    """A title as xcsh and omp keep it: control characters and runs of white space as one space, trimmed."""
    return " ".join(strip_js("".join(" " if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in name)).split())


def require_dialect(dialect: str, call: str, *known: str) -> None:
    """NotSupportedError unless the dialect's client has the call."""
    if dialect not in known:
        raise NotSupportedError(call, dialect, known)


def _from_key(dialect: str) -> str:
    return "fromHook" if dialect == "pi" else "fromExtension"


def _or_null(value: Any) -> Any:
    return None if value is UNSET else value


def _refuse_in(dialect: str, **fields: Any) -> None:
    given = [name for name, value in fields.items() if value is not UNSET]
    if given:
        raise ValueError(f"{dialect} writes no {' and no '.join(given)} there; leave it out")
