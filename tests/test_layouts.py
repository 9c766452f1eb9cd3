"""Every append call of every client, line by line: the bytes we write are the recorded ones, in every home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiondb import UNSET, SessionManager
from sessiondb.jsonl import encode_entry, parse_time

from .support import GOLDEN_ROOT, OpenStore, exported

CLIENTS = {
    "@mariozechner/pi-coding-agent": "pi",
    "@oh-my-pi/pi-coding-agent": "omp",
    "@f5-sales-demo/xcsh (harness)": "xcsh",
}
RECORDED = {
    CLIENTS[client["client"]]: client
    for client in json.loads((GOLDEN_ROOT / "layouts.json").read_text())
    if client["client"] in CLIENTS
}
OMP_OPTIONS = {
    "details": "details", "fromExtension": "from_extension", "preserveData": "preserve_data", "method": "method",
    "tokensAfter": "tokens_after", "providerReplayThroughEntryId": "provider_replay_through_entry_id",
}  # fmt: skip


class Recorded:
    """The clock and the ids of the recording."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.next_id = ""

    def clock(self) -> int:
        return self.now_ms

    def ids(self, kind: str) -> str:
        return self.next_id

    def follow(self, line: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(line)
        self.next_id = value.get("id", "")
        time_ms = parse_time(value.get("timestamp", value.get("updatedAt")))
        assert time_ms is not None
        self.now_ms = time_ms
        return value


def snake(name: str) -> str:
    name = name.replace("MCP", "Mcp")
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def call(manager: SessionManager, dialect: str, name: str, args: list[Any], first_id: str) -> Any:
    """The recorded call in our API."""
    given: list[Any] = [first_id if a == "@1" else UNSET if a == {"$undefined": True} else a for a in args]
    keywords: dict[str, Any] = {}
    if name == "appendModelChange":
        if dialect == "pi":
            given = ["/".join(given)]
        elif dialect == "omp" and len(given) == 3:
            keywords["resolved_model_is_fallback"] = given.pop()
    elif name == "appendThinkingLevelChange" and len(given) == 2:
        keywords["configured"] = given.pop()
    elif name == "appendCompaction" and dialect == "pi":
        names = ["details", "from_extension"]
        keywords = dict(zip(names, given[3:], strict=False))
        given = given[:3]
    elif name == "appendCompaction":
        summary, short, first, tokens, *rest = given
        given = [summary, first, tokens]
        keywords["short_summary"] = short
        if dialect == "omp" and rest:
            keywords |= {OMP_OPTIONS[key]: value for key, value in rest[0].items()}
        else:
            keywords |= dict(zip(["details", "from_extension", "preserve_data"], rest, strict=False))
    elif name == "appendCustomMessageEntry" and len(given) == 5:
        keywords["attribution"] = given.pop()
    elif name == "appendModelUsage":
        keywords["parent_id"] = first_id
        given = given[:1]
    return getattr(manager, snake(name))(*given, **keywords)


@pytest.fixture(params=["file", "database", "memory"])
def home(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make(home: str, tmp_path: Path, open_store: OpenStore) -> Callable[..., tuple[SessionManager, Any]]:
    """A manager in the home, and what reads its bytes back."""

    def begin(**options: Any) -> tuple[SessionManager, Any]:
        if home == "memory":
            manager = SessionManager.in_memory("/tmp", **options)  # noqa: S108 - the recorded cwd
            return manager, lambda: b""
        if home == "file":
            manager = SessionManager.create("/tmp", session_dir=tmp_path / "sessions", **options)  # noqa: S108
            return manager, lambda: Path(manager.get_session_file() or "").read_bytes()
        store = open_store()
        manager = SessionManager.create("/tmp", store=store, **options)  # noqa: S108
        return manager, lambda: exported(store, manager.get_session_id())

    return begin


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_every_recorded_call_writes_the_recorded_line(
    dialect: str, home: str, make: Callable[..., tuple[SessionManager, Any]]
) -> None:
    client, recorded = RECORDED[dialect], Recorded()
    lines = client["header_and_first_lines"].splitlines()
    header_line = lines[1] if dialect == "omp" else lines[0]
    recorded.follow(header_line)
    manager, read = make(dialect=dialect, clock=recorded.clock, ids=recorded.ids)
    for line in lines[-2:]:
        manager.append_message(recorded.follow(line)["message"])
    first_id = json.loads(lines[-2])["id"]
    written = client["header_and_first_lines"]
    if home != "memory":
        assert read().decode() == written
    for done in client["calls"]:
        line = done.get("appended") or ""
        if "rewritten" in done:
            line = done["rewritten"].splitlines(keepends=True)[-1]
            recorded.follow(done["rewritten"].splitlines()[0])
            recorded.next_id = json.loads(line)["id"]
        elif line:
            recorded.follow(line)
        result = call(manager, dialect, done["call"], done["args"], first_id)
        assert result == done["returned"], done
        if home == "memory":
            entry = manager.get_entry(result) if type(result) is str else None
            assert entry is None or encode_entry(entry).decode() + "\n" == line
        else:
            written = done.get("rewritten", written + line)
            assert read().decode() == written, done
    manager.close()


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_nothing_is_written_before_the_first_answer(
    dialect: str, home: str, make: Callable[..., tuple[SessionManager, Any]], tmp_path: Path
) -> None:
    manager, _ = make(dialect=dialect)
    manager.append_message({"role": "user", "content": "u"})
    manager.flush()
    assert not manager.is_on_disk()
    assert not list(tmp_path.rglob("*.jsonl"))
    assert RECORDED[dialect]["file_after_user_only"] is None
