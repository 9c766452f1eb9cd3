"""`build_session_context` is the client's, where the client answers; where it throws or hangs, what can be read.

Recorded answers: pi 0.73.1 on node 20, xcsh 19.54.0 and omp 18.2.3 on bun. `cases`: the context of each session under
golden/jsonl/cases at its last entry. `random`: pi's contexts of made-up entries with odd shapes among them.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessiondb.context import (
    ContextReport,
    OpenToolCall,
    build_session_context,
    context_of_path,
    context_report,
    report_of_path,
)
from sessiondb.jsonl import UNSET, Fault, encode_entry, migrate, parse_line, split_lines, strip_bom
from sessiondb.metadata import DIALECTS, Dialect
from sessiondb.to_llm import convert_to_llm
from tests.conftest import SHARED
from tests.support import GOLDEN

RECORDED = json.loads((GOLDEN.parent / "contexts.json").read_text())
CLIENTS: dict[str, dict[Dialect, str]] = RECORDED["cases"]
VERSIONS = {"0.73.1": "pi", "19.54.0": "xcsh", "18.2.3": "omp"}

# What the client does instead of giving a context of the session: FORMAT.md, "Where the clients differ or fail".
FAILS: dict[tuple[str, Dialect], str] = {
    ("10-null-first.jsonl", "pi"): "TypeError",
    ("10-null-first.jsonl", "xcsh"): "TypeError",
    ("10-null-first.jsonl", "omp"): "Error",
    ("11-header-not-first.jsonl", "pi"): "file overwritten",
    ("11-header-not-first.jsonl", "xcsh"): "file overwritten",
    ("11-header-not-first.jsonl", "omp"): "Error",
    ("17-self-parent.jsonl", "pi"): "never returns",
    ("17-self-parent.jsonl", "xcsh"): "never returns",
    ("37-omp-title-slot.jsonl", "pi"): "file overwritten",
    ("37-omp-title-slot.jsonl", "xcsh"): "file overwritten",
    ("39-null-message.jsonl", "pi"): "TypeError",
    ("39-null-message.jsonl", "xcsh"): "TypeError",
    ("39-null-message.jsonl", "omp"): "TypeError",
}
DOCUMENT_WINS: tuple[str, Dialect] = ("34-settings.jsonl", "xcsh")
CASES = [(case, dialect) for case, answers in CLIENTS.items() for dialect in answers]

ASSISTANT = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "provider": "p", "model": "m"}


def read_entries(file: Path) -> list[Any]:
    """A session file's entries, migrated with the ids that the clients were given when they were recorded."""
    with file.open("rb") as stream:
        values = [parse_line(strip_bom(raw)) for raw in split_lines(stream)]
    values = [value for value in values if not isinstance(value, Fault)]
    made = iter(range(1, len(values) + 1))
    migrate(values, new_id=lambda index: f"{next(made):08x}")
    return [value for value in values if not (type(value) is dict and value.get("type") in ("session", "title"))]


def written(context: dict[str, Any]) -> str:
    return encode_entry(context).decode()


