"""What is said in an entry: each of its texts, by kind. Pure; from the entry's own line alone, so an index of it can
be made again from the lines."""

from __future__ import annotations

from typing import Any, Final

KINDS: Final = ("result", "call", "text", "thinking", "summary", "custom", "bash", "label", "name", "other")
"""Kinds of text, which are the columns of the indices: tools' results, which no entry has beside another kind; tool
calls' names and arguments; what users and assistants say; their thinking; summaries of compactions and branches; what
extensions say or keep; commands that users ran and what came out; labels; names of sessions; whatever else is text in
an entry, such as a system prompt."""

RESULT, CALL, TEXT, THINKING, SUMMARY, CUSTOM, BASH, LABEL, NAME, OTHER = range(len(KINDS))

Texts = list[str | None]
"""One for each kind, in their order. Parts of a kind are joined by newlines."""

_Parts = dict[int, list[str]]

NO_TEXT: Final = frozenset(
    {"type", "id", "parentId", "timestamp", "provider", "model", "modelId", "targetId", "fromId", "firstKeptEntryId",
     "replayThroughEntryId"}
)  # fmt: skip
"""Keys of an entry whose strings are names, which it goes by or is filtered by."""

SIGNATURES: Final = frozenset({"thinkingSignature", "textSignature", "thoughtSignature", "signature"})

PLACES: Final[dict[str, dict[str, int]]] = {
    "compaction": {"summary": SUMMARY, "shortSummary": SUMMARY},
    "branch_summary": {"summary": SUMMARY},
    "custom": {"customType": CUSTOM, "data": CUSTOM},
    "custom_message": {"customType": CUSTOM, "content": CUSTOM, "details": CUSTOM},
    "label": {"label": LABEL},
    "session_info": {"name": NAME},
    "title_change": {"title": NAME, "previousTitle": NAME},
}
"""Where entries that are no messages have their texts; what is not named here is `other`."""


def texts_of(entry: dict[str, Any]) -> Texts | None:
    """The texts of an entry, or of a header or title slot; None when there are none."""
    kind = entry.get("type")
    parts: _Parts = {}
    if kind == "message":
        message = entry.get("message")
        if type(message) is dict:
            _take_message(parts, message)
    elif kind in ("session", "title"):
        _take(parts, NAME, entry.get("title"))
    else:
        places = PLACES.get(kind, {}) if type(kind) is str else {}
        for key, value in entry.items():
            if key not in NO_TEXT:
                _take(parts, places.get(key, OTHER), value)
    if not parts:
        return None
    texts: Texts = [None] * len(KINDS)
    for at, strings in parts.items():
        texts[at] = strings[0] if len(strings) == 1 else "\n".join(strings)
    return texts


def text_said(entry: dict[str, Any]) -> str:
    """What was said in a message, without thinking, tool calls and images."""
    texts = texts_of(entry)
    return (texts and texts[TEXT]) or ""


def _take_message(parts: _Parts, message: dict[str, Any]) -> None:
    role = message.get("role")
    if role == "toolResult":
        for block in _blocks(message.get("content")):
            is_text = type(block) is dict and block.get("type") == "text"
            _take(parts, RESULT, block.get("text") if is_text else block)
    elif role in ("bashExecution", "pythonExecution"):
        for key in ("command", "code", "output"):
            _take(parts, BASH, message.get(key))
    else:
        _take_content(parts, CUSTOM if role in ("custom", "hookMessage") else TEXT, message.get("content"))
        if "errorMessage" in message:
            _take(parts, TEXT, message["errorMessage"])
        if "summary" in message:
            _take(parts, SUMMARY, message["summary"])


def _blocks(content: Any) -> list[Any]:
    return content if type(content) is list else [content]


def _take_content(parts: _Parts, kind: int, content: Any) -> None:
    for block in _blocks(content):
        what = block.get("type") if type(block) is dict else None
        if what == "text":
            _take(parts, kind, block.get("text"))
        elif what == "thinking":
            _take(parts, THINKING, block.get("thinking"))
        elif what == "toolCall":
            _take(parts, CALL, block.get("name"))
            _take(parts, CALL, block.get("arguments"))
        elif what != "image":
            _take(parts, kind, block)


def _take(parts: _Parts, kind: int, value: Any) -> None:
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
