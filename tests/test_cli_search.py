"""The command line finds what was said, shows it to people and to programs, and reads on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sessiondb import Store
from sessiondb.cli import program
from sessiondb.cli.printable import columns_of, printable
from tests.support import dump, entry, header, write


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SESSIONDB_DB", str(tmp_path / "s.db"))
    monkeypatch.setenv("TZ", "UTC")
    said = [entry(n, n - 1 or None, f"line {n} of the heron talk", second=n) for n in range(1, 31)]
    write(tmp_path / "in/a.jsonl", header("told", cwd="/srv/shop", title="All about birds"), *said)
    answer = entry(1, None, "the wrong-book is a heron, too", role="assistant", second=40)
    write(tmp_path / "in/b.jsonl", header("other", cwd="/srv/zoo"), answer)

    def call(*words: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    call("import", "--dialect", "xcsh", tmp_path / "in")
    yield call
    with Store.open(tmp_path / "s.db") as store:
        assert store.check() == []


def test_a_hit_is_two_lines_where_and_what(run: Any) -> None:
    shown = run("search", "wrong-book")
    assert shown.stdout == (
        "Jan 01 00:00  other 00000001  assistant  /srv/zoo\n  the **wrong-book** is a heron, too\n"
    )
    shown = run("search", "line", "7")
    assert shown.stdout == (
        "Jan 01 00:00  told 00000007  user  /srv/shop  All about birds\n  **line** **7** of the heron talk\n"
    )
    assert run("search", "birds").stdout.startswith("Jan 01 00:00  told  session  /srv/shop  All about birds\n")


def test_what_is_left_is_said(run: Any) -> None:
    shown = run("search", "heron")
    assert len(shown.stdout.splitlines()) == 40
    assert "20 of 31 hits, from number 1" in shown.stderr
    shown = run("search", "heron", "--offset", "30", "--newest")
    assert len(shown.stdout.splitlines()) == 2
    assert "1 of 31 hits, from number 31" in shown.stderr
    assert "no hit" in run("search", "walrus").stderr
    assert "there is no word in the query" in run("search", "*** :: '").stderr


def test_json_for_programs_and_no_more_of_it_than_asked_for(run: Any) -> None:
    document = json.loads(run("search", "heron", "--json", "--limit", "3").stdout)
    assert (document["query"], document["total"], document["cut"], document["reason"]) == ("heron", 31, True, None)
    assert len(document["hits"]) == 3
    for hit in document["hits"]:
        assert [hit["snippet"][begin:end] for begin, end in hit["marks"]] == ["heron"]
    lines = run("search", "heron", "--ndjson", "--limit", "31").stdout.splitlines()
    assert len(lines) == 31
    bounded = json.loads(run("search", "heron", "--json", "--max-chars", "1000").stdout)
    assert 0 < len(bounded["hits"]) < 5
    assert sum(len(dump(hit)) - 1 for hit in bounded["hits"]) <= 1_000
    assert json.loads(run("search", "heron", "--json", "--max-chars", "0").stdout)["hits"] == []


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (("--role", "assistant"), 1), (("--cwd", "/srv/zoo"), 1), (("--session", "told"), 30), (("--in", "call"), 0),
        (("--in", "text", "--in", "name"), 31), (("--since", "2026-01-01T00:00:30Z"), 2),
        (("--until", "2026-01-01T00:00:05Z"), 4), (("--tool", "bash"), 0), (("--model", "x"), 0),
    ],
)  # fmt: skip
def test_options_narrow_the_search(run: Any, args: tuple[str, ...], count: int) -> None:
    assert json.loads(run("search", "heron", "--json", *args).stdout)["total"] == count


def test_asked_wrongly_is_exit_code_2(run: Any) -> None:
    assert "syntax error" in run("search", "--fts", "heron AND", code=2).stderr
    assert "words" in run("search", "--in", "words", "x", code=2).stderr
    run("search", code=2)
    run("search", "x", "--session", "nobody", code=1)
    assert json.loads(run("search", "--fts", "heron NOT line", "--json").stdout)["total"] == 1


def test_show_reads_on_around_a_hit(run: Any) -> None:
    shown = run("show", "told", "--around", "00000012", "--limit", "5")
    numbers = [line.split()[1] for line in shown.stdout.splitlines() if "of the heron talk" in line]
    assert numbers == ["00000010", "00000011", "00000012", "00000013", "00000014"]
    assert [line.split()[1] for line in shown.stdout.splitlines() if "←" in line] == ["00000012"]
    document = json.loads(run("show", "told", "--around", "00000001", "--json").stdout)
    assert [item["entry"]["id"] for item in document["entries"]] == [f"{n:08x}" for n in range(1, 12)]
    last = json.loads(run("show", "told", "--around", "0000001e", "--json").stdout)["entries"]
    assert (len(last), last[-1]["entry"]["id"]) == (11, "0000001e")
    assert "not found" in run("show", "told", "--around", "nope", code=1).stderr
    run("show", "told", "00000001", "--around", "00000001", code=2)
    run("show", "told", "--faults", "--around", "00000001", code=2)


def test_reindex_says_what_it_did(run: Any) -> None:
    assert run("reindex").stdout == "2 sessions derived again from the lines\n"
    assert json.loads(run("reindex", "told", "--json").stdout)["sessions"] == 1
    run("reindex", "nobody", code=1)
    assert json.loads(run("search", "heron", "--json").stdout)["total"] == 31


def test_hits_keep_to_the_width_and_cannot_steer_a_terminal(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b[2J\u202e evil \x07 中文字 " * 20
    write(tmp_path / "in/c.jsonl", header("c\x1b[1m", cwd="/\x1b[3m", title=hostile), entry(1, None, hostile))
    run("import", tmp_path / "in")
    monkeypatch.setenv("COLUMNS", "80")
    for query in ("evil", "中文", "heron"):
        shown = run("search", query)
        for line in shown.stdout.splitlines():
            assert line == printable(line)
            assert columns_of(line.replace("**", "")) <= 80