def chain(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries e1, e2, …, each the child of the one before; a part's own keys win."""
    entries = []
    for number, part in enumerate(parts, 1):
        parent = f"e{number - 1}" if number > 1 else None
        base = {"id": f"e{number}", "parentId": parent, "timestamp": f"2025-01-01T00:00:{number:02d}.000Z"}
        entries.append({**base, **part})
    return entries


def said(text: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": text, **more}}


def compaction(first_kept: Any, summary: str = "S", **more: Any) -> dict[str, Any]:
    return {"type": "compaction", "summary": summary, "firstKeptEntryId": first_kept, "tokensBefore": 9, **more}


def texts(messages: Sequence[Any]) -> list[Any]:
    return [m["summary"] if m["role"] in ("compactionSummary", "branchSummary") else m["content"] for m in messages]


# As the clients


@pytest.mark.parametrize(("case", "dialect"), [c for c in CASES if c not in FAILS and c != DOCUMENT_WINS])
def test_a_context_is_the_client_s_to_the_byte(case: str, dialect: Dialect) -> None:
    entries = read_entries(GOLDEN / "cases" / case)
    assert written(build_session_context(entries, dialect=dialect)) == CLIENTS[case][dialect]


@pytest.mark.parametrize(("case", "dialect"), FAILS)
def test_where_a_client_fails_the_context_is_what_can_be_read(case: str, dialect: Dialect) -> None:
    assert CLIENTS[case][dialect] == (FAILS[case, dialect] if "file" not in FAILS[case, dialect] else EMPTY[dialect])
    context = build_session_context(read_entries(GOLDEN / "cases" / case), dialect=dialect)
    plain = json.loads(CLIENTS["01-plain.jsonl"][dialect])  # the same two messages, and in case 39 null for the first
    if case.startswith("39"):
        del plain["messages"][0]
    assert written(context) == written(plain)


EMPTY: dict[Dialect, str] = {dialect: CLIENTS["12-empty-file.jsonl"][dialect] for dialect in DIALECTS}


def test_an_explicit_default_model_stays_where_xcsh_s_code_lets_an_assistant_overwrite_it() -> None:
    """The one deliberate deviation: the document of xcsh wins over its code (DESIGN, which source wins)."""
    case, dialect = DOCUMENT_WINS
    theirs = json.loads(CLIENTS[case][dialect])
    ours = build_session_context(read_entries(GOLDEN / "cases" / case), dialect=dialect)
    assert theirs["models"] == {"default": "p/m3", "smol": "anthropic/claude"}
    assert list(ours["models"].items()) == [("default", "google/gemini"), ("smol", "anthropic/claude")]
    assert written({**ours, "models": None}) == written({**theirs, "models": None})


@pytest.mark.parametrize("row", RECORDED["random"], ids=range(len(RECORDED["random"])))
def test_a_context_of_odd_entries_is_pi_s(row: dict[str, Any]) -> None:
    context = build_session_context(row["entries"], row.get("leaf", UNSET), dialect="pi")
    assert written(context) == row["context"]


def test_the_copied_contexts_are_the_recorded_ones() -> None:
    recorded = SHARED / "reference" / "cases" / "expected.json"
    if not recorded.is_file():
        pytest.skip("needs the clients' recorded answers beside the repository")
    for answer in json.loads(recorded.read_text())["cases"]:
        for output in answer["outputs"]:
            context = output.get("context", {}).get("json")
            if context and output["version"] in VERSIONS:
                assert CLIENTS[answer["input"]][VERSIONS[output["version"]]] == context  # type: ignore[index]


# The leaf and the way to the root


LEAVES: dict[str, tuple[Any, list[str]]] = {
    "none": (None, []),
    "known": ("e2", ["a", "b"]),
    "unknown": ("e9", ["a", "b", "c"]),
}
LEAVES |= {"empty": ("", ["a", "b", "c"]), "unset": (UNSET, ["a", "b", "c"])}


@pytest.mark.parametrize(("leaf_id", "expected"), LEAVES.values(), ids=LEAVES)
def test_an_unknown_leaf_is_the_last_entry_and_none_is_before_the_first(leaf_id: Any, expected: list[str]) -> None:
    entries = chain(said("a"), said("b"), said("c"))
    assert texts(build_session_context(entries, leaf_id)["messages"]) == expected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_entries_and_no_leaf_give_the_empty_context(dialect: Dialect) -> None:
    assert written(build_session_context([], dialect=dialect)) == EMPTY[dialect]
    assert written(build_session_context(chain(said("a")), None, dialect=dialect)) == EMPTY[dialect]


def test_messages_are_the_entries_own_and_entries_are_left_as_they_are() -> None:
    entries = chain(said("a"), said([{"type": "toolCall", "id": "c", "name": "n"}], "assistant"), compaction("e1"))
    before = copy.deepcopy(entries)
    for dialect in DIALECTS:
        assert build_session_context(entries, dialect=dialect)["messages"][1] is entries[0]["message"]
    assert entries == before


def test_a_caller_s_index_is_used() -> None:
    entries = chain(said("a"), said("b"))
    other = {**entries[0], **said("other")}
    assert texts(build_session_context(entries, by_id={"e1": other, "e2": entries[1]})["messages"]) == ["other", "b"]


def test_an_empty_id_is_nobody_s_parent() -> None:
    entries = [{"id": "", "parentId": None, **said("a")}, {"id": "e2", "parentId": "", **said("b")}]
    assert texts(build_session_context(entries)["messages"]) == ["b"]
    assert context_report(entries) == ContextReport()


def test_a_plain_value_at_the_end_is_a_leaf_without_messages_and_null_is_none() -> None:
    assert written(build_session_context([*chain(said("a")), 42], dialect="pi")) == EMPTY["pi"]
    assert texts(build_session_context([*chain(said("a")), None])["messages"]) == ["a"]


def test_of_several_entries_with_one_id_the_last_is_the_parent() -> None:
    entries = chain(
        said("a"), said("b"), {"id": "e1", "parentId": None, **said("again")}, {"parentId": "e2", **said("c")}
    )
    assert texts(build_session_context(entries)["messages"]) == ["again", "b", "c"]


CYCLES = {  # ids with their parents, in file order; the path to the last entry
    "self": (["a:a", "b:a"], ["a", "b"]),
    "two": (["a:b", "b:a", "c:a"], ["b", "a", "c"]),
    "leaf inside": (["a:c", "b:a", "c:b"], ["c"]),
    "closed before the leaf": (["b:a", "c:b", "a:c", "d:c"], ["a", "b", "c", "d"]),
    "by a duplicate": (["a:", "b:a", "a:b", "c:b"], ["a", "b", "c"]),
}


@pytest.mark.parametrize(("links", "expected"), CYCLES.values(), ids=CYCLES)
def test_a_cycle_ends_at_its_entry_that_comes_last_in_the_file(links: list[str], expected: list[str]) -> None:
    pairs = [link.split(":") for link in links]
    entries = [{"id": name, "parentId": parent or None, **said(name)} for name, parent in pairs]
    assert texts(build_session_context(entries)["messages"]) == expected


def test_every_walk_over_random_parents_ends_and_is_a_path() -> None:
    rng = random.Random(3)
    for _ in range(500):
        size = rng.randrange(1, 9)
        entries = [
            {"id": f"n{rng.randrange(size)}", "parentId": rng.choice([None, "gone", *(f"n{i}" for i in range(size))])}
            for _ in range(size)
        ]
        for place, entry in enumerate(entries):
            entry |= said(place)
        leaf = rng.choice(entries)["id"]
        places = texts(build_session_context(entries, leaf, dialect="pi")["messages"])
        assert len(set(places)) == len(places)
        assert entries[places[-1]]["id"] == leaf
        assert [entries[p]["parentId"] for p in places[1:]] == [entries[p]["id"] for p in places[:-1]]


def test_a_chain_of_100_000_entries_takes_less_than_a_second() -> None:
    step = [said("u"), said("a", "assistant"), {"type": "model_change", "model": "p/m"}]
    entries = [{"id": f"{i}", "parentId": f"{i - 1}" if i else None, **step[i % 3]} for i in range(100_000)]
    for dialect in DIALECTS:
        start = time.process_time()
        assert len(build_session_context(entries, dialect=dialect)["messages"]) == 66_667
        assert time.process_time() - start < 1


# Settings

MODEL = "model_change"
MODELS = {
    "assistants only": ([said("x", "assistant", provider="p", model="m")], {"default": "p/m"}),
    "role": ([{"type": MODEL, "model": "p/s", "role": "smol"}], {"smol": "p/s"}),
    "explicit default first": (
        [{"type": MODEL, "model": "p/d"}, said("x", "assistant", provider="p", model="m")],
        {"default": "p/d"},
    ),
    "null role is default": (
        [{"type": MODEL, "model": "p/d", "role": None}, said("x", "assistant", provider="p", model="m")],
        {"default": "p/d"},
    ),
    "another role is not explicit": (
        [{"type": MODEL, "model": "p/s", "role": "smol"}, said("x", "assistant", provider="p", model="m")],
        {"smol": "p/s", "default": "p/m"},
    ),
    "no model, no change": (
        [{"type": MODEL, "provider": "p", "modelId": "d"}, said("x", "assistant", provider="p", model="m")],
        {"default": "p/m"},
    ),
    "missing names": ([said("x", "assistant", model=None)], {"default": "undefined/null"}),
}


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
@pytest.mark.parametrize(("parts", "expected"), MODELS.values(), ids=MODELS)
def test_models_by_role(parts: list[Any], expected: dict[str, str], dialect: Dialect) -> None:
    models = build_session_context(chain(*parts), dialect=dialect)["models"]
    assert list(models.items()) == list(expected.items())


def test_pi_takes_the_last_model_named_by_whichever_entry() -> None:
    entries = chain(
        {"type": MODEL, "provider": "a", "modelId": "b"}, said("x", "assistant", provider="p", model="m"),
        {"type": MODEL, "provider": "c"}, said("x", "assistant", model="n"),
    )  # fmt: skip
    models = [build_session_context(entries, leaf, dialect="pi")["model"] for leaf in ("e1", "e2", "e3", "e4")]
    assert models[:2] == [{"provider": "a", "modelId": "b"}, {"provider": "p", "modelId": "m"}]
    assert models[2:] == [{"provider": "c"}, {"modelId": "n"}]


ALL_SETTINGS = chain(
    {"type": "thinking_level_change", "thinkingLevel": "high", "configured": "auto"},
    {"type": "service_tier_change", "serviceTier": "flex"},
    {"type": "context_change", "contextName": "prod", "tenant": "t", "namespace": "n"},
    {"type": "ttsr_injection", "injectedRules": ["b", "a", "b"]},
    {"type": "ttsr_injection", "injectedRules": ["c", "a"]},
    {"type": "mcp_tool_selection", "selectedToolNames": ["x"]},
    {"type": "mcp_tool_selection", "selectedToolNames": []},
    {"type": "mode_change", "mode": "plan", "data": {"k": 1}},
)
SETTINGS: dict[Dialect, str] = {
    "pi": '{"messages":[],"thinkingLevel":"high","model":null}',
    "xcsh": '{"messages":[],"thinkingLevel":"high","serviceTier":"flex","models":{},"activeContextName":"prod",'
    '"activeContextTenant":"t","injectedTtsrRules":["b","a","c"],"selectedMCPToolNames":[],'
    '"hasPersistedMCPToolSelection":true,"mode":"plan","modeData":{"k":1}}',
    "omp": '{"messages":[],"thinkingLevel":"high","configuredThinkingLevel":"auto","serviceTier":{"openai":"flex"},'
    '"models":{},"injectedTtsrRules":["b","a","c"],"mode":"plan","modeData":{"k":1}}',
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_setting_stands_in_its_dialect_s_order(dialect: Dialect) -> None:
    assert written(build_session_context(ALL_SETTINGS, dialect=dialect)) == SETTINGS[dialect]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_last_change_of_a_setting_decides(dialect: Dialect) -> None:
    entries = [*ALL_SETTINGS, {"id": "e9", "parentId": "e8", "type": "mode_change"}]
    for number, kind in enumerate(("thinking_level_change", "service_tier_change", "context_change"), 10):
        values = {"thinkingLevel": None, "serviceTier": None}
        entries.append({"id": f"e{number}", "parentId": f"e{number - 1}", "type": kind, **values})
    context = build_session_context(entries, dialect=dialect)
    assert context["thinkingLevel"] == (None if dialect == "pi" else "off")
    assert not {"mode", "modeData", "serviceTier", "activeContextName", "configuredThinkingLevel"} & context.keys()


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
def test_an_empty_thinking_level_is_a_level(dialect: Dialect) -> None:
    entries = chain({"type": "thinking_level_change", "thinkingLevel": ""})
    assert build_session_context(entries, dialect=dialect)["thinkingLevel"] == ""


TIERS = [
    ("priority", {"openai": "priority", "anthropic": "priority", "google": "priority"}),
    ("openai-only", {"openai": "priority"}), ("claude-only", {"anthropic": "priority"}), ("scale", {"openai": "scale"}),
    ({"google": "flex", "openai": "auto", "other": "flex", "anthropic": "odd"}, {"openai": "auto", "google": "flex"}),
    ("odd", None), ({"anthropic": ["odd"]}, None), (7, None), ([], None),
]  # fmt: skip


@pytest.mark.parametrize(("tier", "expected"), TIERS, ids=[str(tier) for tier, _ in TIERS])
def test_omp_gives_a_service_tier_by_family(tier: Any, expected: dict[str, str] | None) -> None:
    entries = chain({"type": "service_tier_change", "serviceTier": tier})
    assert build_session_context(entries, dialect="omp").get("serviceTier") == expected
    if type(tier) is str:
        assert build_session_context(entries, dialect="xcsh")["serviceTier"] == tier


# Messages and compactions


def test_entries_give_the_messages_of_their_type() -> None:
    fields = {"customType": "x", "content": "c", "display": True, "details": None}
    entries = chain(
        {"type": "custom_message", **fields, "attribution": "user"},
        {"type": "custom_message", "content": "d"}, {"type": "branch_summary", "summary": "b", "fromId": "root"},
        {"type": "branch_summary", "summary": []},
        {"type": "branch_summary", "summary": "", "fromId": "root"}, {"type": "custom", "data": 1}, {"type": "future"},
    )  # fmt: skip
    ms = 1735689600000
    custom = {"role": "custom", **fields}
    branch = {"role": "branchSummary", "summary": "b", "fromId": "root", "timestamp": ms + 3000}
    odd = {"role": "branchSummary", "summary": [], "timestamp": ms + 4000}
    bare = {"role": "custom", "content": "d", "timestamp": ms + 2000}
    attributed = {**custom, "attribution": "user", "timestamp": ms + 1000}
    filled = {"role": "custom", "customType": "custom-message", "content": "d", "display": False}
    expected: dict[Dialect, list[Any]] = {
        "pi": [{**custom, "timestamp": ms + 1000}, bare, branch, odd],
        "xcsh": [attributed, bare, branch, odd],
        "omp": [attributed, {**filled, "timestamp": ms + 2000}, branch, odd],
    }
    for dialect, messages in expected.items():
        given = build_session_context(entries, dialect=dialect)["messages"]
        assert written({"messages": given}) == written({"messages": messages})


def test_a_time_that_does_not_parse_is_none() -> None:
    entries = chain(
        {**compaction("e0"), "timestamp": "soon"}, {"type": "branch_summary", "summary": "b", "timestamp": "x"}
    )
    messages = build_session_context(entries)["messages"]
    assert [message["timestamp"] for message in messages] == [None, None]


COMPACTIONS = {
    "kept range": ([said("a"), said("b"), compaction("e2"), said("c")], ["S", "b", "c"]),
    "the last one wins": ([said("a"), compaction("e1", "1"), said("b"), compaction("e3", "2")], ["2", "b"]),
    "kept from before an older one": (
        [said("a"), said("b"), compaction("e2", "1"), said("c"), compaction("e2", "2"), said("d")],
        ["2", "b", "c", "d"],
    ),
    "own id keeps nothing": ([said("a"), compaction("e2"), said("b")], ["S", "b"]),
    "a later id keeps nothing": ([said("a"), compaction("e3"), said("b")], ["S", "b"]),
    "an unknown id keeps nothing": ([said("a"), compaction("gone"), said("b")], ["S", "b"]),
    "no id keeps nothing": ([said("a"), compaction(UNSET), said("b")], ["S", "b"]),
    "null keeps nothing": ([said("a"), compaction(None)], ["S"]),
    "empty summary": ([said("a"), compaction("e1", "")], ["", "a"]),
    "kept from an entry without message": ([said("a"), {"type": "label"}, said("b"), compaction("e2")], ["S", "b"]),
    "compaction is the root": ([compaction("e1"), said("a")], ["S", "a"]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("parts", "expected"), COMPACTIONS.values(), ids=COMPACTIONS)
def test_a_compaction_stands_for_what_it_does_not_keep(parts: list[Any], expected: list[str], dialect: Dialect) -> None:
    assert texts(build_session_context(chain(*parts), dialect=dialect)["messages"]) == expected


def test_a_first_kept_entry_on_another_branch_keeps_nothing() -> None:
    entries = chain(said("a"), said("other"), {**compaction("e2"), "parentId": "e1"}, said("b"))
    assert texts(build_session_context(entries)["messages"]) == ["S", "b"]


REMOTE = {"openaiRemoteCompaction": {"provider": "openai", "replacementHistory": [{"x": 1}], "more": 1}}
FULL = compaction(
    "e1", shortSummary="s", tokensAfter=3, method="m", warning="w", preserveData=REMOTE, details={}, fromExtension=True
)
PAYLOAD = '"providerPayload":{"type":"openaiResponsesHistory","provider":"openai","items":[{"x":1}]}'
SUMMARIES: dict[Dialect, str] = {
    "pi": '{"role":"compactionSummary","summary":"S","tokensBefore":9,"timestamp":1735689602000}',
    "xcsh": '{"role":"compactionSummary","summary":"S","shortSummary":"s","tokensBefore":9,'
    + PAYLOAD + ',"timestamp":1735689602000}',
    "omp": '{"role":"compactionSummary","summary":"S","shortSummary":"s","tokensBefore":9,"tokensAfter":3,"method":"m",'
    + PAYLOAD + ',"warning":"w","timestamp":1735689602000}',
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_provider_s_own_history_stands_for_the_kept_entries_except_in_pi(dialect: Dialect) -> None:
    summary, *others = build_session_context(chain(said("a"), FULL, said("b")), dialect=dialect)["messages"]
    assert written(summary) == SUMMARIES[dialect]
    assert texts(others) == (["a", "b"] if dialect == "pi" else ["b"])


def test_xcsh_knows_no_replay_behind_a_provider_s_history() -> None:
    entries = chain(said("a"), said("b"), {**FULL, "providerReplayThroughEntryId": "e1"})
    assert texts(build_session_context(entries, dialect="xcsh")["messages"]) == ["S"]


NO_REMOTE: list[Any] = [
    None, "x", [], {}, {"openaiRemoteCompaction": None}, {"openaiRemoteCompaction": []},
    {"openaiRemoteCompaction": {"provider": "", "replacementHistory": []}},
    {"openaiRemoteCompaction": {"provider": 1, "replacementHistory": []}},
    {"openaiRemoteCompaction": {"provider": "p", "replacementHistory": {}}},
    {"openaiRemoteCompaction": {"provider": "p"}},
]  # fmt: skip


@pytest.mark.parametrize("dialect", ["xcsh", "omp"])
@pytest.mark.parametrize("preserved", NO_REMOTE, ids=map(str, NO_REMOTE))
def test_a_remote_compaction_that_is_none_counts_for_nothing(preserved: Any, dialect: Dialect) -> None:
    entries = chain(said("a"), compaction("e1", preserveData=preserved))
    messages = build_session_context(entries, dialect=dialect)["messages"]
    assert texts(messages) == ["S", "a"]
    assert "providerPayload" not in messages[0]


# omp's own rules


def call(call_id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {}}


def result(call_id: str, text: str = "r") -> dict[str, Any]:
    return said(text, "toolResult", toolCallId=call_id)


RESET = {"type": "reset_boundary"}
NOTE = {"type": "custom_message", "customType": "interrupted-thinking", "content": "note", "display": False}
TEXT = {"type": "text", "text": "t"}
SIGNED = {"type": "thinking", "thinking": "h", "thinkingSignature": "s"}
OMP_ONLY = {
    "replay goes on behind the covered entries": (
        [said("a"), said("b"), said("c"), {**FULL, "providerReplayThroughEntryId": "e2"}, said("d")],
        ["S", "c", "d"],
    ),
    "replay through an unknown entry": ([said("a"), {**FULL, "providerReplayThroughEntryId": "e9"}], ["S"]),
    "replay without a payload": (
        [said("a"), said("b"), compaction("e1", providerReplayThroughEntryId="e1")],
        ["S", "a", "b"],
    ),
    "reset": ([said("a"), RESET, said("b"), RESET, said("c")], ["c"]),
    "reset after a compaction": ([said("a"), compaction("e1"), RESET, said("b")], ["b"]),
    "reset before a compaction": ([said("a"), RESET, said("b"), compaction("e1")], ["S", "a", "b"]),
    "retry": ([said("a"), said([TEXT], "assistant", retryRecovery={"x": 1})], ["a"]),
    "empty error": (
        [said("a"), said([{"type": "text", "text": " "}], "assistant", stopReason="error"), NOTE],
        ["a", "note"],
    ),
    "error of an unknown block": (
        [said([{"type": ["odd"]}], "assistant", stopReason="error"), NOTE],
        [[{"type": ["odd"]}], "note"],
    ),
    "transient customs": (
        [{**NOTE, "customType": "prewalk-plan"}, {**NOTE, "customType": "vibe-mode-context"}, said("a")],
        ["a"],
    ),
    "custom without content": ([{**NOTE, "content": {"odd": 1}}, {**NOTE, "content": [TEXT]}], [[TEXT]]),
    "custom of an odd type": ([{**NOTE, "customType": ["vibe-mode-context"]}], ["note"]),
    "open call": ([said([TEXT, call("c")], "assistant"), said("a")], [[TEXT], "a"]),
    "open call alone": ([said([call("c")], "assistant"), said("a")], ["a"]),
    "answered call": ([said([call("c")], "assistant"), result("c")], [[call("c")], "r"]),
    "one of two calls": (
        [said([SIGNED, {"type": "redactedThinking", "data": "x"}, call("c"), call("d")], "assistant"), result("d")],
        [[{"type": "thinking", "thinking": "h"}, call("d")], "r"],
    ),
    "signed thinking of a whole turn stays": ([said([SIGNED, TEXT], "assistant")], [[SIGNED, TEXT]]),
    "aborted": ([said("a"), said([TEXT], "assistant", stopReason="aborted"), said("b")], ["a", "b"]),
    "failed with results": (
        [result("c", "before"), said([TEXT, call("c")], "assistant", stopReason="error"), result("c"), said("b")],
        ["before", "b"],
    ),
    "interrupted with a note": ([said([TEXT], "assistant", stopReason="aborted"), NOTE], [[TEXT], "note"]),
    "note behind a failed turn's results": (
        [said([TEXT, call("c")], "assistant", stopReason="aborted"), result("c"), NOTE],
        ["note"],
    ),
    "note behind a turn that went itself": (
        [said("1", "assistant", stopReason="aborted"), said("2", "assistant", stopReason="aborted"), result("x"), NOTE],
        ["r", "note"],
    ),
    "two failed turns of one call": (
        [
            *(said([TEXT, call("c")], "assistant", stopReason="error"), result("c", "1"), said("a")),
            *(said([TEXT, call("c")], "assistant", stopReason="error"), result("c", "2"), NOTE),
        ],
        ["a", "note"],
    ),
}


@pytest.mark.parametrize(("parts", "expected"), OMP_ONLY.values(), ids=OMP_ONLY)
def test_omp_leaves_out_what_would_mislead_a_model(parts: list[Any], expected: list[Any]) -> None:
    assert texts(build_session_context(chain(*parts), dialect="omp")["messages"]) == expected


@pytest.mark.parametrize("dialect", ["pi", "xcsh"])
def test_other_clients_give_failed_turns_and_open_calls_as_they_stand(dialect: Dialect) -> None:
    entries = chain(said("a"), RESET, said([call("c"), SIGNED], "assistant", stopReason="error", retryRecovery=1))
    assert build_session_context(entries, dialect=dialect)["messages"] == [entries[0]["message"], entries[2]["message"]]


# Windows


def window_of(path: list[Any]) -> tuple[list[Any], list[Any]]:
    """The part of a path that messages come from, and the settings above: what a database reads."""
    kinds = [entry["type"] for entry in path]
    if "compaction" not in kinds:
        return [], path
    at = len(kinds) - 1 - kinds[::-1].index("compaction")
    start = next((i for i in range(at) if path[i]["id"] == path[at]["firstKeptEntryId"]), at)
    is_assistant = [entry["type"] == "message" and entry["message"]["role"] == "assistant" for entry in path]
    last = max((i for i in range(start) if is_assistant[i]), default=None) if not any(is_assistant[start:]) else None
    above = [
        e for i, e in enumerate(path[:start]) if i == last or e["type"].endswith(("change", "injection", "selection"))
    ]
    return above, path[start:]


def test_the_end_of_a_path_and_the_settings_above_give_the_whole_context() -> None:
    rng = random.Random(5)
    settings = [{**e, "id": None, "parentId": None} for e in ALL_SETTINGS]
    models = [
        {"type": MODEL, "model": "x/y"},
        {"type": MODEL, "model": "x/z", "role": "smol"},
        {"type": MODEL, "provider": "q"},
    ]
    shortened = 0
    for _ in range(400):
        parts = [
            rng.choice(
                [
                    said(i),
                    said(i, "assistant", provider="p", model=i),
                    rng.choice([*settings, *models]),
                    compaction(f"e{rng.randrange(9)}"),
                ]
            )
            for i in range(12)
        ]
        path = [{**part, "id": f"e{i}"} for i, part in enumerate(parts)]
        above, end = window_of(path)
        shortened += len(above) + len(end) < len(path)
        for dialect in DIALECTS:
            assert context_of_path(end, above=above, dialect=dialect) == context_of_path(path, dialect=dialect)
    assert shortened > 100


# Reports


def test_a_call_without_a_result_is_reported_with_its_entry() -> None:
    entries = chain(
        said("u"), said([TEXT, call("c1"), call("c2"), {"type": "toolCall"}], "assistant"), result("c1"), said("?")
    )
    expected = (OpenToolCall("e2", "c2", "bash"), OpenToolCall("e2", None, None))
    assert context_report(entries) == ContextReport(expected, 0, None)
    assert context_report(entries, "e1") == ContextReport()
    assert context_report(entries, dialect="omp").open_tool_calls == ()  # omp's context has them no more


def test_a_call_that_a_compaction_took_away_is_not_open() -> None:
    entries = chain(said([call("c")], "assistant"), compaction("e9"), said("u"))
    assert context_report(entries).open_tool_calls == ()


BROKEN = {  # ids with their parents in file order; the report of the last entry
    "whole": (["a:", "b:a"], 0, None),
    "second root": (["a:", "b:"], 0, None),
    "orphan": (["a:", "b:a", "c:gone", "d:c"], 2, "gone"),
    "orphan first": (["a:gone", "b:a"], 0, "gone"),
    "others behind the orphan": (["a:", "c:gone", "x:a", "d:c"], 1, "gone"),
    "itself": (["a:", "b:b", "c:b"], 1, "b"),
    "cycle": (["x:", "a:c", "b:a", "c:b", "d:b"], 1, "b"),
}


@pytest.mark.parametrize(("links", "unreachable", "parent"), BROKEN.values(), ids=BROKEN)
def test_a_broken_path_is_reported_with_what_it_leaves_behind(links: list[str], unreachable: int, parent: Any) -> None:
    pairs = [link.split(":") for link in links]
    entries: list[Any] = [{"id": name, "parentId": above or None, **said(name)} for name, above in pairs]
    header = {"type": "session", "id": "s"}
    assert context_report([header, *entries]) == ContextReport((), unreachable, parent)


def test_a_report_of_a_window_takes_the_root_and_what_stands_before_it() -> None:
    entries = chain({**said("a"), "parentId": "gone"}, said([call("c")], "assistant"))
    report = report_of_path(entries[1:], [entries[1]["message"]], root=entries[0], before=7)
    assert report == ContextReport((OpenToolCall("e2", "c", "bash"),), 7, "gone")
    assert report_of_path([], [], root=None, before=0) == ContextReport()
    assert report_of_path([], [], root={"id": "a", "parentId": 5}, before=3) == ContextReport()


def test_the_corpus_s_broken_sessions_are_reported(corpus: Path) -> None:
    reports = {name: context_report(read_entries(next(corpus.glob(f"bugcases/{name}-*")))) for name in ("bc15", "bc24")}
    assert reports["bc15"] == ContextReport((), 2, "gone0000")
    assert reports["bc24"] == ContextReport((OpenToolCall("dtc00002", "call_7", "bash"),))
    twice = build_session_context(read_entries(next(corpus.glob("bugcases/bc19-*"))))["messages"]
    assert [t if type(t) is str else t[0]["text"][:2] for t in texts(twice)] == [
        "summary two",
        "u2",
        "a2",
        "u3",
        "a3",
        "u4",
        "a4",
    ]


# Junk

JUNK: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "x",
    "e1",
    [],
    [None],
    [[]],
    {},
    {"role": "assistant"},
    {"type": "toolCall"},
    UNSET,
]


def spoilt(rng: random.Random, value: Any) -> Any:
    """The value with junk put in here and there, at any depth."""
    if rng.random() < 0.08:
        return rng.choice(JUNK)
    if type(value) is dict:
        return {key: spoilt(rng, item) for key, item in value.items() if rng.random() > 0.04}
    return [spoilt(rng, item) for item in value] if type(value) is list else value


def test_no_shape_of_entries_is_an_error() -> None:
    rng = random.Random(11)
    parts: list[Any] = [part for rows in (OMP_ONLY, COMPACTIONS, MODELS) for row in rows.values() for part in row[0]]
    parts += [*ALL_SETTINGS, {"type": "branch_summary", "summary": "b"}]
    for _ in range(1_500):
        entries = [spoilt(rng, entry) for entry in chain(*rng.choices(parts, k=8))]
        leaf: Any = rng.choice([UNSET, None, "", "e3", 7, []])
        for dialect in DIALECTS:
            context = build_session_context(entries, leaf, dialect=dialect)
            encode_entry(context)
            encode_entry(convert_to_llm(context["messages"]))
            assert context_report(entries, leaf, dialect=dialect).unreachable <= len(entries)
