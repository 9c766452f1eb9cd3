"""What goes to the model: the entries of a path folded into messages and settings, as each client does it.

Pure rules, the same for a list of entries and for a database, which reads only the end of a path (`Window`). Facts:
`buildSessionContext` of pi 0.73.1, xcsh 19.54.0 and omp 18. Where a client would throw or never return, what cannot
be read is passed over and the rest is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sessiondb import omp_context
from sessiondb.jsonl import UNSET, Unset, js_time, js_truthy
from sessiondb.metadata import Dialect, text_of
from sessiondb.to_llm import js_text
from sessiondb.tool_calls import answered_ids, tool_calls
from sessiondb.tree import Entry, path_to, role_of

Context = dict[str, Any]

SUMMARY_KEYS: Final[dict[Dialect, tuple[str, ...]]] = {
    "pi": ("summary", "tokensBefore"),
    "xcsh": ("summary", "shortSummary", "tokensBefore"),
    "omp": ("summary", "shortSummary", "tokensBefore", "tokensAfter", "method"),
}
"""What a summary message takes over from its compaction, in the order it is written."""


def build_session_context(
    entries: Sequence[Any],
    leaf_id: str | Unset | None = UNSET,
    by_id: Mapping[str, Any] | None = None,
    *,
    dialect: Dialect = "xcsh",
) -> Context:
    """The context at a leaf: `messages`, and the settings of the dialect, in the client's keys and their order.

    `entries` are a session's in file order, migrated, plain values among them allowed. `leaf_id` None is the place
    before the first entry: an empty context. An unknown one, `""` and `UNSET` mean the last entry. `by_id` is the index
    of the entries, when the caller has one; of several with one id the last in the file answers.

    The messages are the entries' own objects, not copies. Times are milliseconds, None where the entry's is no time.
    Never loops (a cycle ends at its entry that comes last in the file) and never raises on data. `models.default` is
    taken from assistants only while no explicit change of it stands above: so the docs; xcsh's code lets each
    assistant overwrite it.
    """
    return context_of_path(_path_at(entries, leaf_id, by_id), dialect=dialect)


def context_of_path(path: Sequence[Any], *, above: Iterable[Any] = (), dialect: Dialect) -> Context:
    """The context of the entries of a path, root to leaf, or of a `Window` of it.

    Settings are folded over `above` and then `path`; messages come from `path` alone.
    """
    known = [entry for entry in path if type(entry) is dict]
    settled = [entry for entry in above if type(entry) is dict] + known
    if dialect == "pi":
        return {"messages": list(_messages(known, dialect)), **_pi_settings(settled)}
    messages = list(_messages(known, dialect))
    if dialect == "omp":
        messages = omp_context.without_failed_turns(omp_context.without_open_calls(messages))
    return {"messages": messages, **_rich_settings(settled, dialect)}


class OpenToolCall(NamedTuple):
    """A tool call that no result answers, and the entry it stands in; None for what is no string or not known."""

    entry_id: str | None
    tool_call_id: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class ContextReport:
    """What keeps a context from being whole.

    `open_tool_calls`: providers refuse a conversation with such a call. `broken_parent`: the parent that the first
    entry of the path names, though none is above it: it exists nowhere, or leads back to the entry; `unreachable` then
    counts the entries that stand before it in the file and are not on the path.
    """

    open_tool_calls: tuple[OpenToolCall, ...] = ()
    unreachable: int = 0
    broken_parent: str | None = None


def context_report(
    entries: Sequence[Any],
    leaf_id: str | Unset | None = UNSET,
    by_id: Mapping[str, Any] | None = None,
    *,
    dialect: Dialect = "xcsh",
) -> ContextReport:
    """What is missing from the context that `build_session_context` gives for the same arguments."""
    path = _path_at(entries, leaf_id, by_id)
    root = path[0] if path else None
    on_path = {id(entry) for entry in path}
    before = 0
    for entry in entries:
        if entry is root:
            break
        if id(entry) not in on_path and not (type(entry) is dict and entry.get("type") == "session"):
            before += 1
    return report_of_path(path, context_of_path(path, dialect=dialect)["messages"], root=root, before=before)


def report_of_path(path: Iterable[Any], messages: Iterable[Any], *, root: Any, before: int) -> ContextReport:
    """The report on a context's messages.

    `path` are the entries that the messages were made of: a whole path or a window of it. `root` is the first entry of
    the whole path, `before` the number of entries that stand before it in the file and not on the path.
    """
    parent = text_of(root.get("parentId")) if type(root) is dict else None
    calls = tuple(_open_calls(path, list(messages)))
    return ContextReport(calls, before, parent) if parent else ContextReport(calls)


def _open_calls(path: Iterable[Any], messages: list[Any]) -> Iterator[OpenToolCall]:
    entry_ids = {id(e["message"]): text_of(e.get("id")) for e in path if role_of(e) == "assistant"}
    answered = answered_ids(messages)
    for message in messages:
        for call in tool_calls(message):
            if (call_id := text_of(call.get("id"))) not in answered:
                yield OpenToolCall(entry_ids.get(id(message)), call_id, text_of(call.get("name")))


def _path_at(entries: Sequence[Any], leaf_id: str | Unset | None, by_id: Mapping[str, Any] | None) -> list[Entry]:
    if leaf_id is None:
        return []
    if by_id is None:
        by_id = {entry["id"]: entry for entry in entries if type(entry) is dict and text_of(entry.get("id"))}
    leaf = by_id.get(leaf_id) if type(leaf_id) is str and leaf_id else None  # "" names nothing, to the clients
    if leaf is None:
        leaf = next((entry for entry in reversed(entries) if entry is not None), None)
    return path_to(leaf, by_id, entries) if type(leaf) is dict else []


# Settings


def _pi_settings(entries: Iterable[Entry]) -> Context:
    level: Any = "off"
    model: Context | None = None
    for entry in entries:
        kind = entry.get("type")
        if kind == "thinking_level_change":
            level = entry.get("thinkingLevel", UNSET)  # as it is: pi gives a null too
        elif kind == "model_change":
            model = _given(provider=entry.get("provider", UNSET), modelId=entry.get("modelId", UNSET))
        elif role_of(entry) == "assistant":
            message = entry["message"]
            model = _given(provider=message.get("provider", UNSET), modelId=message.get("model", UNSET))
    return _given(thinkingLevel=level, model=model)


def _rich_settings(entries: Sequence[Entry], dialect: Dialect) -> Context:
    only_xcsh, only_omp = dialect == "xcsh", dialect == "omp"
    settings: Context = {
        "thinkingLevel": "off",
        **({"configuredThinkingLevel": UNSET} if only_omp else {}),
        "serviceTier": UNSET,
        "models": _models(entries),
        **({"activeContextName": UNSET, "activeContextTenant": UNSET} if only_xcsh else {}),
        "injectedTtsrRules": list(dict.fromkeys(_rules(entries))),
        **({"selectedMCPToolNames": [], "hasPersistedMCPToolSelection": False} if only_xcsh else {}),
        "mode": "none",
        "modeData": UNSET,
    }
    for entry in entries:
        if changes := _changes(entry):
            settings |= {key: value for key, value in changes.items() if key in settings}
    if only_omp:
        settings["serviceTier"] = omp_context.tiers_by_family(settings["serviceTier"])
    return _given(**settings)


def _models(entries: Iterable[Entry]) -> dict[str, Any]:
    models: dict[str, Any] = {}
    is_explicit = False
    for entry in entries:
        if entry.get("type") == "model_change" and js_truthy(model := entry.get("model")):
            role = js_text(_or(entry.get("role"), "default"))
            models[role] = model
            is_explicit = is_explicit or role == "default"
        elif not is_explicit and role_of(entry) == "assistant":
            provider, name = (js_text(entry["message"].get(key, UNSET)) for key in ("provider", "model"))
            models["default"] = f"{provider}/{name}"
    return models


def _rules(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.get("type") == "ttsr_injection" and type(rules := entry.get("injectedRules")) is list:
            yield from (rule for rule in rules if isinstance(rule, str))


def _changes(entry: Entry) -> Context:
    """The settings that an entry changes, for whichever dialect has them."""
    kind = entry.get("type")
    if kind == "thinking_level_change":
        level = _or(entry.get("thinkingLevel"), UNSET)
        return {"thinkingLevel": _or(level, "off"), "configuredThinkingLevel": _or(entry.get("configured"), level)}
    if kind == "service_tier_change":
        return {"serviceTier": _or(entry.get("serviceTier"), UNSET)}
    if kind == "context_change":
        name, tenant = entry.get("contextName", UNSET), entry.get("tenant", UNSET)
        return {"activeContextName": name, "activeContextTenant": tenant}
    if kind == "mode_change":
        return {"mode": entry.get("mode", UNSET), "modeData": entry.get("data", UNSET)}
    if kind == "mcp_tool_selection" and type(names := entry.get("selectedToolNames")) is list:
        return {"selectedMCPToolNames": list(names), "hasPersistedMCPToolSelection": True}
    return {}


# Messages


def _messages(path: Sequence[Entry], dialect: Dialect) -> Iterator[Any]:
    at = _last_of("compaction", path)
    if dialect == "omp" and (reset := _last_of("reset_boundary", path)) > at:
        kept = path[reset + 1 :]
    elif at < 0:
        kept = path
    else:
        payload = UNSET if dialect == "pi" else _provider_payload(path[at])
        yield _summary_message(path[at], payload, dialect)
        kept = [*path[_first_kept(path, at, payload, dialect) : at], *path[at + 1 :]]
    for entry in kept:
        message = _message_of(entry, dialect)
        if message is not None and message is not UNSET:
            yield message


def _last_of(kind: str, path: Sequence[Entry]) -> int:
    return next((place for place in reversed(range(len(path))) if path[place].get("type") == kind), -1)


def _first_kept(path: Sequence[Entry], at: int, payload: Context | Unset, dialect: Dialect) -> int:
    """Where the entries kept before the compaction begin; its own place when none are, as when the id is not there.

    A provider's own history stands for the kept entries; omp goes on behind the last one that it covers.
    """
    key, behind = ("firstKeptEntryId", 0) if payload is UNSET else ("providerReplayThroughEntryId", 1)
    wanted = path[at].get(key)
    if type(wanted) is not str or (behind and dialect != "omp"):
        return at
    return next((place + behind for place in range(at) if path[place].get("id") == wanted), at)


def _provider_payload(compaction: Entry) -> Context | Unset:
    preserved = compaction.get("preserveData")
    remote = preserved.get("openaiRemoteCompaction") if type(preserved) is dict else None
    if type(remote) is not dict or type(items := remote.get("replacementHistory")) is not list:
        return UNSET
    provider = text_of(remote.get("provider"))
    return {"type": "openaiResponsesHistory", "provider": provider, "items": items} if provider else UNSET


def _summary_message(compaction: Entry, payload: Context | Unset, dialect: Dialect) -> Context:
    fields = {key: compaction.get(key, UNSET) for key in SUMMARY_KEYS[dialect]}
    return _given(
        role="compactionSummary",
        **fields,
        providerPayload=payload,
        warning=compaction.get("warning", UNSET) if dialect == "omp" else UNSET,
        timestamp=js_time(compaction.get("timestamp", UNSET)),
    )


def _message_of(entry: Entry, dialect: Dialect) -> Any:
    """The message that an entry gives; None or UNSET for none."""
    kind = entry.get("type")
    if kind == "message":
        return None if dialect == "omp" and omp_context.is_void_turn(entry) else entry.get("message")
    if kind == "custom_message":
        return _custom_message(entry, dialect)
    if kind == "branch_summary" and js_truthy(summary := entry.get("summary")):
        time_ms = js_time(entry.get("timestamp", UNSET))
        return _given(role="branchSummary", summary=summary, fromId=entry.get("fromId", UNSET), timestamp=time_ms)
    return None


def _custom_message(entry: Entry, dialect: Dialect) -> Context | None:
    keys = ("customType", "content", "display", "details", *(() if dialect == "pi" else ("attribution",)))
    given = {key: entry.get(key, UNSET) for key in keys}
    fields = omp_context.custom_fields(given) if dialect == "omp" else given
    if fields is None:
        return None
    return _given(role="custom", **fields, timestamp=js_time(entry.get("timestamp", UNSET)))


def _or(value: Any, other: Any) -> Any:
    """JavaScript's `??`."""
    return other if value is None or value is UNSET else value


def _given(**fields: Any) -> Context:
    """An object without the keys that are undefined."""
    return {key: value for key, value in fields.items() if value is not UNSET}
