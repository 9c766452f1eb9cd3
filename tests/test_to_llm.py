"""`convert_to_llm` gives what pi 0.73.1's `convertToLlm` gave for the same messages (recorded under node 20)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sessiondb.jsonl import UNSET, encode_entry, js_truthy, parse_line
from sessiondb.to_llm import convert_to_llm, js_text

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "llm-messages.json").read_text())


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: encode_entry(row["message"]).decode()[:60])
def test_a_message_is_converted_as_pi_converts_it(row: dict[str, Any]) -> None:
    converted = convert_to_llm([row["message"]])
    assert [encode_entry(message).decode() for message in converted] == ([row["llm"]] if row["llm"] else [])


def test_a_conversation_is_converted_message_by_message_in_order() -> None:
    messages = [row["message"] for row in RECORDED]
    before = copy.deepcopy(messages)
    converted = convert_to_llm(messages)
    assert [encode_entry(message).decode() for message in converted] == [row["llm"] for row in RECORDED if row["llm"]]
    assert messages == before


def test_a_message_of_a_model_s_own_role_is_the_same_object() -> None:
    messages: list[Any] = [{"role": role, "content": []} for role in ("user", "assistant", "toolResult")]
    assert all(given is taken for given, taken in zip(convert_to_llm(messages), messages, strict=True))


def test_every_message_recorded_from_pi_is_there_in_kind() -> None:
    roles = {row["message"].get("role") for row in RECORDED if isinstance(row["message"], dict) and row["llm"]}
    assert roles == {"user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary"}
    assert len(RECORDED) >= 40


def test_what_pi_throws_on_is_dropped() -> None:
    assert convert_to_llm([None, UNSET, {"role": "user"}, None]) == [{"role": "user"}]


def test_undefined_fields_are_as_missing_ones() -> None:
    run = {"role": "bashExecution", "command": "x", "output": UNSET, "exitCode": UNSET, "timestamp": UNSET}
    assert convert_to_llm([run]) == [{"role": "user", "content": [{"type": "text", "text": "Ran `x`\n(no output)"}]}]


def test_a_text_nested_deeper_than_the_stack_is_no_error() -> None:
    deep = parse_line(b"[" * 9_000 + b"1,2" + b"]" * 9_000)
    (message,) = convert_to_llm([{"role": "branchSummary", "summary": deep}])
    assert message["content"][0]["text"].endswith("<summary>\n1,2</summary>")


JS_TEXTS: list[tuple[Any, str]] = [  # as node prints `${value}`
    ("a", "a"), (None, "null"), (UNSET, "undefined"), (True, "true"), (False, "false"), (0, "0"), (-0.0, "0"),
    (1.0, "1"), (1e21, "1e+21"), (2**53 + 1, "9007199254740992"), (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"), (float("nan"), "NaN"), ([], ""), ([[]], ""), ([[], []], ","), ([None, 1], ",1"),
    ([[1, [2, []]], [], "x"], "1,2,,,x"), ({}, "[object Object]"), ([{"a": 1}], "[object Object]"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), JS_TEXTS, ids=[repr(value) for value, _ in JS_TEXTS])
def test_a_value_becomes_text_as_in_javascript(value: Any, text: str) -> None:
    assert js_text(value) == text


@pytest.mark.parametrize("value", [None, UNSET, False, 0, -0.0, float("nan"), ""], ids=repr)
def test_false_values_are_those_of_javascript(value: Any) -> None:
    assert not js_truthy(value)


@pytest.mark.parametrize("value", [True, 1, float("inf"), " ", "0", [], {}], ids=repr)
def test_empty_objects_and_arrays_are_true(value: Any) -> None:
    assert js_truthy(value)
