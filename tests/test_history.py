"""Prompts are remembered, found as in the agents, taken in from their databases, and forgotten to the last byte."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from sessiondb import HistoryStorage, SessionManager, Store
from sessiondb.cli import program
from sessiondb.errors import DatabaseBusyError, DatabaseUnavailableError, NotADatabaseError, ReadOnlyError
from sessiondb.history_import import backfill_history, import_history
from tests.support import GOLDEN_ROOT, OpenStore, entry, header, write
from tests.test_live_tree import Counted, assistant, user

RECORDED = {client["client"]: client for client in json.loads((GOLDEN_ROOT / "history.json").read_text())}
XCSH = RECORDED["@f5-sales-demo/xcsh (harness)"]


def texts(found: Any) -> list[str]:
    return [prompt.prompt for prompt in found]


def remember(store: Store, *prompts: str, **more: Any) -> None:
    for prompt in prompts:
        store.history.add(prompt, **more)
    store.history.flush()


@pytest.fixture
def recorded(store: Store) -> Store:
    """The history that xcsh's recording was made with."""
    for _, prompt, cwd in reversed(XCSH["recent"]):
        remember(store, prompt, cwd=cwd)
    return store


# -- as in the agents ------------------------------------------------------------------------------------------------


def test_what_is_recent_is_what_xcsh_gives(recorded: Store) -> None:
    assert [[p.id, p.prompt, p.cwd] for p in recorded.history.get_recent()] == XCSH["recent"]


@pytest.mark.parametrize("query", XCSH["search"])
def test_a_search_finds_what_xcsh_finds(recorded: Store, query: str) -> None:
    assert texts(recorded.history.search(query)) == XCSH["search"][query]


def test_limits_are_cut_as_in_xcsh_and_that_is_said(recorded: Store) -> None:
    for limit, count in XCSH["limits"]:
        assert len(recorded.history.get_recent(float(limit))) == count
        assert len(recorded.history.search("git", float(limit))) == min(count, 2)
    assert (len(recorded.history.get_recent(3)), recorded.history.get_recent(3).cut) == (3, True)
    assert (len(recorded.history.get_recent(11)), recorded.history.get_recent(11).cut) == (11, False)
    remember(recorded, *(f"prompt {number}" for number in range(1_010)))
    assert (len(recorded.history.get_recent(5_000)), recorded.history.get_recent(5_000).cut) == (1_000, True)
    found = recorded.history.search("prompt", 5_000)
    assert (len(found), found.cut) == (1_000, True)


def test_the_tables_are_those_of_the_agents(recorded: Store) -> None:
    names = [row["name"] for row in recorded.sql("SELECT name FROM pragma_table_info('history') ORDER BY cid")]
    assert names == ["id", "prompt", "created_at", "cwd"]
    reader = apsw.Connection(str(recorded.database))  # as any program that knows history.db
    query = "SELECT h.prompt FROM history_fts f JOIN history h ON h.id = f.rowid WHERE history_fts MATCH ?"
    assert reader.execute(query, ('"git"* "commit"*',)).fetchall() == [("git commit -m fix",)] * 2
    reader.execute("INSERT INTO history (prompt, created_at, cwd) VALUES ('from elsewhere', 2000000000, NULL)")
    reader.execute("UPDATE history SET prompt = 'changed elsewhere' WHERE prompt = 'other'")
    reader.execute("DELETE FROM history WHERE prompt = 'padded'")
    reader.close()
    assert texts(recorded.history.search("elsewhere")) == ["from elsewhere", "changed elsewhere"]
    assert texts(recorded.history.search("padded")) == []


def test_blanks_are_ignored_and_a_repeat_of_the_newest_is_dropped(store: Store) -> None:
    remember(store, "  ls \n", "ls", "", " \t\n\u00a0\ufeff", "ls", "pwd", "ls")
    assert texts(store.history.get_recent()) == ["ls", "pwd", "ls"]
    assert all(abs(prompt.created_at - time.time()) < 60 for prompt in store.history.get_recent())


ODD = ("旅游", "昨", "ス", "=", "C++", "服务端 you", "café", "cafe", "🚀", "\ud800", "x\0y", "a" * 9_999)


