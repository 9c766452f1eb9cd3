"""What is taken in and what is skipped and named; what an import leaves untouched (DESIGN: What is a session)."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.report import Progress
from tests.support import (
    BUGCASES,
    GOLDEN,
    OpenStore,
    entry,
    exported,
    header,
    sha,
    skipped,
    tables,
    with_blobs,
    without_last_look,
    write,
)

# What is taken in, and what is skipped and named


NO_SESSIONS = {
    "empty": b"",
    "only blanks": b"\n  \n\t\r\n\n",
    "only a byte order mark": b"\xef\xbb\xbf",
    "plain text": b"hello\nworld\n",
    "JSON that is no object": b'[1,2]\n"x"\nnull\n42\n',
    "binary": bytes(range(128, 256)) * 40,
    "an image": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01",
    "NULs": b"\0" * 5000,
    "a database": b"SQLite format 3\0" + b"\x10\0\x02\x02\0@  \n" * 20,
}


@pytest.mark.parametrize("content", NO_SESSIONS.values(), ids=NO_SESSIONS)
@pytest.mark.parametrize("given", ["folder", "file"])
def test_a_file_without_a_line_that_begins_an_object_is_skipped_and_named(
    store: Store, tmp_path: Path, content: bytes, given: str
) -> None:
    """B13, B15: and the good file beside it goes in."""
    bad = write(tmp_path / "in/bad.jsonl", content)
    good = write(tmp_path / "in/good.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "in"] if given == "folder" else [bad, good])
    assert skipped(report) == [str(bad)]
    assert report.imported == 1
    assert bad.read_bytes() == content


TAKEN_IN = {
    "only a header": header(),
    "only a broken object": b"{broken\n",
    "an open brace alone": b"{",
    "an object behind blanks": b"   \t{}\n",
    "an object behind text": b"#!/bin/agent\nnoise\n" + entry(1),
    "a BOM before the brace": b"\xef\xbb\xbf" + header(),
    "blank lines first": b"\n\n \r\n" + header() + entry(1),
    "a pretty-printed object": b'{\n  "type": "session"\n}\n',
}


@pytest.mark.parametrize("content", TAKEN_IN.values(), ids=TAKEN_IN)
def test_a_file_with_a_line_that_begins_an_object_is_taken_in(store: Store, tmp_path: Path, content: bytes) -> None:
    file = write(tmp_path / "in/odd.jsonl", content)
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, report.skipped) == (1, [])
    assert exported(store, file) == content


def test_no_special_file_hangs_or_stops_the_import(store: Store, tmp_path: Path) -> None:
    """B13: FIFO, socket, device, dangling link, a link to itself; in a folder and asked for by name."""
    folder = tmp_path / "in"
    write(folder / "zz-good.jsonl", header(), entry(1))
    os.mkfifo(folder / "fifo.jsonl")
    (folder / "dangling.jsonl").symlink_to(folder / "nowhere")
    (folder / "ring.jsonl").symlink_to(folder / "ring.jsonl")
    (folder / "device.jsonl").symlink_to("/dev/zero")
    here = Path.cwd()
    os.chdir(folder)  # the name of a socket may have 107 bytes
    with socket.socket(socket.AF_UNIX) as plug:
        try:
            plug.bind("socket.jsonl")
        finally:
            os.chdir(here)
        odd = sorted(str(folder / f"{n}.jsonl") for n in ("fifo", "dangling", "ring", "device", "socket"))
        report = store.import_paths([folder])
        assert (report.imported, skipped(report)) == (1, odd)
        by_name = store.import_paths([Path(p) for p in odd])
        assert (by_name.imported, skipped(by_name)) == (0, odd)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_skipped_and_named(store: Store, tmp_path: Path) -> None:
    unreadable = tmp_path / "in/a.jsonl"
    write(tmp_path / "in/b.jsonl", header(), entry(1))
    unreadable.symlink_to("/proc/self/mem")
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, skipped(report)) == (1, [str(unreadable)])


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not stop the superuser")
def test_a_file_without_permission_is_skipped_and_named(store: Store, tmp_path: Path) -> None:
    locked = write(tmp_path / "in/locked.jsonl", header(), entry(1))
    locked.chmod(0)
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, skipped(report)) == (0, [str(locked)])


def test_a_path_that_is_not_there_is_named_and_the_rest_goes_on(store: Store, tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "missing.jsonl", good])
    assert report.imported == 1
    assert {*skipped(report), *report.vanished} == {str(tmp_path / "missing.jsonl")}


def test_a_file_asked_for_by_name_may_have_any_ending(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "session.txt", header(), entry(1))
    assert store.import_paths([file]).imported == 1
    assert exported(store, file) == file.read_bytes()


def test_endings_that_a_folder_scan_leaves_out_are_counted(store: Store, tmp_path: Path) -> None:
    """Invariant 8."""
    write(tmp_path / "in/a.jsonl", header(), entry(1))
    for name in ("notes.txt", "more.txt", "page.html", "NOENDING"):
        write(tmp_path / "in/deep" / name, b"{}\n")
    report = store.import_paths([tmp_path / "in"])
    assert report.imported == 1
    assert sum(report.ignored.values()) == 4
    assert {k.strip("*.").lower(): n for k, n in report.ignored.items() if "txt" in k or "html" in k} == {
        "txt": 2,
        "html": 1,
    }


def test_folders_of_any_name_and_depth_are_searched(store: Store, tmp_path: Path) -> None:
    """B35: also folders that end in .jsonl, hidden ones, and names with blanks, newlines or no UTF-8."""
    names = [
        "x.jsonl",
        ".hidden",
        "--home-x--",
        "with blank",
        "new\nline",
        "ünï",
        "a/b/c/d/e/f/g",
        "sub.jsonl/deep.jsonl",
    ]
    files = [write(tmp_path / "in" / n / "s.jsonl", header(f"id-{i}"), entry(i)) for i, n in enumerate(names)]
    strange = Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"/\xff\xfe"))
    files.append(write(strange / "s.jsonl", header("id-strange"), entry(99)))
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, report.skipped) == (len(files), [])
    for file in files:
        assert exported(store, file) == file.read_bytes()
    json.dumps(report.to_dict()).encode()
    for info in store.sessions():
        json.dumps(info.to_dict(), ensure_ascii=False).encode("utf-8", "surrogateescape")


def test_a_folder_that_ends_in_jsonl_may_be_asked_for_by_name(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "folder.jsonl/s.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "folder.jsonl"])
    assert (report.imported, report.skipped) == (1, [])


def test_a_link_that_leads_back_up_does_not_loop(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "in/a/s.jsonl", header(), entry(1))
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "in/a/self").symlink_to(tmp_path / "in/a", target_is_directory=True)
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, report.unchanged, report.files) == (1, 0, 1)


def test_a_folder_behind_two_links_is_followed_once(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "outside/s.jsonl", header(), entry(1))
    for name in ("one", "two"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).symlink_to(tmp_path / "outside", target_is_directory=True)
    report = store.import_paths([tmp_path / "in"])
    assert (report.imported, report.unchanged, report.files) == (1, 0, 1)


def test_a_folder_given_twice_and_a_file_inside_it_count_once(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "in/s.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "in", tmp_path / "in", file])
    assert (report.imported, report.unchanged, report.files) == (1, 0, 1)


def test_a_linked_file_answers_to_both_paths(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "in/s.jsonl", header(), entry(1))
    (tmp_path / "in/link.jsonl").symlink_to(file)
    report = store.import_paths([tmp_path / "in"])
    assert report.imported == 1
    assert store.session(file).pk == store.session(tmp_path / "in/link.jsonl").pk


# Files on the machine


def test_what_we_make_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """B82: database, -wal and -shm 0600, folders 0700."""
    before = os.umask(0)
    try:
        store = Store.open(tmp_path / "new/deep/sessions.db")
        with store:
            store.import_paths([write(tmp_path / "s.jsonl", header(), entry(1))])
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new/deep").iterdir()}
            assert store.check() == []
    finally:
        os.umask(before)
    assert modes.pop("sessions.db") == 0o600
    assert set(modes.values()) <= {0o600}
    assert {n for n in modes if n.endswith("-wal")} == {"sessions.db-wal"}
    for folder in ("new", "new/deep"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def facts(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else sorted(p.name for p in path.iterdir())
        found[str(path)] = (content, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_mode, seen.st_ino, seen.st_size)
    return found


def test_no_source_is_written_moved_or_touched(store: Store, tmp_path: Path) -> None:
    """B05, B37; also by refresh, list, verify and export."""
    folder = tmp_path / "in"
    for name in ("bc01-torn-tail", "bc06-bad-header", "bc13-bom-crlf", "bc28-empty"):
        write(folder / f"{name}.jsonl", (BUGCASES / f"{name}.jsonl").read_bytes()).chmod(0o644)
    write(folder / "v1.jsonl", (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes())
    write(folder / "read-only.jsonl", header("ro"), entry(1)).chmod(0o444)
    os.utime(folder / "v1.jsonl", ns=(10**18, 10**18))
    before = facts(folder)
    store.import_paths([folder])
    store.refresh()
    store.import_paths([folder], dry_run=True)
    for info in store.sessions():
        exported(store, info.paths[0])
        store.entries(info)
        store.tree(info)
    assert {v.state for v in store.verify()} == {"equal"}
    assert facts(folder) == before


def test_a_second_import_changes_no_row_of_any_table(open_store: OpenStore, tmp_path: Path) -> None:
    """The issue's "two imports in a row change nothing"; apart from when files were last looked at."""
    for file in sorted(BUGCASES.glob("*.jsonl")) + sorted((GOLDEN / "cases").glob("*.jsonl")):
        write(tmp_path / "in" / file.name, file.read_bytes())
    write(tmp_path / "in/twin.jsonl", (BUGCASES / "bc01-torn-tail.jsonl").read_bytes())
    store = open_store()
    first = store.import_paths([tmp_path / "in"])
    before = tables(store)
    assert len(before["session"]) == first.imported > 30
    for again in (store.import_paths([tmp_path / "in"]), store.refresh(), open_store().import_paths([tmp_path / "in"])):
        assert (again.imported, again.updated, again.replaced) == (0, 0, 0)
        assert again.unchanged == first.imported + first.unchanged
        assert skipped(again) == skipped(first)
        assert without_last_look(tables(store)) == without_last_look(before)


