"""What is known of a session: its dialect, and the row of it in a list (DESIGN: Dialect; BEHAVIOUR of the clients)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiondb import Store
from tests.support import (
    dump,
    entry,
    header,
    write,
)

# Dialect


def mark(kind: str, **more: object) -> bytes:
    return dump({"type": kind, "id": "000000f0", "parentId": None, "timestamp": "2026-01-01T00:00:02.000Z", **more})


SLOT = dump({"type": "title", "v": 1, "title": "T", "updatedAt": "2026-01-01T00:00:00.000Z", "pad": ""})
SLOT = SLOT.replace(b'"pad":""', b'"pad":"' + b" " * (256 - len(SLOT)) + b'"')

OMP, XCSH, PI = "omp", "xcsh", "pi"
PI_MARK = mark("model_change", provider="p", modelId="m")
XCSH_MARK = mark("model_change", model="p/m")
DIALECTS = {
    # name: (folder, lines, given, dialect, a word of the reason)
    "nothing tells": ("x", [entry(1)], None, PI, ""),
    "folder .pi": (".pi/agent", [entry(1)], None, PI, "folder"),
    "folder .omp": (".omp/agent", [entry(1)], None, OMP, "folder"),
    "folder .xcsh": (".xcsh/agent", [entry(1)], None, XCSH, "folder"),
    "folder .openclaw": (".openclaw/agents/a", [entry(1)], None, PI, "folder"),
    "title slot": ("x", [SLOT], None, OMP, "title"),
    "title_change": ("x", [mark("title_change", title="t", source="user")], None, OMP, "title_change"),
    "credential_pin": ("x", [mark("credential_pin", provider="p", hash="h")], None, OMP, "credential_pin"),
    "reset_boundary": ("x", [mark("reset_boundary")], None, OMP, "reset_boundary"),
    "resolvedModelIsFallback": (
        "x",
        [mark("model_change", model="p/m", resolvedModelIsFallback=False)],
        None,
        OMP,
        "resolvedModelIsFallback",
    ),
    "model_change.model": ("x", [XCSH_MARK], None, XCSH, "model"),
    "ttsr_injection": ("x", [mark("ttsr_injection", injectedRules=[])], None, XCSH, "ttsr_injection"),
    "mode_change": ("x", [mark("mode_change", mode="plan")], None, XCSH, "mode_change"),
    "session_init": ("x", [mark("session_init", task="t")], None, XCSH, "session_init"),
    "context_change": ("x", [mark("context_change", contextName="c")], None, XCSH, "context_change"),
    "fromExtension": (
        "x",
        [mark("branch_summary", summary="s", fromId="root", fromExtension=True)],
        None,
        XCSH,
        "fromExtension",
    ),
    "attribution": (
        "x",
        [mark("custom_message", customType="c", content="x", display=True, attribution="agent")],
        None,
        XCSH,
        "attribution",
    ),
    "modelId": ("x", [PI_MARK], None, PI, "modelId"),
    "session_info": ("x", [mark("session_info", name="n")], None, PI, "session_info"),
    "fromHook": ("x", [mark("branch_summary", summary="s", fromId="root", fromHook=True)], None, PI, "fromHook"),
    "marks go before the folder": (".xcsh/agent", [PI_MARK], None, PI, "modelId"),
    "pi marks in .omp": (".omp/agent", [mark("session_info", name="n")], None, PI, "session_info"),
    "omp goes before xcsh": ("x", [XCSH_MARK, mark("title_change", title="t")], None, OMP, "title_change"),
    "xcsh goes before pi": ("x", [PI_MARK, mark("mode_change", mode="plan")], None, XCSH, "mode_change"),
    "omp goes before pi, last line": ("x", [PI_MARK, entry(1), mark("reset_boundary")], None, OMP, "reset_boundary"),
    "given goes before marks": (".xcsh/agent", [SLOT, XCSH_MARK], PI, PI, "given"),
    "given goes before the folder": (".pi/agent", [entry(1)], OMP, OMP, "given"),
    "quoted marks are no marks": (
        "x",
        [entry(1, text='{"type":"mode_change"} "fromExtension":true "attribution":"agent" title_change')],
        None,
        PI,
        "",
    ),
    "marks inside a message are no marks": (
        "x",
        [
            entry(
                1,
                role="assistant",
                text=[
                    {"type": "toolCall", "id": "c", "name": "t", "arguments": {"fromExtension": True, "type": "title"}}
                ],
            ),
        ],
        None,
        PI,
        "",
    ),
}


@pytest.mark.parametrize("case", DIALECTS.values(), ids=DIALECTS)
def test_the_dialect_is_the_one_given_else_marked_else_the_folder_s_else_pi(
    store: Store, tmp_path: Path, case: tuple[str, list[bytes], str | None, str, str]
) -> None:
    folder, lines, given, expected, word = case
    first = [SLOT] if SLOT in lines else []
    rest = [line for line in lines if line != SLOT]
    write(tmp_path / folder / "sessions/--w--/s.jsonl", *first, header(), *rest)
    store.import_paths([tmp_path / folder], dialect=given)
    info = store.session("s-1")
    assert info.dialect == expected
    assert info.dialect_reason
    assert word in info.dialect_reason.replace("_slot", " slot")


# What a list shows


def info_of(name: str, text: str) -> bytes:
    return mark("session_info", name=text).replace(b"000000f0", name.encode())


def compaction(short: str) -> bytes:
    return mark("compaction", summary="s", shortSummary=short, firstKeptEntryId="00000001", tokensBefore=1)


def slot(title: str) -> bytes:
    line = dump({"type": "title", "v": 1, "title": title, "updatedAt": "2026-01-01T00:00:00.000Z", "pad": ""})
    return line.replace(b'"pad":""', b'"pad":"' + b" " * (256 - len(line)) + b'"')


TITLES: dict[str, tuple[str, list[bytes], str | None]] = {
    "pi: no name": ("pi", [header(), entry(1)], None),
    "pi: the last name": ("pi", [header(), info_of("a", "first"), entry(1), info_of("b", " second ")], "second"),
    "pi: an empty name takes the name away": ("pi", [header(), info_of("a", "first"), info_of("b", "  ")], None),
    "pi: the header's title is nothing": ("pi", [header(title="H"), entry(1)], None),
    "xcsh: the header's title": ("xcsh", [header(title="H"), compaction("C"), info_of("a", "N")], "H"),
    "xcsh: else the last short summary": ("xcsh", [header(), compaction("C1"), compaction("C2")], "C2"),
    "xcsh: names are nothing": ("xcsh", [header(), info_of("a", "N"), entry(1)], None),
    "omp: the slot goes before the header": ("omp", [slot("S"), header(title="H"), entry(1)], "S"),
    "omp: an empty slot takes the header's title away": ("omp", [slot(""), header(title="H"), entry(1)], None),
    "omp: no slot, the header's title": ("omp", [header(title="H"), entry(1)], "H"),
}


@pytest.mark.parametrize("case", TITLES.values(), ids=TITLES)
def test_the_title_follows_the_dialect_s_client(
    store: Store, tmp_path: Path, case: tuple[str, list[bytes], str | None]
) -> None:
    """BEHAVIOUR sections 7 and 10."""
    dialect, lines, expected = case
    store.import_paths([write(tmp_path / "s.jsonl", *lines)], dialect=dialect)
    assert store.session("s-1").title == expected


FIRST_MESSAGES: dict[str, tuple[list[bytes], str | None, int]] = {
    "none": ([], None, 0),
    "a string": ([entry(1, text="hello")], "hello", 1),
    "text blocks joined by a space": (
        [entry(1, text=[{"type": "text", "text": "a"}, {"type": "image", "data": "x"}, {"type": "text", "text": "b"}])],
        "a b",
        1,
    ),
    "the first that is not empty": ([entry(1, text=""), entry(2, 1, "second"), entry(3, 2, "third")], "second", 3),
    "not an assistant's": ([entry(1, text="A", role="assistant"), entry(2, 1, "U")], "U", 2),
    "tool results count as messages": ([entry(1, text="U"), entry(2, 1, "r", role="toolResult")], "U", 2),
    "other entries do not count": ([entry(1, text="U"), info_of("a", "n")], "U", 1),
    "null message": (
        [dump({"type": "message", "id": "0000000a", "parentId": None, "message": None}), entry(1)],
        "hi",
        2,
    ),
}


@pytest.mark.parametrize("case", FIRST_MESSAGES.values(), ids=FIRST_MESSAGES)
def test_first_message_and_count_follow_the_client(
    store: Store, tmp_path: Path, case: tuple[list[bytes], str | None, int]
) -> None:
    lines, first, count = case
    store.import_paths([write(tmp_path / "s.jsonl", header(), *lines)])
    info = store.session("s-1")
    assert (info.first_message, info.message_count) == (first, count)


T0 = 1767225600000  # 2026-01-01T00:00:00.000Z


def at(number: int, second: int, role: str = "user", **message: object) -> bytes:
    return entry(
        number,
        number - 1 or None,
        timestamp=f"2026-01-01T00:00:{second:02d}.000Z",
        message={"role": role, "content": "x", **message},
    )


MODIFIED: dict[str, tuple[list[bytes], int]] = {
    "no message: the header's time": ([], T0),
    "the newest message": ([at(1, 5), at(2, 9, "assistant")], T0 + 9000),
    "the newest wherever it stands": ([at(1, 9), at(2, 5)], T0 + 9000),
    "the message's own number goes first": ([at(1, 5, timestamp=T0 + 3000)], T0 + 3000),
    "a number that is text does not": ([at(1, 5, timestamp=str(T0))], T0 + 5000),
}


@pytest.mark.parametrize("case", MODIFIED.values(), ids=MODIFIED)
@pytest.mark.parametrize("dialect", ["pi", "xcsh"])
def test_activity_is_told_by_the_lines_and_never_by_the_file_s_time(
    store: Store, tmp_path: Path, case: tuple[list[bytes], int], dialect: str
) -> None:
    """B37; for xcsh too, whose client shows the file's time: DESIGN forbids it."""
    lines, modified = case
    file = write(tmp_path / "s.jsonl", header(), *lines)
    os.utime(file, (0, 0))
    store.import_paths([file], dialect=dialect)
    os.utime(file, (2_000_000_000, 2_000_000_000))
    store.refresh()
    info = store.session("s-1")
    assert (info.created_ms, info.modified_ms) == (T0, modified)


