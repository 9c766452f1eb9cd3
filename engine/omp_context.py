"""What omp alone does with a context: tiers by family, and no turn that would mislead the model or be refused.

Facts: `buildSessionContext` of omp 18.
"""

from __future__ import annotations

from typing import Any, Final

from sessiondb.jsonl import UNSET, js_truthy, strip_js
from sessiondb.metadata import text_of
from sessiondb.tool_calls import answered_ids, message_role, tool_calls
from sessiondb.tree import Entry, role_of

TRANSIENT_TYPES: Final = ("prewalk-plan", "vibe-mode-context")
"""Custom messages that omp writes for one request only."""

SPEAKING_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "thinking": ("thinking", "thinkingSignature"),
    "redactedThinking": ("data",),
    "fallback": (),
}
"""Where a block of that type has what the assistant said, if it said anything."""

FAMILIES: Final = ("openai", "anthropic", "google")
TIERS: Final = ("auto", "default", "flex", "scale", "priority")


def tiers_by_family(tier: Any) -> Any:
    """omp keeps a tier for each family of providers; its old sessions have one word."""
    if type(tier) is dict:
        tiers = {family: tier[family] for family in FAMILIES if tier.get(family) in TIERS}
    elif tier == "priority":
        tiers = dict.fromkeys(FAMILIES, "priority")
    elif tier in ("openai-only", "claude-only"):
        tiers = {"openai" if tier == "openai-only" else "anthropic": "priority"}
    else:
        tiers = {"openai": tier} if tier in TIERS else {}
    return tiers or UNSET


def custom_fields(fields: dict[str, Any]) -> dict[str, Any] | None:
    """What omp makes of the fields of a custom message; None when the message does not go to the model."""
    if fields["customType"] in TRANSIENT_TYPES or not isinstance(fields["content"], str | list):
        return None
    attribution = fields["attribution"]
    if attribution is not UNSET:
        attribution = "user" if attribution == "user" else "agent"
    custom_type = text_of(fields["customType"]) or "custom-message"
    return fields | {"customType": custom_type, "display": fields["display"] is True, "attribution": attribution}


def is_void_turn(entry: Entry) -> bool:
    """An assistant turn that omp wrote while it recovered, or that failed before it said anything."""
    if role_of(entry) != "assistant":
        return False
    message = entry["message"]
    if js_truthy(message.get("retryRecovery")):
        return True
    content = message.get("content")
    return message.get("stopReason") == "error" and not (type(content) is list and any(map(_says_something, content)))


def _says_something(block: Any) -> bool:
    """Whether a block has content; one of a type that is not known does."""
    kind = text_of(block.get("type")) if type(block) is dict else None
    keys = SPEAKING_KEYS.get(kind or "")
    return keys is None or any(strip_js(text_of(block.get(key)) or "") for key in keys)


def without_open_calls(messages: list[Any]) -> list[Any]:
    """Tool calls without a result removed, and what their turn is no longer signed for; emptied turns dropped."""
    answered = answered_ids(messages)
    whole: list[Any] = []
    for message in messages:
        removed = {id(call) for call in tool_calls(message) if text_of(call.get("id")) not in answered}
        if not removed:
            whole.append(message)
        elif content := [_unsigned(b) for b in message["content"] if id(b) not in removed and not _is_redacted(b)]:
            whole.append({**message, "content": content})
    return whole


def _is_redacted(block: Any) -> bool:
    return type(block) is dict and block.get("type") == "redactedThinking"


def _unsigned(block: Any) -> Any:
    if type(block) is dict and block.get("type") == "thinking" and js_truthy(block.get("thinkingSignature")):
        return {key: value for key, value in block.items() if key != "thinkingSignature"}
    return block


def without_failed_turns(messages: list[Any]) -> list[Any]:
    """Aborted and failed turns removed with their results, unless the note on their interrupted thinking follows."""
    kept: list[Any] = []  # from the end; UNSET where a result was removed
    results: dict[str, list[int]] = {}
    for message in reversed(messages):
        failed = message_role(message) == "assistant" and message.get("stopReason") in ("aborted", "error")
        note = kept[-1] if kept and message_role(kept[-1]) == "custom" else {}
        if failed and note.get("customType") != "interrupted-thinking":
            for call in tool_calls(message):
                for place in results.pop(text_of(call.get("id")) or "", ()):
                    kept[place] = UNSET
            while kept and kept[-1] is UNSET:
                kept.pop()
        else:
            if message_role(message) == "toolResult" and (call_id := text_of(message.get("toolCallId"))):
                results.setdefault(call_id, []).append(len(kept))
            kept.append(message)
    return [message for message in reversed(kept) if message is not UNSET]