def test_leftovers_of_interrupted_rewrites_are_reported_and_taken_in_by_name(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "in/2026_a.jsonl", header("a"), entry(1))
    left = [
        write(tmp_path / "in/.2026_a.jsonl.13c9588400111113.tmp", header("a"), entry(1), entry(2, 1)),
        write(tmp_path / "in/2026_a.jsonl.13c9588400111114.bak", header("a"), entry(1), entry(3, 1)),
    ]
    report = store.import_paths([tmp_path / "in"])
    assert report.imported == 1
    assert sorted(report.leftovers) == sorted(str(p) for p in left)
    by_name = store.import_paths(left)
    assert (by_name.imported, by_name.skipped) == (2, [])
    assert [exported(store, p) for p in left] == [p.read_bytes() for p in left]


def test_a_file_that_vanished_is_named_once_and_its_session_kept(store: Store, tmp_path: Path) -> None:
    gone = write(tmp_path / "in/a/gone.jsonl", header("gone"), entry(1))
    write(tmp_path / "in/a/stays.jsonl", header("stays"), entry(2))
    content = gone.read_bytes()
    store.import_paths([tmp_path / "in", tmp_path / "in/a"])
    gone.unlink()
    report = store.refresh()
    assert (report.vanished, report.unchanged) == ([str(gone)], 1)
    assert store.refresh().vanished == []
    assert exported(store, "gone") == content
    assert exported(store, gone) == content
    write(gone, content)
    back = store.refresh()
    assert (back.imported, back.unchanged, back.vanished) == (0, 2, [])


