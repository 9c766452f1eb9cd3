"""Session files in an agent's folders: read, found, listed and resumed, against what pi and xcsh answered."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sessiondb.errors import AmbiguousSessionError, SessionDBWarning, SessionNotFoundError
from sessiondb.jsonl import encode_entry, encode_title_slot, parse_time
from sessiondb.listed_files import list_all_sessions, list_sessions
from sessiondb.memory_storage import MemorySessionStorage
from sessiondb.metadata import DIALECTS, Dialect
from sessiondb.recent_files import find_most_recent_for_cwd, find_most_recent_session, get_recent_sessions
from sessiondb.resume import resolve_session_file
from sessiondb.session_files import load_entries_from_file
from tests.conftest import SHARED
from tests.support import BUGCASES, GOLDEN, dump, entry, header, write

CASES = sorted((GOLDEN / "cases").glob("*.jsonl"))
EXPECTED = SHARED / "reference/cases/expected.json"
CLIENTS = {"pi": "@mariozechner/pi-coding-agent", "xcsh": "@f5-sales-demo/xcsh (harness)"}
RECORDED_MTIME = "2025-01-02T00:00:00.000Z"

FOUND_BY_US = {
    "pi": {"02-blank-lines", "03-bom", "10-null-first", "37-omp-title-slot"},
    "xcsh": {"10-null-first", "37-omp-title-slot"},
}
"""Sessions that the client passes over when it looks for the newest, and that open here."""

LISTED_BY_US = {
    "pi": {"10-null-first", "37-omp-title-slot", "39-null-message"},
    "xcsh": {"10-null-first", "37-omp-title-slot"},
}
"""Sessions that the client leaves out of its list, and that open here."""


# --- what the clients answered


def recorded(case: Path, dialect: Dialect, key: str) -> Any:
    if not EXPECTED.exists():
        pytest.skip("needs the reference folder beside the repository")
    if not hasattr(recorded, "cases"):
        cases = json.loads(EXPECTED.read_text())["cases"]
        recorded.cases = {c["input"]: {o["client"]: o for o in c["outputs"]} for c in cases}  # type: ignore[attr-defined]
    return recorded.cases[case.name][CLIENTS[dialect]][key]  # type: ignore[attr-defined]


def placed(case: Path, folder: Path, mtime: str = RECORDED_MTIME) -> Path:
    path = folder / "in.jsonl"
    shutil.copyfile(case, path)
    mtime_ns = (parse_time(mtime) or 0) * 1_000_000
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


@pytest.mark.parametrize("dialect", ["pi", "xcsh"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.stem)
def test_the_newest_session_is_the_client_s(case: Path, dialect: Dialect, tmp_path: Path) -> None:
    path = placed(case, tmp_path)
    theirs = recorded(case, dialect, "recent")["value"]
    found = find_most_recent_session(tmp_path)
    if case.stem in FOUND_BY_US[dialect]:
        assert (theirs, found) == (None, str(path))
        assert load_entries_from_file(path)
    else:
        assert found == (theirs and theirs.replace("$DIR", str(tmp_path)))


@pytest.mark.parametrize("dialect", ["pi", "xcsh"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.stem)
def test_the_list_has_the_client_s_rows(case: Path, dialect: Dialect, tmp_path: Path) -> None:
    path = placed(case, tmp_path)
    theirs = json.loads(recorded(case, dialect, "list")["json"].replace("$DIR", str(tmp_path)))
    ours, skipped, _ = list_sessions("/tmp", tmp_path, dialect)  # noqa: S108 - the cwd of the cases
    rows = [row.to_dict() for row in ours]
    if case.stem in LISTED_BY_US[dialect]:
        assert theirs == []
        assert [row["path"] for row in rows] == [str(path)]
        return
    for row in theirs:
        row |= {"created": parse_time(row["created"]), "modified": parse_time(row["modified"])}
    assert rows == theirs
    assert [list(row) for row in rows] == [list(row) for row in theirs]  # keys in the client's order
    assert (skipped == []) is bool(theirs)


def test_a_message_that_is_null_hides_no_session(tmp_path: Path) -> None:
    """pi leaves the file out; xcsh shows this row."""
    placed(GOLDEN / "cases/39-null-message.jsonl", tmp_path)
    (row,), skipped, _ = list_sessions("/w", tmp_path, "pi")
    assert (row.message_count, row.first_message, row.all_messages_text) == (2, "(no messages)", "a")
    assert skipped == []


def test_a_title_slot_titles_the_row(tmp_path: Path) -> None:
    placed(GOLDEN / "cases/37-omp-title-slot.jsonl", tmp_path)
    for dialect in ("xcsh", "omp"):
        (row,), _, _ = list_sessions("/w", tmp_path, dialect)
        assert row.title == "Slot title"
    assert [recent.name for recent in get_recent_sessions(tmp_path)] == ["Slot title"]


# --- one file


def test_a_missing_file_has_no_entries_and_is_not_made(tmp_path: Path) -> None:
    assert load_entries_from_file(tmp_path / "gone.jsonl") == []
    assert list(tmp_path.iterdir()) == []


NO_SESSION = {
    "empty": b"",
    "blank": b"\n \n",
    "entry first": entry(1) + header(),
    "id is no string": header(id=7),
    "no id": dump({"type": "session", "version": 3}),
    "a number first": b"42\n" + header(),
    "a list first": b"[]\n" + header(),
    "no JSON": b"\x00\xff nothing",
    "slot and no header": encode_title_slot("T", updated_at="2026-01-01T00:00:00.000Z") + entry(1),
    "two slots": encode_title_slot("T", updated_at="2026-01-01T00:00:00.000Z") * 2 + header(),
}


@pytest.mark.parametrize("content", NO_SESSION.values(), ids=NO_SESSION.keys())
def test_a_file_without_a_valid_header_first_has_no_entries_and_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", content)
    assert load_entries_from_file(path) == []
    assert find_most_recent_session(tmp_path) is None
    assert get_recent_sessions(tmp_path) == []
    assert list_sessions("/w", tmp_path, "pi") == ([], [(str(path), "no session header first")], [])
    assert path.read_bytes() == content


ONE, TWO = json.loads(entry(1)), json.loads(entry(2, 1))
HEADER = json.loads(header())
TIMELESS = {"type": "session", "id": "s-1"}
TOLERATED = {
    "plain": (header() + entry(1) + entry(2, 1), [HEADER, ONE, TWO]),
    "BOM and CRLF": ((b"\xef\xbb\xbf" + header() + entry(1)).replace(b"\n", b"\r\n"), [HEADER, ONE]),
    "BOM before a header without a time": (b"\xef\xbb\xbf" + dump(TIMELESS) + entry(1), [TIMELESS, ONE]),
    "blank lines": (b"\n\n" + header() + b" \n" + entry(1) + b"\n", [HEADER, ONE]),
    "no last newline": (header() + entry(1)[:-1], [HEADER, ONE]),
    "broken line": (header() + b'{"type":\n' + entry(1), [HEADER, ONE]),
    "broken line before the header": (b"{nothing\n" + header() + entry(1), [HEADER, ONE]),
    "torn line with a whole entry behind it": (header() + entry(1)[:40] + entry(2, 1), [HEADER, TWO]),
    "glued entries": (header() + entry(1)[:-1] + entry(2, 1), [HEADER, ONE, TWO]),
    "entry glued to the header": (header()[:-1] + entry(1), [HEADER, ONE]),
    "null lines": (b"null\n" + header() + b"null\n" + entry(1), [HEADER, ONE]),
    "values": (header() + b'42\n"x"\n[]\nfalse\n' + entry(1), [HEADER, 42, "x", [], False, ONE]),
    "second header": (header() + entry(1) + header("s-2"), [HEADER, ONE, json.loads(header("s-2"))]),
}


@pytest.mark.parametrize(("content", "entries"), TOLERATED.values(), ids=TOLERATED.keys())
def test_what_a_file_holds_is_read_in_its_order(content: bytes, entries: list[Any], tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", content)
    assert load_entries_from_file(path) == entries
    assert path.read_bytes() == content
    assert find_most_recent_session(tmp_path) == str(path)


@pytest.mark.parametrize("case", sorted(BUGCASES.glob("*.jsonl")), ids=lambda c: c.stem)
def test_reading_a_broken_file_changes_no_byte(case: Path, tmp_path: Path) -> None:
    path = placed(case, tmp_path)
    load_entries_from_file(path)
    list_sessions("/w", tmp_path)
    assert path.read_bytes() == case.read_bytes()
    assert os.listdir(tmp_path) == ["in.jsonl"]


SLOTS = {
    "title and source": (("T", "user"), {}, {"title": "T", "titleSource": "user"}),
    "no source": (("T",), {}, {"title": "T"}),
    "over the header's": (
        ("T", "auto"),
        {"title": "old", "titleSource": "user"},
        {"title": "T", "titleSource": "auto"},
    ),
    "empty takes the header's away": (("",), {"title": "old", "titleSource": "user"}, {}),
}


@pytest.mark.parametrize(("slot", "old", "new"), SLOTS.values(), ids=SLOTS.keys())
def test_a_title_slot_is_put_into_the_header(
    slot: tuple[str, ...], old: dict[str, str], new: dict[str, str], tmp_path: Path
) -> None:
    line = encode_title_slot(*slot, updated_at="2026-01-01T00:00:00.000Z")
    path = write(tmp_path / "s.jsonl", line, header(**old), entry(1))
    assert load_entries_from_file(path) == [HEADER | new, ONE]


def test_what_is_no_regular_file_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    with pytest.raises(OSError, match="FIFO"):
        load_entries_from_file(tmp_path / "fifo.jsonl")


def test_a_storage_in_memory_is_read_as_the_disk_is() -> None:
    storage = MemorySessionStorage(clock=lambda: 1_700_000_000_000)
    storage.write_text("/m/a.jsonl", (header() + entry(1, text="hello")).decode())
    assert load_entries_from_file("/m/a.jsonl", storage)[0] == HEADER
    assert load_entries_from_file("/m/gone.jsonl", storage) == []
    assert find_most_recent_session("/m", storage) == "/m/a.jsonl"
    assert get_recent_sessions("/m", storage=storage) == [("/m/a.jsonl", "hello", 1_700_000_000_000)]
    (row,), _, _ = list_sessions("/w", "/m", storage=storage)
    assert (row.path, row.modified, row.first_message) == ("/m/a.jsonl", 1_700_000_000_000, "hello")


# --- the newest


def at(path: Path, second: int) -> Path:
    os.utime(path, (second, second))
    return path


def test_the_newest_is_the_one_changed_last_and_of_equals_the_last_by_name(tmp_path: Path) -> None:
    for name, second in (("a", 30), ("b", 50), ("c", 50), ("d", 40)):
        at(write(tmp_path / f"{name}.jsonl", header(name)), second)
    at(write(tmp_path / "e.jsonl", entry(1)), 90)
    at(write(tmp_path / "f.txt", header("f")), 90)
    assert find_most_recent_session(tmp_path) == str(tmp_path / "c.jsonl")
    assert [(r.name, r.mtime) for r in get_recent_sessions(tmp_path, 9)] == [
        ("c", 50_000), ("b", 50_000), ("d", 40_000), ("a", 30_000),
    ]  # fmt: skip
    assert len(get_recent_sessions(tmp_path)) == 3
    assert get_recent_sessions(tmp_path, 0) == []


def test_a_folder_that_is_missing_has_no_newest(tmp_path: Path) -> None:
    assert find_most_recent_session(tmp_path / "gone") is None
    assert get_recent_sessions(tmp_path / "gone") == []


def test_a_file_that_cannot_be_read_is_named_and_the_next_one_taken(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", header("a"))
    (tmp_path / "b.jsonl").mkdir()
    with pytest.warns(SessionDBWarning, match=r"b\.jsonl cannot be read and was passed over: a folder"):
        assert find_most_recent_session(tmp_path) == str(tmp_path / "a.jsonl")


@pytest.mark.parametrize(("length", "is_seen"), [(4_096, True), (4_097, False)])
def test_a_header_is_seen_within_4096_bytes(length: int, is_seen: bool, tmp_path: Path) -> None:
    empty = len(header(padding=""))
    path = write(tmp_path / "s.jsonl", header(padding="x" * (length - empty + 1)), entry(1))
    assert len(path.read_bytes().split(b"\n")[0]) == length
    assert find_most_recent_session(tmp_path) == (str(path) if is_seen else None)
    (row,), _, _ = list_sessions("/w", tmp_path)
    assert resolve_session_file("s-1", "/w", tmp_path) == path
    assert row.id == "s-1"


NAMES = {
    "title": (header(title="Title"), entry(1, text="prompt"), "Title"),
    "title's first line": (header(title="One\r\nTwo"), b"", "One"),
    "control characters": (header(title=" a\x1b[31mb\x7f\t "), b"", "a[31mb"),
    "first user text": (header(), entry(1, text="no", role="assistant") + entry(2, text="yes\nmore"), "yes"),
    "first text block": (header(), entry(1, text=[{"type": "image"}, {"type": "text", "text": "seen"}]), "seen"),
    "blank title": (header(title="  "), entry(1, text="prompt"), "prompt"),
    "title is no string": (header(title=7), entry(1, text="prompt"), "prompt"),
    "id": (header("the-id"), b"", "the-id"),
    "blank prompt": (header("the-id"), entry(1, text="\n"), "the-id"),
    "file name": (header(""), b"", "name"),
    "40 are whole": (header(title="x" * 40), b"", "x" * 40),
    "41 are cut": (header(title="x" * 41), b"", "x" * 39 + "…"),
    "an emoji counts two": (header(title="x" * 38 + "😀"), b"", "x" * 38 + "😀"),
    "no emoji is cut in half": (header(title="x" * 38 + "😀y"), b"", "x" * 38 + "…"),
    "message of any shape": (header("i"), entry(1, message=None) + entry(2, message=[]) + entry(3, text=7), "i"),
}


@pytest.mark.parametrize(("head", "rest", "name"), NAMES.values(), ids=NAMES.keys())
def test_a_recent_session_is_named_by_title_prompt_id_or_file(
    head: bytes, rest: bytes, name: str, tmp_path: Path
) -> None:
    write(tmp_path / "name.jsonl", head, rest)
    assert [recent.name for recent in get_recent_sessions(tmp_path)] == [name]


def test_a_prompt_beyond_4096_bytes_names_nothing(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", header(), entry(1, role="assistant", text="x" * 4_000), entry(2, text="far"))
    assert [recent.name for recent in get_recent_sessions(tmp_path)] == ["s-1"]


# --- lists


def agent(tmp_path: Path) -> Path:
    return tmp_path / "agent"


def test_folders_whose_names_collide_keep_their_sessions_apart(tmp_path: Path) -> None:
    folder = agent(tmp_path) / "sessions/--a-b-c--"
    mine = at(write(folder / "mine.jsonl", header("mine", cwd="/a-b/c")), 10)
    nobody_s = at(write(folder / "none.jsonl", header("none", cwd=None)), 5)
    other = at(write(folder / "other.jsonl", header("other", cwd="/a/b-c")), 20)
    for dialect in DIALECTS:
        listed = list_sessions("/a-b/c", dialect=dialect, agent_dir=agent(tmp_path))
        assert {row.path for row in listed.rows} == {str(mine), str(nobody_s)}
        assert (listed.skipped, listed.elsewhere) == ([], [(str(other), "/a/b-c")])
        assert find_most_recent_for_cwd("/a-b/c", dialect=dialect, agent_dir=agent(tmp_path)) == str(mine)
        assert find_most_recent_for_cwd("/a/b-c", dialect=dialect, agent_dir=agent(tmp_path)) == str(other)
    assert [row.id for row in list_sessions("/a-b/c", folder).rows] == ["other", "mine", "none"]


def test_sessions_under_either_name_of_an_xcsh_folder_are_listed_together(tmp_path: Path) -> None:
    project = str(Path.home() / "proj")
    theirs = at(write(agent(tmp_path) / "sessions/-proj/a.jsonl", header("a", cwd=project)), 10)
    documented = agent(tmp_path) / f"sessions/--{project[1:].replace('/', '-')}--"
    ours = at(write(documented / "b.jsonl", header("b", cwd=project)), 20)
    listed, _, _ = list_sessions(project, agent_dir=agent(tmp_path))
    assert [row.path for row in listed] == [str(ours), str(theirs)]
    assert find_most_recent_for_cwd(project, agent_dir=agent(tmp_path)) == str(ours)


def test_a_cwd_reached_by_a_link_is_the_same_cwd(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folder = agent(tmp_path) / f"sessions/--{str(tmp_path / 'real')[1:].replace('/', '-')}--"
    write(folder / "a.jsonl", header("a", cwd=str(tmp_path / "link")))
    assert [row.id for row in list_sessions(str(tmp_path / "real"), agent_dir=agent(tmp_path)).rows] == ["a"]


def test_a_cwd_without_sessions_has_an_empty_list_and_no_folder_is_made(tmp_path: Path) -> None:
    for dialect in DIALECTS:
        assert list_sessions("/srv/x", dialect=dialect, agent_dir=agent(tmp_path)) == ([], [], [])
        assert list_all_sessions(dialect=dialect, agent_dir=agent(tmp_path)) == ([], [], [])
        assert find_most_recent_for_cwd("/srv/x", dialect=dialect, agent_dir=agent(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("dialect", "ids"),
    [("pi", {"one"}), ("omp", {"one"}), ("xcsh", {"zero", "one", "sub"})],
    ids=["pi", "omp", "xcsh"],
)
def test_all_sessions_are_those_one_folder_down_and_in_xcsh_at_any_depth(
    dialect: Dialect, ids: set[str], tmp_path: Path
) -> None:
    write(tmp_path / "sessions/zero.jsonl", header("zero"))
    write(tmp_path / "sessions/--w--/one.jsonl", header("one"))
    write(tmp_path / "sessions/--w--/one/sub.jsonl", header("sub"))
    listed, skipped, _ = list_all_sessions(dialect=dialect, agent_dir=tmp_path)
    assert {row.id for row in listed} == ids
    assert skipped == []


def test_what_gives_no_row_is_named_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "sessions/p"
    good = write(folder / "good.jsonl", header("good"))
    write(folder / "empty.jsonl")
    (folder / "dangling.jsonl").symlink_to("nowhere")
    os.mkfifo(folder / "fifo.jsonl")
    (folder / "folder.jsonl").mkdir()
    listed, skipped, _ = list_sessions("/w", folder)
    assert [row.id for row in listed] == ["good"]
    assert {Path(path).name: reason for path, reason in skipped} == {
        "empty.jsonl": "no session header first",
        "dangling.jsonl": "No such file or directory",
        "fifo.jsonl": "a FIFO, not a regular file",
        "folder.jsonl": "a folder, not a regular file",
    }
    everywhere = list_all_sessions(agent_dir=tmp_path)
    assert {Path(path).name for path, _ in everywhere.skipped} == {"empty.jsonl", "dangling.jsonl", "fifo.jsonl"}
    assert list_sessions("/w", good) == ([], [(str(good), "Not a directory")], [])


def times(*, message: object = None, second: int = 5, role: str = "user") -> bytes:
    said = {"role": role, "content": "hi"} | ({} if message is None else {"timestamp": message})
    return entry(1, second=second, message=said)


MODIFIED_IN_PI = {
    "message's own time": (header() + times(message=1_767_225_700_000), 1_767_225_700_000),
    "entry's time": (header() + times(second=7), 1_767_225_607_000),
    "the newest of them": (header() + times(second=9) + times(second=3), 1_767_225_609_000),
    "tool results do not count": (header() + times(role="toolResult", second=9), 1_767_225_600_000),
    "content must be there": (header() + entry(1, second=9, message={"role": "user"}), 1_767_225_600_000),
    "no message: the header's": (header(), 1_767_225_600_000),
    "time 0 is none": (header() + times(message=0), 1_767_225_600_000),
    "nothing tells one: the file's": (header(timestamp="never"), 1_000_000),
}


@pytest.mark.parametrize(("content", "modified"), MODIFIED_IN_PI.values(), ids=MODIFIED_IN_PI.keys())
def test_a_session_changed_in_pi_when_its_last_message_came(content: bytes, modified: int, tmp_path: Path) -> None:
    at(write(tmp_path / "s.jsonl", content), 1_000)
    (row,), _, _ = list_sessions("/w", tmp_path, "pi")
    assert row.modified == modified
    for dialect in ("xcsh", "omp"):
        assert list_sessions("/w", tmp_path, dialect).rows[0].modified == 1_000_000


def test_rows_come_newest_first(tmp_path: Path) -> None:
    for name, second, mtime in (("a", 1, 30), ("b", 3, 10), ("c", 2, 20)):
        at(write(tmp_path / f"{name}.jsonl", header(name), entry(1, second=second)), mtime)
    assert [row.id for row in list_sessions("/w", tmp_path, "pi").rows] == ["b", "c", "a"]
    assert [row.id for row in list_sessions("/w", tmp_path, "xcsh").rows] == ["a", "c", "b"]


ROWS = {
    "parent": (header(parentSession="/p.jsonl"), {"parentSessionPath": "/p.jsonl"}),
    "parent is null": (header(parentSession=None), {"parentSessionPath": None}),
    "title, else the last short summary": (
        header() + dump({"type": "compaction", "shortSummary": "S"}) + dump({"type": "compaction"}), {"title": "S"},
    ),
    "no time": (header(timestamp="never"), {"created": None}),
    "cwd is no string": (header(cwd=7), {"cwd": ""}),
    "message null": (header() + entry(1, message=None) + entry(2, text="b"), {"messageCount": 1, "firstMessage": "b"}),
    "messages of any shape": (
        header() + entry(1, message=[7]) + entry(2, text=None) + entry(3, text=[None, 7, {"type": "text"}]),
        {"messageCount": 3, "firstMessage": "(no messages)", "allMessagesText": ""},
    ),
    "texts": (
        header() + entry(1, text="", role="user") + entry(2, text="a", role="assistant")
        + entry(3, text=[{"type": "text", "text": "b"}, {"type": "image"}, {"type": "text", "text": "c"}])
        + entry(4, text="t", role="toolResult"),
        {"messageCount": 4, "firstMessage": "b c", "allMessagesText": "a b c"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "part"), ROWS.values(), ids=ROWS.keys())
def test_a_row_tells_of_its_session(content: bytes, part: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", content)
    (row,), skipped, _ = list_sessions("/w", tmp_path)
    assert row.to_dict() | part == row.to_dict()
    assert skipped == []


def test_a_long_first_message_is_not_cut(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", header(), entry(1, text="x" * 10_000))
    (row,), _, _ = list_sessions("/w", tmp_path)
    assert row.first_message == row.all_messages_text == "x" * 10_000


def test_a_thousand_files_are_listed_within_a_second(tmp_path: Path) -> None:
    lines = [entry(n, n - 1 or None, text="some words " * 20) for n in range(1, 11)]
    for number in range(1_000):
        write(tmp_path / f"sessions/--w{number % 20}--/{number:04}.jsonl", header(f"s-{number}"), *lines)
    start = time.process_time()
    assert len(list_all_sessions(agent_dir=tmp_path).rows) == 1_000
    assert time.process_time() - start < 1


# --- the one that is meant


def projects(tmp_path: Path) -> Path:
    """An agent's folder with the projects /here, in which a session is resumed, and /there."""
    for place, name, session_id in (
        ("--here--", "2026-01-01T00-00-00-000Z_abc1", "ABC1"),
        ("--here--", "2026-01-01T00-00-01-000Z_abc22", "abc22"),
        ("--here--", "2026-01-01T00-00-02-000Z_abc2", "abc2"),
        ("--here--", "renamed_zz9", "other-id"),
        ("--there--", "2026-01-02T00-00-00-000Z_abc9", "abc9"),
        ("--there--", "2026-01-02T00-00-01-000Z_twin", "twin-1"),
        ("--there--", "2026-01-02T00-00-02-000Z_twin", "twin-2"),
    ):
        write(tmp_path / "sessions" / place / f"{name}.jsonl", header(session_id, cwd=f"/{place[2:-2]}"))
    write(tmp_path / "sessions/--here--/2026-01-01T00-00-03-000Z_broken.jsonl", entry(1))
    return tmp_path