def test_touching_a_file_does_not_move_it_in_the_list(store: Store, tmp_path: Path) -> None:
    """B37."""
    old = write(tmp_path / "in/old.jsonl", header("old"), at(1, 1))
    write(tmp_path / "in/new.jsonl", header("new"), at(1, 2))
    store.import_paths([tmp_path / "in"])
    os.utime(old)
    assert store.refresh().unchanged == 2
    assert [s.id for s in store.sessions()] == ["new", "old"]


@pytest.mark.parametrize("time", ["2999-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z", "yesterday", "", None, 12345])
def test_an_implausible_time_does_not_rank_first(store: Store, tmp_path: Path, time: object) -> None:
    write(tmp_path / "in/good.jsonl", header("good"), at(1, 1))
    write(tmp_path / "in/odd.jsonl", header("odd", timestamp=time), entry(1, timestamp=time))
    store.import_paths([tmp_path / "in"])
    assert [s.id for s in store.sessions()] == ["good", "odd"]


def test_filters_run_over_all_rows_before_paging(store: Store, tmp_path: Path) -> None:
    """B39: 250 sessions, none lost to a cap; B32: one folder, the cwd is the header's."""
    for n in range(250):
        when = f"2026-01-{n // 24 + 1:02d}T{n % 24:02d}:00:00.000Z"
        cwd = "/home/dev/client-app" if n % 2 else "/home/dev/client/app"
        lines = header(f"id-{n:03d}", timestamp=when, cwd=cwd), entry(n, text=f"Prompt <{n}>", timestamp=when)
        write(tmp_path / "in/--home-dev-client-app--" / f"{n:03d}.jsonl", *lines)
    assert store.import_paths([tmp_path / "in"]).imported == 250
    everything = [f"id-{n:03d}" for n in reversed(range(250))]
    assert [s.id for s in store.sessions()] == everything
    pages = [s.id for offset in range(0, 300, 40) for s in store.sessions(limit=40, offset=offset)]
    assert pages == everything
    assert [s.id for s in store.sessions(query="pROMPT <3>", limit=5)] == ["id-003"]
    even = [f"id-{n:03d}" for n in reversed(range(0, 250, 2))]
    assert [s.id for s in store.sessions(cwd="/home/dev/client/app")] == even
    assert [s.id for s in store.sessions(cwd="/home/dev/client/app", limit=2, offset=124)] == ["id-000"]
    hour = 3_600_000
    between = store.sessions(since_ms=T0 + 10 * hour, until_ms=T0 + 13 * hour)
    assert [s.id for s in between] == ["id-012", "id-011", "id-010"]
    assert store.sessions(limit=0) == []
    assert store.count_sessions() == 250


@pytest.mark.parametrize("query", ["100%", "a_b", "50_percent", "'; DROP TABLE session; --", '"', "*", "\\"])
def test_a_query_is_text_and_no_pattern(store: Store, tmp_path: Path, query: str) -> None:
    """B74."""
    write(tmp_path / "in/hit.jsonl", header("hit"), entry(1, text=f"say {query} here"))
    write(tmp_path / "in/miss.jsonl", header("miss"), entry(2, text="100 axb 50 percent"))
    store.import_paths([tmp_path / "in"])
    assert [s.id for s in store.sessions(query=query)] == ["hit"]


def test_a_dialect_that_is_given_later_changes_a_session_that_is_held(store: Store, tmp_path: Path) -> None:
    file = tmp_path / ".pi/agent/sessions/a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(header("s", title="Title"))
    store.import_paths([file])
    assert (store.session(file).dialect, store.session(file).title) == ("pi", None)
    assert store.import_paths([file], dialect="xcsh").updated == 1
    info = store.session(file)
    assert (info.dialect, info.dialect_reason, info.title) == ("xcsh", "given", "Title")
    assert store.import_paths([file], dialect="xcsh").updated == 0