# The run itself


def test_progress_reaches_its_totals(store: Store, tmp_path: Path) -> None:
    sizes = [len(write(tmp_path / f"in/{n}.jsonl", header(f"i{n}"), entry(n)).read_bytes()) for n in range(30)]
    write(tmp_path / "in/empty.jsonl", b"")
    seen: list[Progress] = []
    store.import_paths([tmp_path / "in"], on_progress=seen.append)
    last = seen[-1]
    assert (last.files, last.files_total) == (31, 31)
    assert (last.bytes, last.bytes_total) == (sum(sizes), sum(sizes))
    for before, after in itertools.pairwise(seen):
        assert (before.files, before.bytes) <= (after.files, after.bytes)
        assert after.files <= after.files_total


def test_a_dry_run_tells_what_would_be_and_writes_nothing(store: Store, tmp_path: Path) -> None:
    kept = write(tmp_path / "in/kept.jsonl", header("kept"), entry(1))
    store.import_paths([tmp_path / "in"])
    content = b"picture"
    write(tmp_path / "in/blobs" / sha(content), content)
    kept.write_bytes(kept.read_bytes() + entry(2, 1))
    write(tmp_path / "in/new.jsonl", header("new"), with_blobs(sha(content)))
    write(tmp_path / "in/empty.jsonl", b"")
    before = tables(store)
    dry = store.import_paths([tmp_path / "in"], dry_run=True)
    assert dry.dry_run
    assert (dry.imported, dry.updated, skipped(dry)) == (1, 1, [str(tmp_path / "in/empty.jsonl")])
    assert tables(store) == before
    real = store.import_paths([tmp_path / "in"])
    assert (real.imported, real.updated) == (1, 1)


