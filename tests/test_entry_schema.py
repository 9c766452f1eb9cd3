"""The JSON Schema of a line takes what clients write, refuses what none of them writes, and says what the types say."""

from __future__ import annotations

import importlib.resources
import json
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import jsonschema  # type: ignore[import-untyped]  # comes without types
import pytest

from sessiondb.jsonl import NOTHING, Fault, migrate, parse_line, split_lines, strip_bom
from sessiondb.schema import entries
from tests.conftest import SHARED
from tests.support import GOLDEN

Json = dict[str, Any]

SCHEMA: Json = json.loads((importlib.resources.files("sessiondb.schema") / "session-v3.schema.json").read_bytes())
DEFS: Json = SCHEMA["$defs"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
NO_LINES = {"TreeNode", "PiModel", "PiContext", "XcshContext", "OmpContext"}
"""Types that are made of lines and stand on none."""

TYPES = {name: t for name, t in vars(entries).items() if typing.is_typeddict(t) and name not in NO_LINES}


def is_valid(line: object) -> bool:
    return bool(VALIDATOR.is_valid(line))


def problem(line: object) -> str | None:
    error = jsonschema.exceptions.best_match(VALIDATOR.iter_errors(line))
    return None if error is None else f"{error.json_path}: {error.message}"


# Lines with no key more than they must have

BASE = {"id": "b", "parentId": "a", "timestamp": "2026-01-01T00:00:00.000Z"}
NOW = 1_767_225_600_000


def entry(kind: str, /, **own: object) -> Json:
    return {"type": kind, **BASE, **own}


def in_message(**message: object) -> Json:
    return entry("message", message=message)


ENTRIES = {
    "SessionHeader": {"type": "session", "version": 3, "id": "s", "timestamp": BASE["timestamp"], "cwd": "/w"},
    "TitleSlot": {"type": "title", "v": 1, "title": "", "updatedAt": BASE["timestamp"], "pad": " "},
    "MessageEntry": in_message(role="user", content="u"),
    "ThinkingLevelChangeEntry": entry("thinking_level_change", thinkingLevel=None),
    "ModelChangeEntry": entry("model_change", model="p/m"),
    "PiModelChangeEntry": entry("model_change", provider="p", modelId="m"),
    "CompactionEntry": entry("compaction", summary="S", tokensBefore=5),
    "BranchSummaryEntry": entry("branch_summary", fromId="root", summary="S"),
    "CustomEntry": entry("custom", customType="x"),
    "CustomMessageEntry": entry("custom_message", customType="x", content="c", display=True),
    "LabelEntry": entry("label", targetId="a"),
    "SessionInfoEntry": entry("session_info", name=""),
    "TtsrInjectionEntry": entry("ttsr_injection", injectedRules=[]),
    "SessionInitEntry": entry("session_init", systemPrompt="s", task="t", tools=[]),
    "ModeChangeEntry": entry("mode_change", mode="none"),
    "ContextChangeEntry": entry("context_change", contextName="c", tenant="t", namespace="n"),
    "ServiceTierChangeEntry": entry("service_tier_change", serviceTier=None),
    "McpToolSelectionEntry": entry("mcp_tool_selection", selectedToolNames=[]),
    "UsageEntry": entry("usage", kind="k", provider="p", model="m", usage={}),
    "ContextEditEntry": entry("context_edit", targetId="a", replacement=None),
    "CredentialPinEntry": entry("credential_pin", provider="p", hash="h"),
    "ModelUsageEntry": entry(
        "model_usage", purpose="title", api="a", provider="p", model="m", usage={}, stopReason="stop"
    ),
    "ResetBoundaryEntry": entry("reset_boundary"),
    "TitleChangeEntry": entry("title_change", title="t", source="auto"),
    "UnknownEntry": entry("hologram"),
}
RUN: Json = {"output": "o", "cancelled": False, "truncated": False, "timestamp": NOW}
MESSAGES: Json = {
    "UserMessage": {"role": "user", "content": "u"},
    "InstructionMessage": {"role": "developer", "content": "d"},
    "AssistantMessage": {"role": "assistant", "content": []},
    "ToolResultMessage": {"role": "toolResult", "toolCallId": "c", "content": []},
    "BashExecutionMessage": {"role": "bashExecution", "command": "ls", **RUN},
    "PythonExecutionMessage": {"role": "pythonExecution", "code": "1", **RUN},
    "CustomMessage": {"role": "custom", "customType": "x", "content": "c", "display": False, "timestamp": NOW},
    "BranchSummaryMessage": {"role": "branchSummary", "summary": "S", "fromId": "root", "timestamp": NOW},
    "CompactionSummaryMessage": {"role": "compactionSummary", "summary": "S", "tokensBefore": 5, "timestamp": None},
    "FileMentionMessage": {"role": "fileMention", "files": [], "timestamp": NOW},
    "UnknownMessage": {"role": "oracle"},
}
BLOCKS: Json = {
    "TextBlock": {"type": "text", "text": "t"},
    "ThinkingBlock": {"type": "thinking", "thinking": "t"},
    "RedactedThinkingBlock": {"type": "redactedThinking", "data": "d"},
    "ImageBlock": {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    "ToolCallBlock": {"type": "toolCall", "id": "c", "name": "read", "arguments": {}},
    "UnknownBlock": {"type": "fallback"},
}
PARTS: Json = {
    "Usage": {},
    "Cost": {},
    "MentionedFile": {"path": "f", "content": ""},
    "Replacement": {"content": "c"},
}


def as_it_is(line: Json) -> Json:
    return line


PLACES: dict[str, Callable[[Json], Json]] = {
    **dict.fromkeys(ENTRIES, as_it_is),
    **dict.fromkeys(MESSAGES, lambda message: in_message(**message)),
    **dict.fromkeys(BLOCKS, lambda block: in_message(role="assistant", content=[block])),
    "Usage": lambda usage: in_message(role="assistant", content=[], usage=usage),
    "Cost": lambda cost: in_message(role="assistant", content=[], usage={"cost": cost}),
    "MentionedFile": lambda file: in_message(role="fileMention", files=[file], timestamp=NOW),
    "Replacement": lambda replacement: entry("context_edit", targetId="a", replacement=replacement),
}
"""How each type comes onto a line."""

MINIMAL: dict[str, Json] = {**ENTRIES, **MESSAGES, **BLOCKS, **PARTS}


# What is taken


@pytest.mark.parametrize("name", MINIMAL)
def test_a_line_with_the_required_keys_is_valid_and_so_is_any_further_key(name: str) -> None:
    line = PLACES[name](MINIMAL[name])
    assert problem(line) is None
    assert problem(PLACES[name]({**MINIMAL[name], "workspaceUri": {"z": [1]}})) is None


FURTHER: dict[str, Json] = {
    "a root": entry("custom", customType="x", parentId=None),
    "a null as data": entry("custom", customType="x", data=None),
    "a compaction that keeps nothing": entry("compaction", summary="", tokensBefore=0, firstKeptEntryId=None),
    "a label taken off with null": entry("label", targetId="a", label=None),
    "a service tier": entry("service_tier_change", serviceTier="flex"),
    "service tiers by family": entry("service_tier_change", serviceTier={"openai": "flex"}),
    "a system prompt in parts": entry("session_init", systemPrompt=["s"], task="t", tools=["read"]),
    "an edit to blocks": entry("context_edit", targetId="a", replacement={"content": [{"type": "text", "text": "t"}]}),
    "a tool result as text": in_message(role="toolResult", toolCallId="c", content="done"),
    "a killed command": in_message(role="bashExecution", command="x", **{**RUN, "exitCode": None}),
    "a hook's message": in_message(role="hookMessage", customType="x", content=[], display=True, timestamp=NOW),
    "a header of a later version, which clients read as this one": {**ENTRIES["SessionHeader"], "version": 4},
    "a title with its source": {**ENTRIES["TitleSlot"], "source": "user"},
}


@pytest.mark.parametrize("line", FURTHER.values(), ids=FURTHER)
def test_what_only_some_clients_write_is_valid(line: Json) -> None:
    assert problem(line) is None


def lines_of(text: str | None) -> Iterator[Any]:
    yield from (json.loads(line) for line in (text or "").splitlines())


def test_every_line_that_the_clients_append_calls_wrote_is_valid() -> None:
    path = SHARED / "reference/extra/layouts.json"
    if not path.exists():
        pytest.skip("needs the reference beside the repository")
    seen: set[str] = set()
    for client in json.loads(path.read_bytes()):
        texts = [client.get("header_and_first_lines"), client.get("file_after_user_only")]
        texts += [call.get(key) for call in client["calls"] for key in ("appended", "rewritten")]
        for line in (line for text in texts for line in lines_of(text)):
            assert problem(line) is None, line
            seen.add(line["type"])
    assert seen == {name for names in dispatched(SCHEMA, "type") for name in names}


# The corpus

BROKEN = {
    "bc23-v1-entries-under-v3-header.jsonl": ({2, 3, 4, 5}, "version 1 entries, without ids, under a version 3 header"),
    "bc27-unknown-future.jsonl": ({4}, "an entry without id, parentId and timestamp"),
    "39-null-message.jsonl": ({2}, "no message in it: clients fail on it"),
    "nul-escape-in-string.jsonl": ({1}, "a fragment: a tool result that belongs to no call"),
}
"""Objects of the corpus that are no version 3 lines, by the value's number in the file, and why."""


def values(file: Path) -> list[Any]:
    """The file's values in order, recovered entries among them, migrated to version 3 when the file is older."""
    found: list[Any] = []
    with file.open("rb") as stream:
        for number, raw in enumerate(split_lines(stream)):
            value = parse_line(raw if number else strip_bom(raw))
            if isinstance(value, Fault):
                found += [piece.value for piece in value.pieces if piece.value is not NOTHING]
            else:
                found.append(value)
    migrate(found)
    return found


COMPARED = {
    key
    for definition in DEFS.values()
    for key, rule in definition.get("properties", {}).items()
    if {"const", "enum", "minimum"} & set(rule)
}
"""The keys of which the schema looks at the value, not at its kind alone."""


def shape(value: Any) -> object:
    """All that the schema looks at: values of one shape are valid together or not at all."""
    if isinstance(value, dict):
        return tuple((k, v if k in COMPARED and not isinstance(v, dict | list) else shape(v)) for k, v in value.items())
    if isinstance(value, list):
        return frozenset(map(shape, value))
    return type(value)


def hold(files: list[Path]) -> int:
    """Every well-formed line of the files is valid, every one listed as broken is not; how many were looked at."""
    problems: dict[object, str | None] = {}
    count = 0
    for file in files:
        broken, _ = BROKEN.get(file.name, (set(), ""))
        for number, value in enumerate(values(file), start=1):
            if isinstance(value, dict) and isinstance(value.get("type"), str):
                count += 1
                if (seen := shape(value)) not in problems:
                    problems[seen] = problem(value)
                assert (problems[seen] is not None) == (number in broken), f"{file.name}:{number}: {problems[seen]}"
    return count


def test_every_well_formed_line_of_the_golden_files_is_valid() -> None:
    assert hold(sorted(GOLDEN.rglob("*.jsonl"))) > 200


def test_every_well_formed_line_of_the_corpus_is_valid(corpus: Path) -> None:
    files = sorted([*corpus.rglob("*.jsonl"), *(corpus.parent / "reference/cases").glob("*.jsonl")])
    assert hold(files) > 4_500
    assert set(BROKEN) <= {f.name for f in files}


# What is refused


def incomplete() -> Iterator[Any]:
    for name, keys in MINIMAL.items():
        for key in keys:
            rest = {k: v for k, v in keys.items() if k != key}
            yield pytest.param(PLACES[name](rest), id=f"{name} without {key}")


@pytest.mark.parametrize("line", list(incomplete()))
def test_a_line_without_a_key_that_it_must_have_is_refused(line: Json) -> None:
    assert not is_valid(line)


def ill_typed() -> Iterator[Any]:
    for name, keys in MINIMAL.items():
        known = DEFS[name]["properties"]
        for key in {**keys, **known}:
            rule = schema_of(get_type_hints(TYPES[name])[key])
            if rule:
                wrong = "7" if rule == {"type": "number"} or "number" in rule.get("type", ()) else 7
                yield pytest.param(PLACES[name]({**keys, key: wrong}), id=f"{name} with {key}={wrong!r}")


REFUSED: dict[str, object] = {
    "no object": ["type"],
    "a number": 42,
    "null": None,
    "no type": dict(BASE),
    "a type that is no string": {**BASE, "type": 7},
    "an unknown type without an id": {k: v for k, v in entry("hologram").items() if k != "id"},
    "a header of version 1": {k: v for k, v in ENTRIES["SessionHeader"].items() if k != "version"},
    "a header of version 2": {**ENTRIES["SessionHeader"], "version": 2},
    "a header's version as text": {**ENTRIES["SessionHeader"], "version": "3"},
    "a title from nobody": {**ENTRIES["TitleSlot"], "source": "agent"},
    "an entry of version 1": {"type": "message", "timestamp": BASE["timestamp"], "message": MESSAGES["UserMessage"]},
    "no message": entry("message", message=None),
    "a message as text": entry("message", message="hello"),
    "a model change of no client": entry("model_change", provider="p", model=None),
    "an answer as text": in_message(role="assistant", content="text"),
    "a block as text": in_message(role="user", content=["text"]),
    "a known block inside a tool result": in_message(role="toolResult", toolCallId="c", content=[{"type": "text"}]),
    "rules that are no strings": entry("ttsr_injection", injectedRules=[1]),
    "arguments as text": in_message(role="assistant", content=[{**BLOCKS["ToolCallBlock"], "arguments": "{}"}]),
    "tokens as text": in_message(role="assistant", content=[], usage={"input": "1"}),
    "a mentioned file without a path": in_message(role="fileMention", files=[{"content": ""}], timestamp=NOW),
    "a compaction's system message without content": entry(
        "compaction", summary="S", tokensBefore=5, systemMessage={"role": "system"}
    ),
    "an edit without content": entry("context_edit", targetId="a", replacement={}),
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_what_no_client_could_read_is_refused(line: object) -> None:
    assert not is_valid(line)


# Types and schema


NAMED: dict[Any, str] = {
    entries.Block | entries.UnknownBlock: "block",
    entries.Message | entries.UnknownMessage: "message",
    entries.Content: "content",
}
"""Unions that have a definition of their own."""

KINDS: dict[Any, str] = {str: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null"}


def schema_of(hint: Any) -> Json:
    """The JSON Schema that says what a type says."""
    if hint in NAMED:
        return {"$ref": f"#/$defs/{NAMED[hint]}"}
    if typing.is_typeddict(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint is Any:
        return {}
    if hint in KINDS:
        return {"type": KINDS[hint]}
    arguments = get_args(hint)
    if get_origin(hint) is typing.Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if get_origin(hint) is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if get_origin(hint) is dict:
        return {"type": "object"} | ({} if arguments[1] is Any else {"additionalProperties": schema_of(arguments[1])})
    assert isinstance(hint, types.UnionType), hint
    return either([schema_of(argument) for argument in arguments])


def either(rules: list[Json]) -> Json:
    if not all("type" in rule for rule in rules):
        return {"anyOf": rules}
    merged: Json = {key: value for rule in rules for key, value in rule.items()}
    return {**merged, "type": [rule["type"] for rule in rules]}


@pytest.mark.parametrize("line", list(ill_typed()))
def test_a_line_with_a_value_of_another_type_is_refused(line: Json) -> None:
    assert not is_valid(line)


def test_the_schema_is_a_valid_one_and_describes_itself() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"]
    assert all(rule["description"] for rule in [SCHEMA, *DEFS.values()])
    assert SCHEMA["title"]


def kept_from(entry: entries.Entry) -> str | None:
    """Passes the type checker only if comparing the type leaves one member of the union."""
    return entry.get("firstKeptEntryId") if entry["type"] == "compaction" else None


def test_comparing_the_type_narrows_an_entry() -> None:
    compaction: entries.CompactionEntry = {
        "type": "compaction",
        "id": "b",
        "parentId": "a",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "summary": "S",
        "tokensBefore": 5,
        "firstKeptEntryId": "a",
    }
    assert kept_from(compaction) == "a"


def test_types_and_definitions_have_the_same_names() -> None:
    assert set(DEFS) - {"block", "message", "content"} == set(TYPES)
    assert set(MINIMAL) == set(TYPES) - {"EntryBase"}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_and_its_definition_have_the_same_keys_of_the_same_kinds(name: str) -> None:
    definition, hints = DEFS[name], get_type_hints(TYPES[name])
    inherited = {ref["$ref"].rpartition("/")[2] for ref in definition.get("allOf", [])}
    assert inherited <= {"EntryBase"}
    parts = [definition, *(DEFS[base] for base in inherited)]
    required = {key for part in parts for key in part.get("required", ())}
    rules = {key: sayable(rule) for part in parts for key, rule in part["properties"].items()}
    assert required == TYPES[name].__required_keys__
    assert rules == {key: schema_of(hint) for key, hint in hints.items()}


def sayable(rule: Json) -> Json:
    """What a type can say too: it has no word for a minimum."""
    return {key: value for key, value in rule.items() if key not in ("description", "minimum")}


def dispatched(rule: Json, key: str) -> dict[tuple[str, ...], set[str]]:
    """Which definitions a value of the key leads to."""
    found: dict[tuple[str, ...], set[str]] = {}
    for case in rule["allOf"]:
        condition = case.get("if", {}).get("properties", {}).get(key, {"not": {}})
        if "not" not in condition:
            targets = case["then"].get("anyOf", [case["then"]])
            names = (condition["const"],) if "const" in condition else tuple(condition["enum"])
            found[names] = {target["$ref"].rpartition("/")[2] for target in targets}
    return found


def literals(union: Any, key: str) -> dict[tuple[str, ...], set[str]]:
    found: dict[tuple[str, ...], set[str]] = {}
    for member in get_args(union):
        found.setdefault(get_args(get_type_hints(member)[key]), set()).add(member.__name__)
    return found


def test_the_schema_leads_each_type_and_role_to_the_member_of_the_union() -> None:
    header_and_slot = {("session",): {"SessionHeader"}, ("title",): {"TitleSlot"}}
    assert dispatched(SCHEMA, "type") == header_and_slot | literals(entries.Entry, "type")
    assert dispatched(DEFS["message"], "role") == literals(entries.Message, "role")
    assert dispatched(DEFS["block"], "type") == literals(entries.Block, "type")


CONTEXTS: dict[str, Any] = {
    "@mariozechner/pi-coding-agent": entries.PiContext,
    "@earendil-works/pi-coding-agent": entries.PiContext,
    "@f5-sales-demo/xcsh (harness)": entries.XcshContext,
    "@oh-my-pi/pi-coding-agent": entries.OmpContext,
}


def test_the_clients_contexts_have_the_keys_of_their_types() -> None:
    path = SHARED / "reference/cases/expected.json"
    if not path.exists():
        pytest.skip("needs the reference beside the repository")
    seen: set[str] = set()
    for case in json.loads(path.read_bytes())["cases"]:
        for output in case["outputs"]:
            kind = CONTEXTS[output["client"]]
            for text in (output.get(key, {}).get("json") for key in ("context", "branched_context")):
                if text:
                    assert kind.__required_keys__ <= set(json.loads(text)) <= set(get_type_hints(kind)), text
                    seen.add(output["client"])
    assert seen == set(CONTEXTS)


def test_the_packaged_schema_is_the_one_in_the_source_tree() -> None:
    source = Path(__file__).resolve().parent.parent / "schema/session-v3.schema.json"
    assert json.loads(source.read_bytes()) == SCHEMA
