"""The promise: the command line says what is so, where it belongs, with the right exit code, and harms no terminal."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from sessiondb.cli import program
from sessiondb.cli.printable import columns_of, printable
from sessiondb.store import Store

PROGRAM = [sys.executable, "-c", "from sessiondb.cli import main; main()"]
Row = dict[str, Any]
Run = Callable[..., Result]


def _header(session_id: str, cwd: str = "/home/dev/shop", **more: Any) -> Row:
    stamp = "2025-03-14T09:00:00.000Z"
    return {"type": "session", "version": 3, "id": session_id, "timestamp": stamp, "cwd": cwd, **more}


def _said(entry_id: str, parent: str | None, text: Any, minute: int = 1, role: str = "user") -> Row:
    message = {"role": role, "content": text}
    stamp = f"2025-03-14T09:{minute % 60:02d}:00.000Z"
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": stamp, "message": message}


def _write(path: str | bytes | Path, *rows: Row | bytes) -> bytes:
    content = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    with open(path, "wb") as file:
        file.write(content)
    return content


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: building the tables takes longer than most tests."""
    path = tmp_path_factory.mktemp("empty") / "sessions.db"
    Store.open(path).close()
    return path


@pytest.fixture
def database(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("COLUMNS", "SESSIONDB_DB", "NO_COLOR", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    path = tmp_path / "sessions.db"
    shutil.copy(empty_database, path)
    monkeypatch.setenv("SESSIONDB_DB", str(path))
    yield path
    if path.exists() and path.read_bytes()[:6] == b"SQLite":
        with Store.open(path) as store:
            assert store.check() == []


@pytest.fixture
def run(database: Path) -> Run:
    def run(*args: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(arg) for arg in args])
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sessions; by activity `charlie`, `bravo`, `alpha`."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    _write(folder / "alpha.jsonl", _header("alpha"), _said("a1", None, "Fix the parser", 1))
    _write(folder / "bravo.jsonl", _header("bravo", "/srv/poems"), _said("b1", None, "Write a poem", 2))
    _write(folder / "charlie.jsonl", _header("charlie"), _said("c1", None, "Parse dates", 3))
    return folder


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    path = tmp_path / "branching.jsonl"
    _write(
        path,
        _header("branching"),
        _said("aaaa0001", None, "Make a plan", 1),
        _said("aaaa0002", "aaaa0001", [{"type": "text", "text": "Here it is"}], 2, "assistant"),
        _said("aaaa0003", "aaaa0002", "Try the left way", 3),
        _said("aaaa0004", "aaaa0003", "Left it is", 4, "assistant"),
        _said("aaaa0005", "aaaa0002", "Try the right way", 5),
        _said("aaaa0006", "aaaa0005", "first\nanswer", 6, "assistant"),
        _said("aaaa0007", "aaaa0005", "second answer", 7, "assistant"),
        {"type": "label", "id": "aaaa0008", "parentId": "aaaa0007", "timestamp": "2025-03-14T09:08:00.000Z",
         "targetId": "aaaa0003", "label": "detour"},
    )  # fmt: skip
    return path


# --- asking -------------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_each_has_its_own_help(run: Run) -> None:
    commands = ("import", "export", "verify", "ls", "show", "tree", "context", "sql", "check")
    listed = run("--help").stdout
    assert all(re.search(rf"^  {name} ", listed, re.MULTILINE) for name in commands)
    for name in commands:
        text = run(name, "--help").stdout
        assert "--db" in text
        assert "--json" in text


def test_version_is_printed(run: Run) -> None:
    assert re.fullmatch(r"sessiondb \d+\.\d+.*\n", run("--version").stdout)


@pytest.mark.parametrize(
    "args", [("--db", "X", "--json", "ls"), ("ls", "--db", "X", "--json"), ("--json", "ls", "--db", "X")]
)
def test_db_and_json_stand_before_or_after_the_command(
    run: Run, folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:  # fmt: skip
    run("import", folder)
    monkeypatch.setenv("SESSIONDB_DB", "/nowhere/else.db")
    result = run(*(str(database) if arg == "X" else arg for arg in args))
    assert json.loads(result.stdout)["total"] == 3
    assert result.stderr == ""


WRONG = [
    ("nosuchcommand",), ("ls", "--nosuchoption"), ("ls", "--since", "yesterday"), ("ls", "--until", "2025-02-31"),
    ("ls", "--limit", "0"), ("ls", "--query", "\udcff"), ("export",), ("export", "--all"), ("export", "--to", "x"),
    ("export", "alpha", "--all", "--to", "x"), ("export", "alpha", "--json"), ("export", "alpha", "--form", "raw"),
    ("verify", "--print0"), ("show",), ("show", "alpha", "a1", "--faults"), ("sql",), ("sql", "--schema", "select 1"),
    ("sql", "selec 1"), ("sql", "select * from nosuchtable"), ("sql", "delete from session"), ("sql", "select ?"),
    ("sql", "--csv", "--json", "select 1"), ("import", "--dialect", "klingon"), ("import", "~nosuchuser/x"),
]  # fmt: skip


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_asked_wrongly_is_exit_code_2_with_a_message(run: Run, args: tuple[str, ...]) -> None:
    result = run(*args, code=2)
    assert "error:" in result.stderr.lower()
    assert result.stdout == ""


@pytest.mark.parametrize(
    "args", [("show", "nope"), ("tree", "nope"), ("export", "nope"), ("verify", "nope"), ("show", "alpha", "zzz")]
)
def test_an_unknown_session_or_entry_is_exit_code_1(run: Run, folder: Path, args: tuple[str, ...]) -> None:
    run("import", folder)
    result = run(*args, code=1)
    assert "error: " in result.stderr
    assert result.stdout == ""


def test_an_ambiguous_ref_lists_the_candidates(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        _write(tmp_path / f"{name}.jsonl", _header("same"), _said("a1", None, name))
        run("import", tmp_path / f"{name}.jsonl")
    error = run("show", "same", code=1).stderr
    assert "one.jsonl" in error
    assert "two.jsonl" in error
    assert run("show", tmp_path / "one.jsonl").stdout.startswith("id ")


@pytest.mark.parametrize(
    "command", [("ls",), ("show", "x"), ("verify",), ("sql", "select 1"), ("check",), ("ls", "--fresh")]
)
def test_reading_a_missing_database_is_an_error_and_makes_nothing(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = run("--db", tmp_path / "missing" / "x.db", *command, code=1)
    assert "does not exist" in result.stderr
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("command", [("ls",), ("import", "x")])
def test_a_file_that_is_no_database_is_damage_and_stays(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database at all" * 100)
    assert "error: " in run("--db", other, *command, code=4).stderr
    assert other.read_bytes() == b"not a database at all" * 100


def test_a_busy_database_is_exit_code_3(
    run: Run, folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = Store.open

    def impatient(path: Path, *, read_only: bool = False) -> Store:
        return patient(path, read_only=read_only, timeout=0.05)

    monkeypatch.setattr(Store, "open", impatient)
    holder = apsw.Connection(str(database))
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert "try again" in run("import", folder, code=3).stderr
        assert json.loads(run("ls", "--json").stdout)["total"] == 0  # readers do not wait for the writer
    finally:
        holder.close()


# --- import -------------------------------------------------------------------------------------------------------


def test_import_counts_and_a_second_one_changes_nothing(run: Run, folder: Path, database: Path) -> None:
    first = run("import", folder).stdout
    assert re.search(r"^imported +3 ", first, re.MULTILINE)
    assert f"database {database}" in first
    second = json.loads(run("import", folder, "--json").stdout)
    assert (second["imported"], second["updated"], second["unchanged"]) == (0, 0, 3)
    assert second["database"] == str(database)


def test_import_names_what_it_leaves_out(run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "empty.jsonl").touch()
    (folder / "notes.txt").write_text("x")
    (folder / ".alpha.jsonl.123.tmp").write_text("x")
    report = run("import", folder, tmp_path / "missing.jsonl", code=1).stdout
    assert "empty.jsonl: empty" in report
    assert "missing.jsonl: no such file" in report
    assert ".alpha.jsonl.123.tmp" in report
    assert "name one to import it" in report
    assert "1 .txt" in report


def test_damaged_lines_are_listed_and_only_strict_fails_for_them(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    _write(path, _header("torn"), _said("a1", None, "x"), b'{"type":"mess')
    assert f"{path}:3 malformed: " in run("import", path).stdout
    _write(path, _header("torn2"), _said("a1", None, "x"), b'{"type":"mess')
    assert json.loads(run("import", path, "--strict", "--json", code=1).stdout)["fault_count"] == 1


def test_many_damaged_lines_are_grouped_and_show_lists_them_all(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    _write(path, _header("bad"), *[b"{broken"] * 30)
    report = run("import", path).stdout
    assert "malformed: 30 lines in 1 file" in report
    assert report.count(f"{path}:") == 1
    assert "--faults" in report
    faults = json.loads(run("show", "bad", "--faults", "--json").stdout)["faults"]
    assert [fault["line"] for fault in faults] == list(range(2, 32))
    assert len(run("show", "bad", "--faults").stdout.splitlines()) == 31


def test_dry_run_reports_and_writes_nothing(run: Run, folder: Path, database: Path, tmp_path: Path) -> None:
    before = database.read_bytes()
    report = run("import", folder, "--dry-run").stdout
    assert re.search(r"^imported +3 ", report, re.MULTILINE)
    assert "nothing was written" in report
    assert database.read_bytes() == before
    missing = tmp_path / "new" / "x.db"
    assert f"database {missing}" in run("import", folder, "--dry-run", "--db", missing).stdout
    assert not missing.parent.exists()


def test_without_paths_the_agents_folders_are_imported(run: Run, folder: Path, tmp_path: Path) -> None:
    error = run("import", code=1).stderr
    assert "~/.pi/agent/sessions" in error
    shutil.copytree(folder, tmp_path / "home/.pi/agent/sessions/--shop--")
    result = run("import", "--json")
    assert json.loads(result.stdout)["imported"] == 3
    assert ".pi/agent/sessions" in result.stderr


def test_dialect_and_id_of_an_import_can_be_given(run: Run, tmp_path: Path) -> None:
    _write(tmp_path / "x.jsonl", _said("a1", None, "no header"))
    run("import", tmp_path / "x.jsonl", "--id", "chosen", "--dialect", "omp")
    assert "omp (given)" in run("show", "chosen").stdout


def test_missing_blobs_are_named_by_session(run: Run, tmp_path: Path) -> None:
    references = [{"type": "image", "data": f"blob:sha256:{digit * 64}"} for digit in "abc"]
    _write(tmp_path / "x.jsonl", _header("x"), _said("a1", None, references))
    report = run("import", tmp_path / "x.jsonl").stdout
    assert re.search(rf"x\.jsonl: blob {'a' * 64}.*and 2 more", report)
    assert run("verify", "--deletable").stdout == ""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_import_leaves_a_sound_database_and_the_next_finishes(run: Run, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    filler = b"".join(json.dumps(_said(f"e{n:05}", None, "x" * 900)).encode() + b"\n" for n in range(500))
    for number in range(80):
        (big / f"{number}.jsonl").write_bytes(json.dumps(_header(f"s{number}")).encode() + b"\n" + filler)
    database = tmp_path / "interrupted.db"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit it ignored
    importing = subprocess.Popen([*PROGRAM, "import", "--db", database, big], stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    while importing.poll() is None and not (database.exists() and database.stat().st_size > 50_000):
        time.sleep(0.002)
    importing.send_signal(signal.SIGINT)
    _, error = importing.communicate(timeout=20)
    assert importing.returncode == 130, error
    assert b"interrupted" in error
    assert b"Traceback" not in error
    run("import", "--db", database, big)
    assert json.loads(run("verify", "--db", database, "--json").stdout)["counts"] == {"equal": 80}
    assert run("check", "--db", database).stdout == ""


# --- export and verify ----------------------------------------------------------------------------------------------


def test_export_gives_the_bytes_back(run: Run, folder: Path, tmp_path: Path) -> None:
    original = (folder / "alpha.jsonl").read_bytes()
    run("import", folder)
    assert run("export", "alpha").stdout_bytes == original
    out = tmp_path / "out" / "a.jsonl"
    result = run("export", "alpha", "-o", out, "--form", "original")
    assert (out.read_bytes(), result.stdout) == (original, "")
    assert str(out) in result.stderr
    assert "exists" in run("export", "alpha", "-o", out, code=1).stderr
    report = json.loads(run("export", "alpha", "-o", out, "--force", "--json").stdout)
    assert (report["path"], report["bytes_written"]) == (str(out), len(original))


def test_export_all_makes_a_folder_and_refuses_what_is_there(run: Run, folder: Path, tmp_path: Path) -> None:
    run("import", folder)
    out = tmp_path / "out"
    assert "3 files" in run("export", "--all", "--to", out).stderr
    written = sorted(file.read_bytes() for file in out.rglob("*.jsonl"))
    assert written == sorted(file.read_bytes() for file in folder.iterdir())
    report = json.loads(run("export", "--all", "--to", out, "--json", code=1).stdout)
    assert (report["files"], len(report["refused"])) == (0, 3)
    run("export", "--all", "--to", out, "--force")


def test_export_lists_renamed_files_and_superseded_sessions_left_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    _write(path, _header("same"), _said("a1", None, "one"))
    run("import", path)
    _write(path, _header("same"), _said("a1", None, "other"))
    run("import", path)
    said = run("export", "--all", "--to", tmp_path / "out").stderr
    assert "1 superseded" in said
    assert "renamed: " in run("export", "--all", "--to", tmp_path / "out2", "--superseded").stderr


def test_verify_tells_equal_grown_changed_and_gone(run: Run, folder: Path) -> None:
    _write(folder / "delta.jsonl", _header("delta"), _said("d1", None, "x"))
    run("import", folder)
    assert re.search(r"^equal +4 ", run("verify").stdout, re.MULTILINE)
    with (folder / "alpha.jsonl").open("ab") as file:
        file.write(b'{"type":"custom"}\n' * 2)
    _write(folder / "bravo.jsonl", _header("bravo", "/srv/poems"), _said("b1", None, "Write a novel", 2))
    (folder / "delta.jsonl").unlink()
    report = run("verify", code=1).stdout
    assert re.search(r"^grown +.*alpha\.jsonl: 2 more lines", report, re.MULTILINE)
    assert re.search(r"^changed +.*bravo\.jsonl: line 2 is different", report, re.MULTILINE)
    assert re.search(r"^gone +.*delta\.jsonl", report, re.MULTILINE)
    document = json.loads(run("verify", "--json", code=1).stdout)
    assert document["counts"] == {"equal": 1, "grown": 1, "changed": 1, "gone": 1}
    run("verify", "charlie", "delta")
    run("verify", "charlie", "alpha", code=1)


def test_verify_names_the_sessions_that_no_file_stands_for(run: Run, folder: Path) -> None:
    run("import", folder)
    _write(folder / "alpha.jsonl", _header("alpha"), _said("a1", None, "Another text", 1))
    run("import", folder)
    assert "alpha: its file holds another session now" in run("verify").stdout


def test_verify_deletable_lists_paths_and_nothing_else(run: Run, folder: Path) -> None:
    run("import", folder)
    (folder / "bravo.jsonl").write_text("{}")
    expected = [str(folder / "alpha.jsonl"), str(folder / "charlie.jsonl")]
    assert sorted(run("verify", "--deletable").stdout.splitlines()) == expected
    raw = run("verify", "--deletable", "--print0").stdout_bytes
    assert sorted(raw.split(b"\0")) == [b"", *map(os.fsencode, expected)]
    verdicts = json.loads(run("verify", "--deletable", "--json").stdout)["verdicts"]
    assert sorted(verdict["path"] for verdict in verdicts) == expected


def test_verify_of_damaged_bytes_is_exit_code_4(run: Run, folder: Path, database: Path) -> None:
    run("import", folder)
    db = apsw.Connection(str(database))
    digest = db.execute("SELECT digest FROM session WHERE id = 'alpha'").get
    db.execute("UPDATE session SET digest = zeroblob(32) WHERE id = 'alpha'")
    assert re.search(r"^damaged +.*alpha", run("verify", code=4).stdout, re.MULTILINE)
    db.execute("UPDATE session SET digest = ? WHERE id = 'alpha'", (digest,))
    db.close()


def test_check_lists_problems_with_exit_code_4(run: Run, folder: Path, database: Path) -> None:
    run("import", folder)
    assert run("check").stdout == ""
    db = apsw.Connection(str(database))
    db.execute("UPDATE session SET title = 'not from the lines' WHERE id = 'alpha'")
    assert run("check", code=4).stdout != ""
    assert json.loads(run("check", "--json", code=4).stdout)["problems"]
    db.execute("UPDATE session SET title = NULL WHERE id = 'alpha'")
    db.close()


# --- ls -------------------------------------------------------------------------------------------------------------


def _ids(result: Result) -> list[str]:
    return [info["id"] for info in json.loads(result.stdout)["sessions"]]


def test_ls_puts_the_newest_activity_first_whatever_the_files_times(run: Run, folder: Path) -> None:
    os.utime(folder / "alpha.jsonl", (2e9, 2e9))
    run("import", folder)
    assert _ids(run("ls", "--json")) == ["charlie", "bravo", "alpha"]
    lines = run("ls").stdout.splitlines()
    assert lines[0].split() == ["when", "id", "msgs", "title", "or", "first", "message", "cwd"]
    assert lines[1].split() == ["2025-03-14", "09:03", "charlie", "1", "Parse", "dates", "/home/dev/shop"]


@pytest.mark.parametrize(
    ("args", "ids"),
    [
        (("--cwd", "/srv/poems"), ["bravo"]),
        (("--cwd", "/srv/../srv/poems/"), ["bravo"]),
        (("--query", "PARSE"), ["charlie", "alpha"]),
        (("--query", "nothing like it"), []),
        (("--since", "2025-03-14T09:02"), ["charlie", "bravo"]),
        (("--since", "2025-03-14T10:02+01:00"), ["charlie", "bravo"]),
        (("--until", "2025-03-14T09:02Z"), ["alpha"]),
        (("--since", "2025-03-14"), ["charlie", "bravo", "alpha"]),
        (("--until", "2025-03-14"), []),
        (("--limit", "1"), ["charlie"]),
        (("--limit", "1", "--offset", "1"), ["bravo"]),
        (("--offset", "2"), ["alpha"]),
    ],
)
def test_ls_filters_and_pages(run: Run, folder: Path, args: tuple[str, ...], ids: list[str]) -> None:
    run("import", folder)
    assert _ids(run("ls", "--json", *args)) == ids
    ndjson = run("ls", "--ndjson", *args).stdout.splitlines()
    assert [json.loads(line)["id"] for line in ndjson] == ids


def test_ls_says_how_many_more_there_are_and_how_old_the_data_is(run: Run, folder: Path, database: Path) -> None:
    run("import", folder)
    said = run("ls", "--limit", "1").stderr
    assert "1 of 3 sessions" in said
    assert "--fresh looks again" in said
    assert str(database) in said
    document = json.loads(run("ls", "--json", "--limit", "1").stdout)
    assert document.keys() >= {"sessions", "total", "as_of"}
    assert (document["total"], document["as_of"][:2]) == (3, "20")


def test_ls_fresh_takes_in_what_came_meanwhile(run: Run, folder: Path) -> None:
    run("import", folder)
    _write(folder / "new.jsonl", _header("new"), _said("n1", None, "hello", 50))
    assert "new" not in _ids(run("ls", "--json"))
    result = run("ls", "--fresh")
    assert "new" in result.stdout
    assert "1 new" in result.stderr


def test_ls_shows_enough_of_each_id_to_name_it(run: Run, tmp_path: Path) -> None:
    ids = ("0195aaaa-1111-7000", "0195aaaa-1222-7000", "0bbbbbbb-1111-7000")
    for session_id in ids:
        _write(tmp_path / f"{session_id}.jsonl", _header(session_id), _said("a", None, session_id))
    run("import", *(tmp_path / f"{session_id}.jsonl" for session_id in ids))
    shown = {line.split()[2] for line in run("ls").stdout.splitlines()[1:]}
    assert shown == {"0195aaaa-11", "0195aaaa-12", "0bbbbbbb"}
    for short in shown:
        run("show", short)


def test_superseded_sessions_are_listed_only_when_asked_for(run: Run, folder: Path) -> None:
    run("import", folder)
    _write(folder / "alpha.jsonl", _header("alpha"), _said("a1", None, "Another text", 1))
    assert "replaced" in run("import", folder).stdout
    assert len(_ids(run("ls", "--json"))) == 3
    assert len(_ids(run("ls", "--json", "--superseded"))) == 4
    assert "(superseded) Fix the parser" in run("ls", "--superseded").stdout
    assert re.search(r"^replaces +alpha", run("show", folder / "alpha.jsonl").stdout, re.MULTILINE)


# --- show and tree --------------------------------------------------------------------------------------------------


def test_show_has_a_head_and_the_entries(run: Run, branching: Path) -> None:
    run("import", branching)
    text = run("show", "branching").stdout
    assert re.search(r"^dialect +pi \(default\), version 3$", text, re.MULTILINE)
    assert re.search(r"^created +2025-03-14 09:00$", text, re.MULTILINE)
    assert f"path      {branching}\n" in text
    assert re.search(r"^ +7  aaaa0006  assistant  2025-03-14 09:06  first answer$", text, re.MULTILINE)
    page = run("show", "branching", "--limit", "2", "--offset", "1")
    assert "2 of 8 entries" in page.stderr
    assert re.findall(r"aaaa000\d", page.stdout) == ["aaaa0002", "aaaa0003"]


def test_show_json_holds_session_header_and_entries_with_their_lines(run: Run, branching: Path) -> None:
    run("import", branching)
    document = json.loads(run("show", "branching", "--json", "--limit", "2").stdout)
    assert document.keys() == {"session", "header", "entries", "total", "faults", "later_branch", "as_of"}
    assert document["header"]["cwd"] == "/home/dev/shop"
    assert [item["line"] for item in document["entries"]] == [2, 3]
    assert document["total"] == 8
    lines = run("show", "branching", "--ndjson").stdout.splitlines()
    assert [json.loads(line)["entry"]["id"][-1] for line in lines] == list("12345678")


def test_show_counts_lines_as_the_file_does_when_entries_are_glued(run: Run, tmp_path: Path) -> None:
    glued = json.dumps(_said("a1", None, "x")).encode() + json.dumps(_said("a2", "a1", "y")).encode()
    _write(tmp_path / "x.jsonl", _header("x"), glued, b"", _said("a3", "a2", "z"))
    run("import", tmp_path / "x.jsonl")
    entries = json.loads(run("show", "x", "--json").stdout)["entries"]
    assert [(item["line"], item["entry"]["id"]) for item in entries] == [(2, "a1"), (2, "a2"), (4, "a3")]


def test_show_entry_gives_exactly_the_stored_bytes(run: Run, tmp_path: Path) -> None:
    raw = b'{ "type":"message","id":"odd",  "parentId":null,"x":1.0,"y":"\\u2014\\ud800","y":2e3 }'
    _write(tmp_path / "x.jsonl", _header("x"), raw + b"\r")
    run("import", tmp_path / "x.jsonl")
    assert run("show", "x", "odd").stdout_bytes == raw + b"\n"


def test_tree_draws_branches_labels_and_the_leaf(run: Run, branching: Path) -> None:
    run("import", branching)
    assert run("tree", "branching").stdout == (
        "aaaa0001 2025-03-14 09:01 user Make a plan\n"
        "aaaa0002 2025-03-14 09:02 assistant Here it is\n"
        "├─ aaaa0003 2025-03-14 09:03 user [detour] Try the left way\n"
        "│  aaaa0004 2025-03-14 09:04 assistant Left it is\n"
        "└─ aaaa0005 2025-03-14 09:05 user Try the right way\n"
        "   ├─ aaaa0006 2025-03-14 09:06 assistant first answer\n"
        "   └─ aaaa0007 2025-03-14 09:07 assistant second answer\n"
        "      aaaa0008 2025-03-14 09:08 label [detour] on aaaa0003 ← leaf\n"
    )


def test_tree_json_is_a_flat_list_in_drawing_order(run: Run, branching: Path) -> None:
    run("import", branching)
    document = json.loads(run("tree", "branching", "--json").stdout)
    nodes = document["nodes"]
    assert (document["session"], document["leaf"]) == ("branching", "aaaa0008")
    assert [node["depth"] for node in nodes] == [0, 1, 2, 3, 2, 3, 3, 4]
    assert [node["parentId"] for node in nodes[:3]] == [None, "aaaa0001", "aaaa0002"]
    assert nodes[2]["label"] == "detour"
    assert "label" not in nodes[0]
    assert nodes[0]["entry"]["message"]["content"] == "Make a plan"


def test_tree_of_a_deep_chain_stays_in_one_column(run: Run, tmp_path: Path) -> None:
    depth = 20_000
    chain = (_said(f"e{n}", f"e{n - 1}" if n else None, "x") for n in range(depth))
    _write(tmp_path / "deep.jsonl", _header("deep"), *chain)
    run("import", tmp_path / "deep.jsonl")
    lines = run("tree", "deep").stdout.splitlines()
    assert len(lines) == depth
    assert all(line.startswith("e") for line in lines)
    assert json.loads(run("tree", "deep", "--json").stdout)["nodes"][-1]["depth"] == depth - 1


def test_tree_with_many_levels_of_branches_keeps_room_for_text(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [_said("e0", None, "start")]
    for n in range(1, 60):
        rows += [_said(f"e{n}", f"e{n - 1}", "go on " * 9), _said(f"s{n}", f"e{n - 1}", "side way", 2)]
    _write(tmp_path / "comb.jsonl", _header("comb"), *rows)
    run("import", tmp_path / "comb.jsonl")
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("tree", "comb").stdout.splitlines()
    assert max(map(columns_of, lines)) <= 80
    assert any(line.startswith("… ") for line in lines)


# --- sql ------------------------------------------------------------------------------------------------------------


def test_sql_prints_a_table_json_ndjson_or_csv(run: Run, folder: Path) -> None:
    run("import", folder)
    query = "select id, message_count as n from sessions where id < ? order by id"
    assert run("sql", query, "b").stdout == "id     n\nalpha  1\n"
    assert json.loads(run("sql", query, "c", "--json").stdout) == [{"id": "alpha", "n": 1}, {"id": "bravo", "n": 1}]
    lines = run("sql", query, "c", "--ndjson").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["alpha", "bravo"]
    assert list(csv.reader(io.StringIO(run("sql", query, "b", "--csv").stdout))) == [["id", "n"], ["alpha", "1"]]
    assert json.loads(run("sql", "--json", "select 1 where 0").stdout) == []


def test_sql_parameters_that_look_like_numbers_are_numbers(run: Run, folder: Path) -> None:
    run("import", folder)
    query = "select count(*) n from sessions having n > ?"
    assert run("sql", query, "2").stdout == "n\n3\n"
    types = run("sql", "--json", "select typeof(?) a, typeof(?) b, typeof(?) c", "7", "007", "1.5").stdout
    assert json.loads(types) == [{"a": "integer", "b": "text", "c": "real"}]


def test_sql_values_that_json_lacks_are_written_as_text(run: Run) -> None:
    rows = json.loads(run("sql", "--json", "select x'ff00' a, 9007199254740993 b, 9e999 c, null d, x'c3a9' e").stdout)
    assert rows == [{"a": "x'ff00'", "b": "9007199254740993", "c": None, "d": None, "e": "é"}]


def test_sql_schema_lists_views_and_columns_that_exist(run: Run) -> None:
    views = json.loads(run("sql", "--schema", "--json").stdout)
    assert {"sessions", "entries", "faults", "sources"} <= views.keys()
    for name, columns in views.items():
        run("sql", f"select {', '.join(columns)} from {name}")
    assert "sessions(pk, id, " in run("sql", "--schema").stdout


# --- what a terminal gets -------------------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07 evil\r\nline\u202etxet\u2066 \x9b31m \x7f\x00"


def test_hostile_text_is_printed_harmless_everywhere(run: Run, tmp_path: Path) -> None:
    session_id, entry_id = "id\x1b[31m", "e\x1b[32m"
    label = {"type": "label", "id": "l1", "parentId": entry_id, "targetId": entry_id, "label": HOSTILE}
    name = {"type": "session_info", "id": "n1", "parentId": "l1", "name": HOSTILE}
    path = tmp_path / "x\x1b[33m.jsonl"
    _write(path, _header(session_id, cwd="/\x1b[34m"), _said(entry_id, None, HOSTILE), label, name, b"{\x1b[35m")
    outputs = [run(*args) for args in (
        ("import", path), ("ls",), ("show", session_id), ("show", session_id, "--faults"), ("tree", session_id),
        ("verify",), ("sql", "select * from sessions"),
    )]  # fmt: skip
    outputs.append(run("show", session_id, "\x1b[0m", code=1))
    for result in outputs:
        for line in (result.stdout + result.stderr).split("\n"):
            assert line == printable(line)
    assert r"\x1b[2J" in outputs[1].stdout
    assert r"\u202e" in outputs[1].stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 中 👩‍💻", "plain é 中 👩‍💻"),
        ("a\tb\nc\u2028d", "a b c d"),
        ("\x1b[0m\x9b\x7f", r"\x1b[0m\x9b\x7f"),
        ("\u202e\u2066\u200f\u061c", r"\u202e\u2066\u200f\u061c"),
        ("\ud800\udcff", r"\ud800\xff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_printable_spells_out_what_could_steer_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_file_names_that_are_no_utf8_survive(run: Run, database: Path, tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"
    content = _write(raw, _header("latin"), _said("a1", None, "x"))
    path = os.fsdecode(raw)
    assert json.loads(run("import", path, "--json").stdout)["imported"] == 1
    assert r"caf\xe9.jsonl" in run("show", path).stdout
    assert run("export", path).stdout_bytes == content
    assert r"caf\xe9.jsonl" in run("show", "latin").stdout
    run("verify")
    assert run("verify", "--deletable", "--print0").stdout_bytes == raw + b"\0"
    ended = subprocess.run([*PROGRAM, "verify", "--deletable"], capture_output=True, check=True)
    assert ended.stdout == raw + b"\n"


def test_piped_output_has_no_colour_bar_or_limit(run: Run, tmp_path: Path) -> None:
    for number in range(25):
        _write(tmp_path / f"{number}.jsonl", _header(f"s{number}"), _said("a1", None, "word " * 20))
    piped = run("import", tmp_path)
    listed = run("ls")
    assert "\x1b" not in piped.stdout + piped.stderr + listed.stdout + listed.stderr
    assert len(listed.stdout.splitlines()) == 26
    assert "word " * 19 in listed.stdout


def _on_terminal(*args: str, **environment: str) -> str:
    """What the program shows on a terminal of 80 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *args], stdin=its, stdout=its, stderr=its, env=os.environ | {"TERM": "xterm"} | environment
    )
    os.close(its)
    shown = b""
    with suppress(OSError):  # how Linux says that the other side is closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_a_terminal_gets_80_columns_a_page_and_a_bar(run: Run, tmp_path: Path) -> None:
    for number in range(25):
        rows = [_said(f"e{n}", f"e{n - 1}" if n else None, "long words 中文 " * 20) for n in range(9)]
        _write(tmp_path / f"{number}.jsonl", _header(f"{number:08d}-id", "/very/long/folder/" + "x" * 90), *rows)
    shown = _on_terminal("import", str(tmp_path))
    assert "25/25 files" in shown
    for args in (("ls",), ("tree", "00000003"), ("sql", "select id, first_message, cwd from sessions")):
        shown = _on_terminal(*args)
        assert "\x1b[" in shown
        assert "\x1b" not in _on_terminal(*args, NO_COLOR="1")
        for line in re.sub(r"\x1b\[\d*m", "", shown).splitlines():
            assert columns_of(line) <= 80 or "--fresh" in line
    assert "20 of 25 sessions" in _on_terminal("ls")
    shown = _on_terminal("show", "00000003", "--limit", "3")
    assert "3 of 9 entries" in shown


def test_columns_of_the_environment_limit_the_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "x.jsonl", _header("x"), _said("a1", None, "many words " * 30))
    run("import", tmp_path / "x.jsonl")
    monkeypatch.setenv("COLUMNS", "80")
    for command in (("ls",), ("tree", "x"), ("sql", "select first_message, cwd from sessions")):
        assert all(columns_of(line) <= 80 for line in run(*command).stdout.splitlines())


def test_a_closed_pipe_ends_the_program_quietly(run: Run, tmp_path: Path) -> None:
    rows = [_said(f"e{n}", None, "x" * 100) for n in range(3000)]
    _write(tmp_path / "x.jsonl", _header("x"), *rows)
    run("import", tmp_path / "x.jsonl")
    for args in (("show", "x"), ("export", "x"), ("tree", "x", "--json")):
        process = subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        error = process.stderr.read().decode()
        process.stderr.close()
        assert process.wait() in (0, 141)
        assert "rror" not in error


def test_a_full_disk_under_stdout_is_an_error_of_one_line(run: Run, folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    run("import", folder)
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([*PROGRAM, "export", "alpha"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert b"error: " in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_listing_imports_neither_rich_nor_sqlalchemy(run: Run, folder: Path) -> None:
    run("import", folder)
    code = "import sys, sessiondb.cli as c\ntry: c.program(['ls'])\nfinally: print(*sys.modules, file=sys.stderr)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr.decode().split()
    assert not {"rich", "sqlalchemy", "alembic"} & set(modules)