def test_the_report_names_the_database_and_goes_through_json(store: Store, tmp_path: Path) -> None:
    """B42."""
    report = store.import_paths([write(tmp_path / "s.jsonl", header(), b"{broken\n")])
    assert report.database == str(tmp_path / "db/sessions.db")
    document = json.loads(json.dumps(report.to_dict()))
    assert document["database"] == report.database
    assert document["imported"] == 1
    assert [f["line"] for f in document["faults"]] == [2]


IMPORTER = """
import sys
from sessiondb import Store
with Store.open(sys.argv[1], timeout=60) as store:
    report = store.import_paths([sys.argv[2]])
    print(report.imported, report.unchanged, len(report.skipped))
"""


def test_four_processes_that_import_one_folder_give_each_session_once(store: Store, tmp_path: Path) -> None:
    """B51, B52: a database that none of them has opened before."""
    for n in range(60):
        write(
            tmp_path / f"in/{n}.jsonl", header(f"id-{n}"), *(entry(k, k - 1 or None, f"{n}.{k}") for k in range(1, 9))
        )
    database = tmp_path / "fresh/sessions.db"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", IMPORTER, str(database), str(tmp_path / "in")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    outcomes = [process.communicate(timeout=90) for process in running]
    assert [process.returncode for process in running] == [0] * 4, outcomes
    counts = [tuple(map(int, out.split())) for out, _ in outcomes]
    assert all(imported + unchanged == 60 and bad == 0 for imported, unchanged, bad in counts)
    assert sum(imported for imported, _, _ in counts) == 60
    with Store.open(database) as found:
        assert sorted(s.id for s in found.sessions()) == sorted(f"id-{n}" for n in range(60))
        assert {v.state for v in found.verify()} == {"equal"}
        assert found.check() == []


def test_without_paths_the_folders_of_every_known_agent_are_taken(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    places = {
        "pi-1": (".pi/agent/sessions/--w--", "pi"),
        "omp-1": (".omp/agent/sessions/-w", "omp"),
        "xcsh-1": (".xcsh/agent/sessions/--w--", "xcsh"),
        "claw-1": (".openclaw/agents/main/sessions", "pi"),
    }
    for number, (session_id, (folder, _)) in enumerate(places.items()):
        write(home / folder / f"2026_{session_id}.jsonl", header(session_id), entry(number))
    write(home / "elsewhere/x.jsonl", header("other"), entry(99))
    report = store.import_paths()
    assert report.imported == 4
    assert {s.id: s.dialect for s in store.sessions()} == {k: d for k, (_, d) in places.items()}


@pytest.mark.parametrize("value", ["{home}/moved", "~/moved"], ids=["absolute", "tilde"])
def test_the_agents_variable_moves_the_default_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", value.format(home=home))
    write(home / "moved/sessions/--w--/a.jsonl", header("moved"), entry(1))
    store.import_paths()
    assert [s.id for s in store.sessions()] == ["moved"]


def test_without_any_agent_folder_nothing_happens_and_nothing_is_made(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store.import_paths().imported == 0
    assert list((tmp_path / "home").iterdir()) == []


def test_the_database_itself_is_never_opened_as_a_source(store: Store) -> None:
    """Invariant 9: its plain close would drop SQLite's locks."""
    link = store.database.with_name("link")
    link.symlink_to(store.database.parent)
    report = store.import_paths([store.database, link / store.database.name])
    assert [s.reason for s in report.skipped] == ["the database itself"] * 2
