"""A context's messages as a model's interface takes them, and JavaScript's notions of text and truth that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from sessiondb.jsonl import UNSET, encode_entry, js_truthy

COMPACTION_PREFIX: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
)
COMPACTION_SUFFIX: Final = "\n</summary>"
BRANCH_PREFIX: Final = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
BRANCH_SUFFIX: Final = "</summary>"  # without the newline of the other one: so pi has it

Message = dict[str, Any]


def convert_to_llm(messages: Iterable[Any]) -> list[Message]:
    """The messages in the three roles that models know: `user`, `assistant` and `toolResult`.

    As pi 0.73.1's `convertToLlm`: those three pass as they are, the same objects. Shell runs (unless excluded from the
    context), custom messages and summaries become user messages of the same timestamp; messages of other roles are
    dropped, and so is what is no message at all. Keys that a message lacks are left out. Never raises on data.
    """
    converted = (_convert(message) for message in messages if type(message) is dict)
    return [message for message in converted if message is not None]


def _convert(message: Message) -> Message | None:
    role = message.get("role")
    if role in ("user", "assistant", "toolResult"):
        return message
    if role == "bashExecution":
        return None if js_truthy(message.get("excludeFromContext")) else _user(message, _text_of_run(message))
    if role == "custom":
        return _user(message, message.get("content", UNSET))
    if role == "branchSummary":
        return _user(message, BRANCH_PREFIX + _text_at(message, "summary") + BRANCH_SUFFIX)
    if role == "compactionSummary":
        return _user(message, COMPACTION_PREFIX + _text_at(message, "summary") + COMPACTION_SUFFIX)
    return None


def _user(message: Message, content: Any) -> Message:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    fields = {"role": "user", "content": blocks, "timestamp": message.get("timestamp", UNSET)}
    return {key: value for key, value in fields.items() if value is not UNSET}


def _text_of_run(run: Message) -> str:
    """What a model reads of a shell run: the command, its output, and how it ended."""
    text = f"Ran `{_text_at(run, 'command')}`\n"
    text += f"```\n{_text_at(run, 'output')}\n```" if js_truthy(run.get("output")) else "(no output)"
    exit_code = run.get("exitCode")
    if js_truthy(run.get("cancelled")):
        text += "\n\n(command cancelled)"
    elif exit_code is not None and exit_code is not UNSET and (exit_code != 0 or exit_code is False):
        text += f"\n\nCommand exited with code {js_text(exit_code)}"
    if js_truthy(run.get("truncated")) and js_truthy(run.get("fullOutputPath")):
        text += f"\n\n[Output truncated. Full output: {_text_at(run, 'fullOutputPath')}]"
    return text


def _text_at(message: Message, key: str) -> str:
    return js_text(message.get(key, UNSET))


def js_text(value: Any) -> str:
    """What JavaScript makes of a JSON value in a template: `undefined` of `UNSET`, `[object Object]` of an object."""
    if isinstance(value, str):
        return value
    if value is UNSET:
        return "undefined"
    if isinstance(value, dict):
        return "[object Object]"
    if isinstance(value, list):
        return ",".join("" if item is None or item is UNSET else js_text(item) for item in _flat(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return encode_entry(value).decode()


def _flat(items: list[Any]) -> Iterable[Any]:
    """The items of nested arrays in order, an empty array as an empty text. No recursion: arrays may nest deeper than
    the stack."""
    open_lists = [iter(items)]
    while open_lists:
        for item in open_lists[-1]:
            if isinstance(item, list):
                if item:
                    open_lists.append(iter(item))
                    break
                yield ""
            else:
                yield item
        else:
            open_lists.pop()