RESUMED = {
    "whole id": ("abc22", "xcsh", "_abc22"),
    "whole id before a longer one": ("abc2", "xcsh", "_abc2"),
    "start of an id": ("oth", "pi", "renamed_zz9"),
    "start of a file's name": ("renam", "xcsh", "renamed_zz9"),
    "behind the last underscore": ("zz", "omp", "renamed_zz9"),
    "file's name": ("renamed_zz9.jsonl", "xcsh", "renamed_zz9"),
    "letter case aside": ("OTHER", "xcsh", "renamed_zz9"),
    "letter case counts in pi": ("ABC", "pi", "_abc1"),
    "here before there": ("abc1", "omp", "_abc1"),
    "there when not here": ("abc9", "xcsh", "_abc9"),
    "there in pi": ("twin-2", "pi", "02-000Z_twin"),
}


@pytest.mark.parametrize(("ref", "dialect", "ending"), RESUMED.values(), ids=RESUMED.keys())
def test_a_session_is_resumed_by_what_names_it(ref: str, dialect: Dialect, ending: str, tmp_path: Path) -> None:
    found = resolve_session_file(ref, "/here", dialect=dialect, agent_dir=projects(tmp_path))
    assert found.stem.endswith(ending)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_path_is_taken_as_it_is(dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "elsewhere.jsonl", b"anything")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    refs = {str(path): path, "~/elsewhere.jsonl": path, "elsewhere.jsonl": Path("elsewhere.jsonl")}
    assert {ref: resolve_session_file(ref, "/here", dialect=dialect) for ref in refs} == refs


