"""What is said in an entry: each of its texts, by kind. Pure; from the entry's own line alone, so an index of it can
be made again from the lines."""

from __future__ import annotations

from typing import Any, Final

KINDS: Final = ("result", "call", "text", "thinking", "summary", "custom", "bash", "label", "name", "other")
"""Kinds of text, which are the columns of the indices: tools' results, which no entry has beside another kind; tool
calls' names and arguments; what users and assistants say; their thinking; summaries of compactions and branches; what
extensions say or keep; commands that users ran and what came out; labels; names of sessions; whatever else is text in
an entry, such as a system prompt."""

Texts = dict[str, str]
"""By kind. Parts of a kind are joined by newlines."""

_Parts = dict[str, list[str]]

NO_TEXT: Final = frozenset(
    {"type", "id", "parentId", "timestamp", "provider", "model", "modelId", "targetId", "fromId", "firstKeptEntryId",
     "replayThroughEntryId"}
)  # fmt: skip
"""Keys of an entry whose strings are names, which it goes by or is filtered by."""

SIGNATURES: Final = frozenset({"thinkingSignature", "textSignature", "thoughtSignature", "signature"})

PLACES: Final[dict[str, dict[str, str]]] = {
    "compaction": {"summary": "summary", "shortSummary": "summary"},
    "branch_summary": {"summary": "summary"},
    "custom": {"customType": "custom", "data": "custom"},
    "custom_message": {"customType": "custom", "content": "custom", "details": "custom"},
    "label": {"label": "label"},
    "session_info": {"name": "name"},
    "title_change": {"title": "name", "previousTitle": "name"},
}
"""Where entries that are no messages have their texts; what is not named here is `other`."""


def texts_of(entry: dict[str, Any]) -> Texts:
    """The texts of an entry, or of a header or title slot."""
    kind = entry.get("type")
    parts: _Parts = {}
    if kind == "message":
        message = entry.get("message")
        if type(message) is dict:
            _take_message(parts, message)
    elif kind in ("session", "title"):
        _take(parts, "name", entry.get("title"))
    else:
        places = PLACES.get(kind, {}) if type(kind) is str else {}
        for key, value in entry.items():
            if key not in NO_TEXT:
                _take(parts, places.get(key, "other"), value)
    return {kind: texts[0] if len(texts) == 1 else "\n".join(texts) for kind, texts in parts.items()}


def _take_message(parts: _Parts, message: dict[str, Any]) -> None:
    role = message.get("role")
    if role == "toolResult":
        for block in _blocks(message.get("content")):
            is_text = type(block) is dict and block.get("type") == "text"
            _take(parts, "result", block.get("text") if is_text else block)
    elif role in ("bashExecution", "pythonExecution"):
        for key in ("command", "code", "output"):
            _take(parts, "bash", message.get(key))
    else:
        _take_content(parts, "custom" if role in ("custom", "hookMessage") else "text", message.get("content"))
        if "errorMessage" in message:
            _take(parts, "text", message["errorMessage"])
        if "summary" in message:
            _take(parts, "summary", message["summary"])


def _blocks(content: Any) -> list[Any]:
    return content if type(content) is list else [content]


def _take_content(parts: _Parts, kind: str, content: Any) -> None:
    for block in _blocks(content):
        what = block.get("type") if type(block) is dict else None
        if what == "text":
            _take(parts, kind, block.get("text"))
        elif what == "thinking":
            _take(parts, "thinking", block.get("thinking"))
        elif what == "toolCall":
            _take(parts, "call", block.get("name"))
            _take(parts, "call", block.get("arguments"))
        elif what != "image":
            _take(parts, kind, block)


def _take(parts: _Parts, kind: str, value: Any) -> None:
    """Add each string in a value, in order; keys are no texts, nor are signatures and an image's bytes."""
    if type(value) is str:
        if value:
            parts.setdefault(kind, []).append(value)
    elif type(value) is dict or type(value) is list:
        strings = [text for text in _strings(value) if text]
        if strings:
            parts.setdefault(kind, []).extend(strings)


def _strings(value: Any) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if type(value) is str:
            found.append(value)
        elif type(value) is list:
            waiting.extend(reversed(value))
        elif type(value) is dict and value.get("type") != "image":
            waiting.extend(item for key, item in reversed(value.items()) if key not in SIGNATURES)
    return found
