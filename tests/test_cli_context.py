"""The command line on live sessions: `context`, and what `show` and `tree` say of other branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sessiondb import SessionManager, Store
from sessiondb.cli import program

from .support import dump, entry, header, write

CALL = [{"type": "toolCall", "id": "call_7", "name": "bash", "arguments": {"command": "x"}}]


def exit_entry(number: int, parent: int) -> bytes:
    stamp = {"id": f"{number:08x}", "parentId": f"{parent:08x}", "timestamp": "2026-01-01T00:00:59.000Z"}
    return dump({"type": "custom", **stamp, "customType": "session_exit"})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SESSIONDB_DB", str(tmp_path / "s.db"))
    monkeypatch.setenv("TZ", "UTC")
    path = write(
        tmp_path / "in/s.jsonl",
        header("told"),
        entry(1, None, "start", second=1),
        entry(2, 1, "started", role="assistant", second=2),
        entry(3, 2, "work from the second terminal", second=20),
        entry(4, 3, CALL, role="assistant", second=21),
        exit_entry(5, 2),
    )

    def call(*words: str) -> Result:
        return CliRunner().invoke(program, words)

    assert call("import", str(path)).exit_code == 0
    return call


def test_context_shows_settings_and_messages(run: Any) -> None:
    shown = run("context", "told")
    assert shown.exit_code == 0
    words = [line.split()[0] for line in shown.stdout.splitlines() if line]
    assert words == ["thinkingLevel:", "role", "user", "assistant"]
    assert "another branch has later messages" in shown.stderr
    assert "00000004" in shown.stderr


def test_context_of_another_leaf_names_the_open_tool_call(run: Any) -> None:
    shown = run("context", "told", "--leaf", "00000004")
    assert "second terminal" in shown.stdout
    assert "the call call_7 of the tool bash has no result" in shown.stderr
    assert "another branch" not in shown.stderr


def test_context_as_json_is_the_client_s_with_what_is_amiss(run: Any) -> None:
    document = json.loads(run("context", "told", "--json", "--leaf", "00000004").stdout)
    assert [message["role"] for message in document["messages"]] == ["user", "assistant", "user", "assistant"]
    assert document["report"] == {
        "openToolCalls": [{"entryId": "00000004", "toolCallId": "call_7", "name": "bash"}],
        "unreachable": 0,
        "brokenParent": None,
    }
    assert (document["session"], document["leaf"], document["thinkingLevel"]) == ("told", "00000004", "off")
    assert json.loads(run("context", "told", "--json").stdout)["leaf"] == "00000005"
    lines = run("context", "told", "--ndjson").stdout.splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user", "assistant"]


def test_an_unknown_leaf_is_an_error_that_names_it(run: Any) -> None:
    shown = run("context", "told", "--leaf", "nope")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "Entry nope not found" in shown.stderr


@pytest.mark.parametrize("command", ["show", "tree", "context"])
def test_json_tells_of_a_branch_with_later_messages(run: Any, command: str) -> None:
    assert "another branch has later messages" in run(command, "told").stderr
    document = json.loads(run(command, "told", "--json").stdout)
    assert document["later_branch"] == {"leaf": "00000004", "time": "2026-01-01T00:00:21.000Z"}


def test_nothing_is_said_when_the_last_entry_is_on_the_branch_with_the_latest(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "in/plain.jsonl", header("plain"), entry(1, None), entry(2, 1, role="assistant"), exit_entry(3, 2))
    run("import", str(tmp_path / "in"))
    assert "branch" not in run("tree", "plain").stderr
    assert json.loads(run("tree", "plain", "--json").stdout)["later_branch"] is None


def test_a_missing_parent_is_told_with_what_cannot_be_reached(run: Any, tmp_path: Path) -> None:
    broken = (header("broken"), entry(1, None), entry(2, 1), entry(9, 8), entry(10, 9, role="assistant"))
    write(tmp_path / "in/broken.jsonl", *broken)
    run("import", str(tmp_path / "in"))
    shown = run("context", "broken")
    assert "the parent 00000008 is not above its entry: 2 entries before cannot be reached" in shown.stderr
    assert json.loads(run("context", "broken", "--json").stdout)["report"]["unreachable"] == 2


def test_a_session_written_here_is_listed_shown_and_exported(run: Any, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        session = SessionManager.create("/w/live", store=store)
        session.append_message({"role": "user", "content": "written here"})
        session.append_message({"role": "assistant", "content": [{"type": "text", "text": "and kept"}]})
        session_id = session.get_session_id()
    assert "written here" in run("ls").stdout
    assert "and kept" in run("show", session_id).stdout
    assert len(run("export", session_id).stdout.splitlines()) == 3
    verified = run("verify")
    assert verified.exit_code == 0, verified.output
    assert run("check").exit_code == 0
