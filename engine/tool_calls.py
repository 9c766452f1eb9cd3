"""The tool calls in a context's messages, and which of them have a result. Messages may be of any shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessiondb.metadata import text_of


def tool_calls(message: Any) -> list[dict[str, Any]]:
    """The blocks with which an assistant's message calls tools; none in any other."""
    content = message.get("content") if message_role(message) == "assistant" else None
    blocks = content if type(content) is list else []
    return [block for block in blocks if type(block) is dict and block.get("type") == "toolCall"]


def answered_ids(messages: Iterable[Any]) -> set[str | None]:
    """The ids of the tool calls that have a result."""
    ids = (text_of(message.get("toolCallId")) for message in messages if message_role(message) == "toolResult")
    return set(ids) - {None}


def message_role(message: Any) -> Any:
    """The role, whatever it is; None for what is no object."""
    return message.get("role") if type(message) is dict else None


def calls_of(message: Any, tool_call_id: str) -> list[dict[str, Any]]:
    """The blocks of the message that make the tool call of that id."""
    return [block for block in tool_calls(message) if block.get("id") == tool_call_id]
