"""An entry in one line: what kind it is and how it begins."""

from __future__ import annotations

from typing import Any, Final

from sessiondb.cli.printable import PREVIEW_CHARS, one_line
from sessiondb.jsonl import encode_entry

TEXT_KEYS: Final = {
    "compaction": "summary",
    "branch_summary": "summary",
    "session_info": "name",
    "title_change": "title",
    "thinking_level_change": "thinkingLevel",
    "mode_change": "mode",
    "custom": "customType",
}
"""Entry types that one key sums up."""

SHOWN_ELSEWHERE: Final = frozenset({"type", "id", "parentId", "timestamp"})


def kind_of(entry: Any, limit: int = 24) -> str:
    """A message's role, another entry's type, in at most `limit` columns."""
    if type(entry) is not dict:
        return "(no object)"
    kind = entry.get("type")
    if kind == "message":
        message = entry.get("message")
        kind = message.get("role", kind) if type(message) is dict else kind
    return one_line(kind, limit) if type(kind) is str else "(no type)"


def preview(entry: Any, limit: int = PREVIEW_CHARS) -> str:
    """How the entry begins, on one printable line of at most `limit` columns."""
    return one_line(_text(entry), limit)


def _text(entry: Any) -> str:
    if type(entry) is not dict:
        return _as_json(entry)
    kind = entry.get("type")
    if kind == "message" and type(message := entry.get("message")) is dict:
        return _message_text(message)
    if kind == "custom_message":
        return f"{entry.get('customType')}: {_content_text(entry.get('content'))}"
    if kind == "model_change":
        return "/".join(str(entry[key]) for key in ("provider", "modelId", "model") if entry.get(key))
    if kind == "label":
        label = entry.get("label")
        return f"[{label}] on {entry.get('targetId')}" if label else f"label of {entry.get('targetId')} removed"
    text = entry.get(TEXT_KEYS.get(kind, "")) if type(kind) is str else None
    if type(text) is str:
        return text
    return _as_json({key: value for key, value in entry.items() if key not in SHOWN_ELSEWHERE})


def _message_text(message: dict[str, Any]) -> str:
    text = _content_text(message.get("content"))
    if message.get("role") == "toolResult":
        return f"{message.get('toolName', 'tool')}: {text}"
    if message.get("role") == "bashExecution":
        return f"$ {message.get('command', '')}"
    return text or str(message.get("errorMessage") or message.get("summary") or "")


def _content_text(content: Any) -> str:
    if type(content) is str:
        return content
    if type(content) is not list:
        return "" if content is None else _as_json(content)
    return " ".join(part for part in map(_block_text, content) if part)


def _block_text(block: Any) -> str:
    if type(block) is not dict:
        return _as_json(block)
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "thinking":
        return ""  # what was said and done tells more of the line
    if kind == "toolCall":
        return f"→ {block.get('name')} {_as_json(block.get('arguments'))}"
    return f"({kind})"


def _as_json(value: Any) -> str:
    return encode_entry(value).decode()