NOT_FOUND = {
    "nothing": ("", "xcsh"),
    "unknown": ("nope", "xcsh"),
    "no start but a middle": ("bc1", "xcsh"),
    "other letter case in pi": ("OTHER", "pi"),
    "no session in it": ("2026-01-01T00-00-03-000Z_broken", "xcsh"),
    "missing path": ("./nope.jsonl", "xcsh"),
    "missing file": ("nope.jsonl", "pi"),
    "a folder": ("/", "pi"),
    "NUL": ("a\0b", "xcsh"),
}


@pytest.mark.parametrize(("ref", "dialect"), NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_what_names_nothing_is_an_error(ref: str, dialect: Dialect, tmp_path: Path) -> None:
    with pytest.raises(SessionNotFoundError):
        resolve_session_file(ref, "/here", dialect=dialect, agent_dir=projects(tmp_path))


AMBIGUOUS = {
    "start of three ids": ("abc", "omp", {"abc22", "abc2", "ABC1"}),
    "start of three names": ("2026-01-01T00-00-0", "xcsh", {"ABC1", "abc22", "abc2"}),
    "behind the underscore of two": ("twin", "xcsh", {"twin-1", "twin-2"}),
}


@pytest.mark.parametrize(("ref", "dialect", "ids"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_several_matches_are_an_error_that_lists_them(
    ref: str, dialect: Dialect, ids: set[str], tmp_path: Path
) -> None:
    with pytest.raises(AmbiguousSessionError) as raised:
        resolve_session_file(ref, "/here", dialect=dialect, agent_dir=projects(tmp_path))
    assert {candidate.split()[0] for candidate in raised.value.candidates} == ids
    assert all(str(tmp_path) in candidate for candidate in raised.value.candidates)


def test_a_project_is_all_folders_of_its_cwd_and_no_session_of_another(tmp_path: Path) -> None:
    """The two names of a folder in home hold one project; a name that two projects share holds two."""
    home = str(Path.home())
    folder = tmp_path / "sessions/-proj"
    write(folder / "a_1.jsonl", header("twin-here", cwd=f"{home}/proj"))
    write(folder / "b_2.jsonl", header("twin-else", cwd="/elsewhere"))
    ours = write(
        tmp_path / f"sessions/--{home[1:].replace('/', '-')}-proj--/c_3.jsonl", header("x", cwd=f"{home}/proj")
    )
    found = [resolve_session_file(ref, f"{home}/proj", agent_dir=tmp_path) for ref in ("twin", "x", "twin-else")]
    assert found == [folder / "a_1.jsonl", ours, folder / "b_2.jsonl"]


def test_with_a_folder_of_its_own_pi_alone_looks_elsewhere(tmp_path: Path) -> None:
    agent_dir = projects(tmp_path)
    folder = tmp_path / "own"
    mine = write(folder / "a.jsonl", header("abc9-mine", cwd="/any"))
    for dialect in DIALECTS:
        assert resolve_session_file("abc9", "/here", folder, dialect=dialect, agent_dir=agent_dir) == mine
    assert resolve_session_file("oth", "/here", folder, dialect="pi", agent_dir=agent_dir).stem == "renamed_zz9"
    with pytest.raises(SessionNotFoundError):
        resolve_session_file("oth", "/here", folder, dialect="xcsh", agent_dir=agent_dir)


def test_a_file_that_cannot_be_read_is_named_when_a_session_is_resumed(tmp_path: Path) -> None:
    here = projects(tmp_path) / "sessions/--here--"
    (here / "2026_abc3.jsonl").mkdir()
    with pytest.warns(SessionDBWarning, match=r"2026_abc3\.jsonl cannot be read"):
        assert resolve_session_file("other", "/any", here).stem == "renamed_zz9"


def test_an_entry_of_any_bytes_is_read_from_its_line(tmp_path: Path) -> None:
    value = {"type": "custom", "id": "1", "timestamp": "t", "data": "\ud800 \u2028 \0"}
    path = write(tmp_path / "s.jsonl", header(), encode_entry(value), b"\n\xff\xfe\n")
    assert load_entries_from_file(path) == [HEADER, value]