@pytest.mark.parametrize("query", ODD)
def test_any_script_and_any_text_may_be_looked_for(store: Store, query: str) -> None:
    prompts = ["昨晚旅游", "テスト", "a = b", "in C++", "修改youer服务端", "café", "go 🚀now", "half \ud800 of it"]
    prompts.append("x\0y")
    remember(store, *prompts)
    expected = {
        "旅游": [0], "昨": [0], "ス": [1], "=": [2], "C++": [3], "café": [5], "cafe": [5], "🚀": [6],
        "\ud800": [7], "x\0y": [8],
    }.get(query, [])  # fmt: skip
    stored = [prompt.replace("\ud800", "\ufffd") for prompt in prompts]
    if query != "服务端 you":  # no word begins with that here: the agents' tokenizer takes all of it for one
        assert texts(store.history.search(query)) == [stored[number] for number in expected]


def test_prompts_are_kept_apart_by_directory_and_session(store: Store) -> None:
    remember(store, "one", cwd="/a", session_id="s1")
    remember(store, "two", cwd="/b", session_id="s2")
    remember(store, "three")
    assert texts(store.history.get_recent(cwd="/a")) == ["one"]
    assert texts(store.history.get_recent(session_id="s2")) == ["two"]
    assert texts(store.history.search("t", cwd="/b")) == ["two"]
    assert texts(store.history.search("o", session_id="s2")) == []
    assert [(p.cwd, p.session_id) for p in store.history.get_recent()] == [(None, None), ("/b", "s2"), ("/a", "s1")]


# -- writing ---------------------------------------------------------------------------------------------------------


def test_adding_waits_for_nobody_and_a_failing_write_is_told_and_made_up_for(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(timeout=0.05)
    told: list[Exception] = []
    history = HistoryStorage(store, on_error=told.append)
    other = apsw.Connection(str(store.database))
    other.execute("BEGIN IMMEDIATE")
    started = time.perf_counter()
    for number in range(100):
        history.add(f"prompt {number}")
    assert time.perf_counter() - started < 0.5
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert isinstance(told[0], DatabaseBusyError)
    assert "not in the history yet" in caplog.text
    with pytest.raises(DatabaseBusyError):
        history.flush()
    other.execute("ROLLBACK")
    other.close()
    history.add("the last")
    history.close()
    assert len(history.get_recent(200)) == 101
    assert history.get_recent(1)[0].prompt == "the last"
    history.close()


def test_what_was_added_appears_without_a_flush(store: Store) -> None:
    store.history.add("soon there")
    deadline = time.monotonic() + 10
    while not store.history.get_recent() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert texts(store.history.get_recent()) == ["soon there"]


def test_closing_the_store_writes_what_waits(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.history.add("kept")
    with Store.open(tmp_path / "s.db") as store:
        assert texts(store.history.get_recent()) == ["kept"]
        assert not [thread for thread in threading.enumerate() if thread.name == "sessiondb history"]


def test_the_end_of_the_process_writes_what_waits(tmp_path: Path) -> None:
    code = "import sys; from sessiondb import Store; s = Store.open(sys.argv[1]); s.history.add('at the end')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s.db")], check=True, timeout=60)
    with Store.open(tmp_path / "s.db") as store:
        assert texts(store.history.get_recent()) == ["at the end"]


def test_two_processes_store_a_repeat_once(tmp_path: Path) -> None:
    Store.open(tmp_path / "s.db").close()
    code = (
        "import sys; from sessiondb import Store\n"
        "with Store.open(sys.argv[1]) as s:\n"
        "    for _ in range(20): s.history.add('ls'); s.history.flush()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s.db")]
    running = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    with Store.open(tmp_path / "s.db") as store:
        assert texts(store.history.get_recent()) == ["ls"]
        assert store.check() == []


def test_many_threads_add_and_nothing_is_lost(store: Store) -> None:
    def add(name: int) -> None:
        for number in range(50):
            store.history.add(f"{name}-{number}")

    threads = [threading.Thread(target=add, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.history.flush()
    assert sorted(texts(store.history.get_recent(1_000))) == sorted(f"{a}-{b}" for a in range(8) for b in range(50))


def test_a_database_open_for_reading_takes_no_prompts(tmp_path: Path) -> None:
    Store.open(tmp_path / "s.db").close()
    with Store.open(tmp_path / "s.db", read_only=True) as store:
        with pytest.raises(ReadOnlyError):
            store.history.add("x")
        with pytest.raises(ReadOnlyError):
            store.history.forget(1)
        assert store.history.search("x") == []


# -- forgetting ------------------------------------------------------------------------------------------------------


def bytes_on_disk(store: Store) -> bytes:
    """What the three files hold, read in another process: here it would drop SQLite's locks."""
    code = "import sys; [sys.stdout.buffer.write(open(p, 'rb').read()) for p in sys.argv[1:]]"
    names = [store.database.with_name(store.database.name + suffix) for suffix in ("", "-wal", "-shm")]
    command = [sys.executable, "-c", code, *(str(name) for name in names if name.exists())]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("by_id", [True, False])
def test_a_forgotten_prompt_is_gone_to_the_last_byte(store: Store, by_id: bool) -> None:
    remember(store, *(f"before {number}" for number in range(300)))
    remember(store, "export KEY=zqxjsecretkv", cwd="/zqxjplace")
    remember(store, *(f"after {number}" for number in range(300)))
    assert b"zqxjsecretkv" in bytes_on_disk(store)
    (prompt,) = store.history.search("zqxjsecretkv")
    assert store.history.forget(prompt.id if by_id else "  export KEY=zqxjsecretkv ") == 1
    assert b"zqxj" not in bytes_on_disk(store)
    assert store.history.search("zqxjsecretkv") == []
    assert store.history.forget(prompt.id) == 0
    assert store.history.forget("export KEY=zqxjsecretkv") == 0
    assert len(store.history.get_recent(1_000)) == 600


def test_every_prompt_of_that_text_is_forgotten_and_no_other(store: Store) -> None:
    remember(store, "same", "other", "same", "same!")
    assert store.history.forget("same") == 2
    assert texts(store.history.get_recent()) == ["same!", "other"]


# -- from elsewhere --------------------------------------------------------------------------------------------------

XCSH_TABLE = "CREATE TABLE history (id INTEGER PRIMARY KEY AUTOINCREMENT, prompt TEXT NOT NULL, created_at INTEGER NOT NULL DEFAULT (unixepoch()), cwd TEXT)"  # noqa: E501
OMP_TABLE = "CREATE TABLE history (id INTEGER PRIMARY KEY, prompt TEXT UNIQUE NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, session_id TEXT, use_count INTEGER)"  # noqa: E501


def an_agents_database(path: Path, table: str, *rows: tuple[Any, ...]) -> apsw.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(table)
    columns = "prompt, created_at, cwd" + ", session_id" * ("session_id" in table)
    marks = ", ".join("?" * (3 + ("session_id" in table)))
    db.executemany(f"INSERT INTO history ({columns}) VALUES ({marks})", rows)
    return db


@pytest.mark.parametrize("running", [True, False], ids=["while the agent runs", "alone"])
def test_an_agents_history_is_taken_in_and_left_as_it_is(store: Store, tmp_path: Path, running: bool) -> None:
    path = tmp_path / "agent/history.db"
    rows = [("one", 100, "/a"), ("two", 200, None), ("one", 300, "/a"), (" ", 400, None)]
    db = an_agents_database(path, XCSH_TABLE, *rows)
    if not running:
        db.close()
        before = path.read_bytes()
    remember(store, "mine")
    report = import_history(store, path)
    assert (report.added, report.known, report.skipped) == (3, 0, 1)
    assert [(p.prompt, p.created_at, p.cwd) for p in store.history.get_recent()][1:] == [
        ("one", 300, "/a"), ("two", 200, None), ("one", 100, "/a")
    ]  # fmt: skip
    again = import_history(store, path)
    assert (again.added, again.known) == (0, 3)
    if running:
        db.execute("INSERT INTO history (prompt) VALUES ('three')")
        assert import_history(store, path).added == 1
        assert abs(store.history.search("three")[0].created_at - time.time()) < 60
        db.close()
    else:
        assert path.read_bytes() == before


def test_oh_my_pi_knows_the_session_of_a_prompt(store: Store, tmp_path: Path) -> None:
    an_agents_database(tmp_path / "history.db", OMP_TABLE, ("one", 100, "/a", "s1"), ("two", 200, "/a", None)).close()
    import_history(store, tmp_path / "history.db")
    assert texts(store.history.get_recent(session_id="s1")) == ["one"]


def test_what_is_no_history_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError):
        import_history(store, tmp_path / "none.db")
    with pytest.raises(NotADatabaseError):
        import_history(store, write(tmp_path / "text.db", b"no database at all, but longer than a page's head" * 20))
    an_agents_database(tmp_path / "other.db", "CREATE TABLE history (prompt, created_at, cwd, x)").close()
    with pytest.raises(NotADatabaseError, match="no table history"):
        import_history(store, tmp_path / "other.db")
    assert store.history.get_recent() == []


def test_a_value_of_another_kind_is_skipped_and_counted(store: Store, tmp_path: Path) -> None:
    rows = [("fine", 100, "/a"), (7, 100, "/a"), (b"bytes", 100, "/a"), ("timeless", "never", "/a"), ("odd cwd", 5, 9)]
    table = XCSH_TABLE.replace("TEXT", "ANY").replace("INTEGER NOT NULL", "ANY")
    an_agents_database(tmp_path / "h.db", table, *rows).close()
    report = import_history(store, tmp_path / "h.db")
    assert (report.added, report.skipped) == (2, 3)
    assert store.history.search("odd")[0].cwd is None


def test_the_prompts_of_sessions_are_taken_in(store: Store, tmp_path: Path) -> None:
    clock = Counted()
    manager = SessionManager.create("/proj", store=store, dialect="pi", clock=clock.clock)
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    for content in ("first", [{"type": "text", "text": "second"}, image], [image], "first"):
        manager.append_message({"role": "user", "content": content})
        clock.tick()
    manager.append_message(assistant("no prompt"))
    lines = entry(1, None, "third"), entry(2, 1, "timeless", timestamp=None)
    path = write(tmp_path / "s.jsonl", header("s", cwd="/w"), *lines)
    store.import_paths([path])
    report = backfill_history(store)
    assert (report.added, report.known, report.skipped) == (4, 0, 2)
    found = [(p.prompt, p.cwd, p.session_id) for p in store.history.get_recent()]
    own = manager.get_session_id()
    assert sorted(found) == sorted(
        [("first", "/proj", own), ("second", "/proj", own), ("first", "/proj", own), ("third", "/w", "s")]
    )
    assert backfill_history(store).added == 0
    manager.append_message(user("fifth"))
    assert backfill_history(store).added == 1


def test_a_history_out_of_step_with_its_index_is_found(store: Store) -> None:
    remember(store, "one", "two")
    store.connection.execute("INSERT INTO history_fts (history_fts, rowid, prompt) VALUES ('delete', 1, 'one')")
    assert store.check() != []
    store.reindex()
    assert store.check() == []


# -- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONDB_DB", str(tmp_path / "s.db"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*words: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    run("history", "add", "fix the cart", "--cwd", "/srv/shop", "--session", "s1")
    run("history", "add", "write tests")
    an_agents_database(tmp_path / "h.db", XCSH_TABLE, ("old prompt", 1_000_000_000, "/a\x1b[1m")).close()
    assert json.loads(run("history", "import", tmp_path / "h.db", "--json").stdout)["added"] == 1
    shown = run("history").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["id", "2", "1", "3"]
    assert re.split(" {2,}", shown[3].strip()) == ["3", "2001-09-09 01:46", "old prompt", r"/a\x1b[1m"]
    assert "1 prompt" not in run("history", "search", "ca", "fi").stdout
    document = json.loads(run("history", "search", "ca", "fi", "--json").stdout)
    assert (document["prompts"][0]["prompt"], document["prompts"][0]["session_id"]) == ("fix the cart", "s1")
    assert document["cut"] is False
    assert len(run("history", "--ndjson", "--cwd", "/srv/shop").stdout.splitlines()) == 1
    assert "there are more" in run("history", "--limit", "1").stderr
    assert "no prompt" in run("history", "search", "nothing").stderr
    assert "1 prompt forgotten" in run("history", "forget", "3").stderr
    assert "0 prompts" in run("history", "forget", "3", code=1).stderr
    run("history", "forget", "write tests")
    assert len(json.loads(run("history", "--json").stdout)["prompts"]) == 1
    run("history", "import", tmp_path / "none.db", code=1)
    run("history", "nonsense", code=2)
    assert json.loads(run("history", "backfill", "--json").stdout)["added"] == 0
