"""What is a session, what is skipped and named, and what an import leaves untouched (DESIGN: What is a session)."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiondb import Store
from sessiondb.errors import AmbiguousSessionError, SessionNotFoundError
from sessiondb.report import ImportReport, Progress

GOLDEN = Path(__file__).resolve().parent / "golden/jsonl"
BUGCASES = GOLDEN / "bugcases"

OpenStore = Callable[..., Store]


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def header(session_id: str = "s-1", **more: object) -> bytes:
    base = {"type": "session", "version": 3, "id": session_id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    return dump({**base, **more})


def entry(number: int, parent: int | None = None, text: object = "hi", *, role: str = "user", **more: object) -> bytes:
    base = {
        "type": "message",
        "id": f"{number:08x}",
        "parentId": None if parent is None else f"{parent:08x}",
        "timestamp": "2026-01-01T00:00:01.000Z",
        "message": {"role": role, "content": text},
    }
    return dump({**base, **more})


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def exported(store: Store, ref: str | Path) -> bytes:
    out = io.BytesIO()
    store.export(ref, out)
    return out.getvalue()


def tables(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    names = store.sql("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {n["name"]: sorted(store.sql(f'SELECT * FROM "{n["name"]}"'), key=repr) for n in names}


def without_last_look(dumped: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """All rows but the one that says when files were last looked at, which is about the run and not the sessions."""
    return {**dumped, "state": [row for row in dumped["state"] if row["name"] != "last look"]}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def skipped(report: ImportReport) -> list[str]:
    assert all(s.reason for s in report.skipped)
    return sorted(s.path for s in report.skipped)


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


# Headers and ids


HEADERLESS_NAMES = {
    "2026-01-01T00-00-00-000Z_0199-abc.jsonl": "0199-abc",
    "a_b_c.jsonl": "c",
    "plain-name.jsonl": "plain-name",
    "with.dots.jsonl": "with.dots",
}


@pytest.mark.parametrize(("name", "expected"), HEADERLESS_NAMES.items(), ids=HEADERLESS_NAMES)
def test_a_headerless_file_has_its_id_from_its_name(store: Store, tmp_path: Path, name: str, expected: str) -> None:
    """B06."""
    file = write(tmp_path / name, entry(1), entry(2, 1))
    assert store.import_paths([file]).imported == 1
    info = store.session(expected)
    assert info.paths == (str(file),)
    assert store.header(info) is None
    assert [e["id"] for e in store.entries(info)] == ["00000001", "00000002"]
    assert exported(store, info.id) == file.read_bytes()


def test_a_given_id_goes_before_the_file_name(store: Store, tmp_path: Path) -> None:
    """B06."""
    file = write(tmp_path / "x_y.jsonl", entry(1))
    store.import_paths([file], session_id="my-own")
    assert store.session("my-own").paths == (str(file),)
    with pytest.raises(SessionNotFoundError):
        store.session("y")


def test_a_header_that_comes_late_is_the_header(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "late_x.jsonl", entry(1), header("late-id", cwd="/late"), entry(2, 1))
    store.import_paths([file])
    info = store.session("late-id")
    assert info.cwd == "/late"
    assert [e["id"] for e in store.entries(info)] == ["00000001", "00000002"]
    assert (store.header(info) or {})["id"] == "late-id"


def test_a_broken_header_costs_no_entry(store: Store, tmp_path: Path) -> None:
    """B05: every good entry is kept, the file is left as it is, the line is named."""
    content = (BUGCASES / "bc06-bad-header.jsonl").read_bytes()
    file = write(tmp_path / "2026_lost.jsonl", content)
    report = store.import_paths([file])
    assert report.imported == 1
    assert [e["id"] for e in store.entries("lost")] == ["aaaa0001", "aaaa0002", "aaaa0003", "aaaa0004"]
    assert [(f.path, f.line) for f in report.faults] == [(str(file), 1)]
    assert file.read_bytes() == content


def test_identical_bytes_are_one_session_that_answers_to_both_paths(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "a/one.jsonl", header(), entry(1))
    two = write(tmp_path / "b/two.jsonl", header(), entry(1))
    report = store.import_paths([tmp_path / "a", tmp_path / "b"])
    assert (report.imported, report.unchanged, report.known_elsewhere) == (1, 1, 1)
    assert store.session(one).pk == store.session(two).pk
    assert sorted(store.session("s-1").paths) == [str(one), str(two)]
    assert len(store.sessions()) == 1


def test_equal_ids_with_different_bytes_are_two_sessions_and_a_warning(store: Store, tmp_path: Path) -> None:
    """B31."""
    one = write(tmp_path / "a.jsonl", header("harbor"), entry(1, text="task one"))
    two = write(tmp_path / "b.jsonl", header("harbor"), entry(1, text="task two"))
    report = store.import_paths([one, two])
    assert report.imported == 2
    assert any("harbor" in w for w in report.warnings)
    assert store.session(one).pk != store.session(two).pk
    assert store.session(one).grown_from is None
    assert store.session(two).grown_from is None
    with pytest.raises(AmbiguousSessionError) as caught:
        store.session("harbor")
    assert isinstance(caught.value, LookupError)
    assert len(set(caught.value.candidates)) == 2
    assert all(c in str(caught.value) for c in caught.value.candidates)
    assert {exported(store, one), exported(store, two)} == {one.read_bytes(), two.read_bytes()}


def test_a_session_answers_to_its_id_a_unique_prefix_and_every_path(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.jsonl", header("abc-123"), entry(1))
    write(tmp_path / "b.jsonl", header("abd-456"), entry(2))
    store.import_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    monkeypatch.chdir(tmp_path)
    for ref in ("abc-123", "abc", file, str(file), "a.jsonl", "./a.jsonl", store.session("abc")):
        assert store.session(ref).id == "abc-123", ref
    with pytest.raises(AmbiguousSessionError) as caught:
        store.session("ab")
    assert len(caught.value.candidates) == 2
    for unknown in ("zzz", str(tmp_path / "no.jsonl"), "ABC", "%", "*"):
        with pytest.raises(SessionNotFoundError):
            store.session(unknown)


def test_an_id_that_is_the_start_of_another_is_found_by_itself(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", header("run"), entry(1))
    write(tmp_path / "b.jsonl", header("run-2"), entry(2))
    store.import_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert store.session("run").id == "run"


@pytest.mark.parametrize("short_first", [True, False], ids=["short first", "long first"])
def test_a_session_exported_again_longer_is_linked_to_the_first(
    store: Store, tmp_path: Path, short_first: bool
) -> None:
    """B31, bc31a and bc31c: another header time and cwd, the same entries and more, in both orders of import."""
    short = write(
        tmp_path / "a.jsonl",
        header("harbor", timestamp="2026-03-02T10:00:00.000Z", cwd="/root/work"),
        entry(1, text="task one"),
        entry(2, 1, text="one", role="assistant"),
    )
    long = write(
        tmp_path / "c.jsonl",
        header("harbor", timestamp="2026-03-02T10:40:00.000Z", cwd="/srv/work"),
        entry(1, text="task one"),
        entry(2, 1, text="one", role="assistant"),
        entry(3, 2, text="more"),
    )
    for file in (short, long) if short_first else (long, short):
        assert store.import_paths([file]).imported == 1
    assert store.session(long).grown_from == store.session(short).pk
    assert store.session(short).grown_from is None
    assert {s.superseded for s in store.sessions()} == {False}
    assert len(store.sessions()) == 2


@pytest.mark.parametrize("short_first", [True, False], ids=["short first", "long first"])
def test_a_copy_that_went_on_elsewhere_is_linked(store: Store, tmp_path: Path, short_first: bool) -> None:
    short = write(tmp_path / "a.jsonl", header(), entry(1))
    long = write(tmp_path / "b.jsonl", header(), entry(1), entry(2, 1))
    for file in (short, long) if short_first else (long, short):
        store.import_paths([file])
    assert store.session(long).grown_from == store.session(short).pk
    assert exported(store, short) == short.read_bytes()


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


# Version 1 and entries without ids


def derived(session_id: str, line: int) -> str:
    return hashlib.sha256(session_id.encode() + b"\0" + str(line).encode()).hexdigest()[:8]


CASE_23 = (
    '{"type":"message","timestamp":"2025-01-01T00:00:01.000Z","message":{"role":"user","content":"one","timestamp":1},'
    '"id":"00000001","parentId":null}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text",'
    '"text":"1"}],"provider":"p","model":"m","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"cost":'
    '{"total":0}},"timestamp":2},"id":"00000002","parentId":"00000001"}\n'
    '{"type":"compaction","timestamp":"2025-01-01T00:00:03.000Z","summary":"S","tokensBefore":9,"id":"00000003",'
    '"parentId":"00000002","firstKeptEntryId":"00000002"}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:04.000Z","message":{"role":"custom","customType":"h","content":'
    '"hook","display":true,"timestamp":4},"id":"00000004","parentId":"00000003"}\n'
)
"""The entries of reference case 23 as pi, pi 1.6 and xcsh migrate them, with the reference's counted ids."""


def test_version_1_entries_have_the_client_s_shape_and_derived_ids(open_store: OpenStore, tmp_path: Path) -> None:
    """Reference case 23, keys in their order; the same ids in two databases, whatever the path."""
    expected = CASE_23
    for number in range(1, 5):
        expected = expected.replace(f"{number:08d}", derived("sess-1", number + 1))
    content = (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes()
    for place in ("a", "b"):
        file = write(tmp_path / place / "v1.jsonl", content)
        store = open_store(f"{place}.db")
        store.import_paths([file])
        assert b"".join(dump(e) for e in store.entries(file)).decode() == expected
        assert exported(store, file) == content
        assert store.session(file).version == 1


def test_derived_ids_count_physical_lines(store: Store, tmp_path: Path) -> None:
    """Blank and broken lines count, so a line keeps its id whatever stands between."""
    lines = [
        b"\n",
        header("ä-1", version=1),
        b"{broken\n",
        dump({"type": "message", "timestamp": "2026-01-01T00:00:01.000Z", "message": {"role": "user", "content": "a"}}),
        b"  \n",
        dump({"type": "message", "timestamp": "2026-01-01T00:00:02.000Z", "message": {"role": "user", "content": "b"}}),
    ]
    file = write(tmp_path / "s.jsonl", *lines)
    store.import_paths([file])
    first, second = store.entries(file)
    assert (first["id"], first["parentId"]) == (derived("ä-1", 4), None)
    assert (second["id"], second["parentId"]) == (derived("ä-1", 6), derived("ä-1", 4))


def test_a_headerless_file_without_ids_is_chained_with_ids_from_its_name(store: Store, tmp_path: Path) -> None:
    content = [
        dump(
            {"type": "message", "timestamp": f"2026-01-01T00:00:0{n}.000Z", "message": {"role": "user", "content": "a"}}
        )
        for n in range(3)
    ]
    file = write(tmp_path / "x_name.jsonl", *content)
    store.import_paths([file])
    ids = [derived("name", n) for n in (1, 2, 3)]
    assert [(e["id"], e["parentId"]) for e in store.entries(file)] == list(zip(ids, [None, *ids], strict=False))


def test_entries_without_ids_under_a_version_3_header_are_chained(store: Store, tmp_path: Path) -> None:
    """B26: linked in file order, index and old role understood, the bytes as they were."""
    file = write(tmp_path / "s.jsonl", (BUGCASES / "bc23-v1-entries-under-v3-header.jsonl").read_bytes())
    store.import_paths([file])
    ids = [derived("019c0000-0000-7000-8000-000000000023", n) for n in (2, 3, 4, 5)]
    entries = store.entries(file)
    assert [e["id"] for e in entries] == ids
    assert [e["parentId"] for e in entries] == [None, *ids[:3]]
    assert exported(store, file) == file.read_bytes()
    (root,) = store.tree(file)
    assert root["entry"]["id"] == ids[0]


def test_old_fields_under_a_version_3_header_are_understood(store: Store, tmp_path: Path) -> None:
    """B26: firstKeptEntryIndex and hookMessage as in version 1."""
    file = write(tmp_path / "s.jsonl", (BUGCASES / "bc23-v1-entries-under-v3-header.jsonl").read_bytes())
    store.import_paths([file])
    _, kept, compacted, hook = store.entries(file)
    assert compacted.get("firstKeptEntryId") == kept["id"]
    assert hook["message"]["role"] == "custom"


# Broken and odd lines


RECOVERED = {
    # name: (file, ids, [(line, first byte of the line, byte behind it)])
    "bc01 torn tail": ("bc01-torn-tail.jsonl", ["aaaa0001", "aaaa0002", "aaaa0003", "aaaa0004"], [6]),
    "bc02 torn, then fused": (
        "bc02-torn-then-fused.jsonl",
        ["bbbb0001", "bbbb0002", "bbbb0003", "bbbb0005", "bbbb0006"],
        [5],
    ),
    "bc03 two on one line": (
        "bc03-two-objects-one-line.jsonl",
        ["cccc0001", "cccc0002", "cccc0003", "cccc0004", "cccc0005"],
        [3],
    ),
}


@pytest.mark.parametrize("case", RECOVERED.values(), ids=RECOVERED)
def test_whole_entries_of_torn_and_glued_lines_are_recovered_and_reported_once(
    store: Store, tmp_path: Path, case: tuple[str, list[str], list[int]]
) -> None:
    """B01, B02, B03: the report names line and byte offset, the list of faults too, the bytes stay."""
    name, ids, lines = case
    content = (BUGCASES / name).read_bytes()
    file = write(tmp_path / name, content)
    report = store.import_paths([file])
    assert [e["id"] for e in store.entries(file)] == ids
    assert report.fault_count == len(report.faults) == len(lines)
    assert [f.line for f in report.faults] == lines
    starts = [0]
    for raw in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(raw))
    for fault in report.faults:
        assert starts[fault.line - 1] <= fault.offset <= starts[fault.line]
    assert [(f["line"], f["offset"]) for f in store.faults(file)] == [(f.line, f.offset) for f in report.faults]
    assert exported(store, file) == content
    assert store.session(file).entry_count == len(ids)


ODD_BYTES = {
    # name: (golden file, ids, lines with a fault)
    "bc08 line separators": ("bc08-raw-line-separators.jsonl", ["dddd0001", "dddd0002"]),
    "bc10 lone surrogates": ("bc10-lone-surrogate.jsonl", ["ffff0001", "ffff0002", "ffff0003"]),
    "bc11 NUL": ("bc11-nul-escape.jsonl", ["abab0001", "abab0002"]),
    "bc13 BOM and CR LF": ("bc13-bom-crlf.jsonl", ["adad0001", "adad0002"]),
    "bc29 blank lines": ("bc29-blank-lines.jsonl", ["aaaa0001", "aaaa0002", "aaaa0003", "aaaa0004"]),
}


@pytest.mark.parametrize("case", ODD_BYTES.values(), ids=ODD_BYTES)
def test_odd_bytes_lose_no_entry(store: Store, tmp_path: Path, case: tuple[str, list[str]]) -> None:
    """B07, B09, B10, B12, B14, B15."""
    name, ids = case
    file = write(tmp_path / name, (BUGCASES / name).read_bytes())
    assert store.import_paths([file]).imported == 1
    assert [e["id"] for e in store.entries(file)] == ids
    info = store.session(file)
    assert (info.entry_count, info.line_count) == (len(ids), file.read_bytes().count(b"\n"))
    assert info.id.startswith("019c0000-")
    assert exported(store, file) == file.read_bytes()


def test_a_byte_order_mark_hides_no_header(store: Store, tmp_path: Path) -> None:
    """B14."""
    store.import_paths([write(tmp_path / "s.jsonl", (BUGCASES / "bc13-bom-crlf.jsonl").read_bytes())])
    (info,) = store.sessions()
    assert (info.id, info.cwd, info.fault_count) == ("019c0000-0000-7000-8000-000000000013", "C:\\Users\\dev\\shop", 0)
    assert info.first_message == "line one\r\nline two"


def test_a_lone_surrogate_is_kept_in_the_entry_and_replaced_in_text(store: Store, tmp_path: Path) -> None:
    """B09, B10, B11: one bad entry blocks nothing behind it."""
    file = write(
        tmp_path / "s.jsonl",
        header(),
        entry(1, text="XX").replace(b"XX", rb"cut \ud83d here"),
        entry(2, 1, text="after"),
    )
    store.import_paths([file])
    first, second = store.entries(file)
    assert first["message"]["content"] == "cut \ud83d here"
    assert second["message"]["content"] == "after"
    info = store.session(file)
    assert info.first_message == "cut \ufffd here"
    assert [s.pk for s in store.sessions(query="here")] == [info.pk]
    assert [f["line"] for f in store.faults(file)] == [2]
    json.dumps(info.to_dict(), ensure_ascii=False).encode()


def test_text_behind_a_nul_is_there_and_found(store: Store, tmp_path: Path) -> None:
    """B12."""
    file = write(tmp_path / "s.jsonl", header(), entry(1, text="x\0y tail-after-nul"))
    store.import_paths([file])
    assert store.entries(file)[0]["message"]["content"] == "x\0y tail-after-nul"
    assert (store.session(file).first_message or "").endswith("tail-after-nul")
    assert len(store.sessions(query="tail-after-nul")) == 1


def test_bytes_that_are_no_utf_8_are_replaced_in_the_entry_and_kept_in_the_line(store: Store, tmp_path: Path) -> None:
    """B13."""
    file = write(tmp_path / "s.jsonl", header(), entry(1, text="QQ").replace(b"QQ", b"a\xffb\xe2\x82c"), entry(2, 1))
    store.import_paths([file])
    assert [e["message"]["content"] for e in store.entries(file)] == ["a\ufffdb\ufffdc", "hi"]
    assert exported(store, file) == file.read_bytes()


# Trees that do not close


def ids_of(roots: list[Any]) -> Iterator[str]:
    """Every entry id of a tree, without recursion; fails when there are more nodes than any of these files has."""
    stack = list(roots)
    count = 0
    while stack:
        node = stack.pop()
        count += 1
        assert count <= 30_000, "the tree does not end"
        yield node["entry"]["id"]
        stack.extend(node["children"])


LONG = 10_000
GRAPHS: dict[str, list[tuple[int, int | None]]] = {
    "self parent": [(1, None), (2, 2), (3, 2)],
    "first is its own parent": [(1, 1), (2, 1)],
    "two in a ring": [(1, 2), (2, 1)],
    "three in a ring and a tail": [(1, 3), (2, 1), (3, 2), (4, 3), (5, 4)],
    "orphan": [(1, None), (2, 1), (3, 99), (4, 3)],
    "parents that come later": [(1, 2), (2, 3), (3, None)],
    "two rings": [(1, 2), (2, 1), (3, 4), (4, 3)],
    "a long ring": [(n, n % LONG + 1) for n in range(1, LONG + 1)],
    "a long chain backwards": [(n, n + 1 if n < LONG else None) for n in range(1, LONG + 1)],
    "a long chain": [(n, n - 1 or None) for n in range(1, LONG + 1)],
    "many children": [(1, None), *((n, 1) for n in range(2, LONG))],
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_no_shape_of_parents_loops_or_loses_an_entry(
    store: Store, tmp_path: Path, graph: list[tuple[int, int | None]]
) -> None:
    """Invariant 6; B18, B72: every entry stands once in the tree, whatever the parents say."""
    file = write(tmp_path / "s.jsonl", header(), *(entry(n, parent) for n, parent in graph))
    assert store.import_paths([file]).imported == 1
    wanted = [f"{n:08x}" for n, _ in graph]
    assert [e["id"] for e in store.entries(file)] == wanted
    assert sorted(ids_of(store.tree(file))) == sorted(wanted)
    assert exported(store, file) == file.read_bytes()


def test_self_parents_cycles_and_orphans_are_named(store: Store, tmp_path: Path) -> None:
    """B18: which line, and no entry is given another parent in what is read."""
    graphs = {"self": ([(1, None), (2, 2)], 3), "orphan": ([(1, None), (2, 99)], 3)}
    for name, (graph, line) in graphs.items():
        file = write(tmp_path / f"{name}.jsonl", header(name), *(entry(n, p) for n, p in graph))
        store.import_paths([file])
        assert [f["line"] for f in store.faults(file)] == [line], name
        assert [e["parentId"] for e in store.entries(file)] == [p and f"{p:08x}" for _, p in graph]
    ring = write(tmp_path / "ring.jsonl", header("ring"), entry(1, 2), entry(2, 1))
    store.import_paths([ring])
    assert len(store.faults(ring)) == 1


def test_duplicate_ids_are_all_kept_and_told(store: Store, tmp_path: Path) -> None:
    """B19: also when they close a ring, where the clients hang."""
    lines = [entry(1, None, "a"), entry(2, 1, "b"), entry(1, 2, "c"), entry(3, 1, "d"), entry(3, 1, "d")]
    file = write(tmp_path / "s.jsonl", header(), *lines)
    store.import_paths([file])
    assert [e["message"]["content"] for e in store.entries(file)] == ["a", "b", "c", "d", "d"]
    assert {f["line"] for f in store.faults(file)} >= {4, 6}
    assert set(ids_of(store.tree(file))) == {"00000001", "00000002", "00000003"}
    assert json.loads(store.raw_entry(file, "00000001"))["message"]["content"] == "c"


def test_values_that_are_no_objects_and_unknown_types_are_kept(store: Store, tmp_path: Path) -> None:
    """B29."""
    odd = b'42\n"x"\n[]\ntrue\nnull\n'
    future = dump(
        {"type": "hologram", "id": "000000aa", "parentId": "00000001", "timestamp": "2026-01-01T00:00:09.000Z"}
    )
    file = write(tmp_path / "s.jsonl", header(version=9), entry(1), odd, future)
    assert store.import_paths([file]).imported == 1
    assert {f["line"] for f in store.faults(file)} >= {3, 4, 5, 6, 7}
    assert "hologram" in [e["type"] for e in store.entries(file) if isinstance(e, dict)]
    assert store.session(file).version == 9
    assert exported(store, file) == file.read_bytes()


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


# Blobs


def with_blobs(*references: str) -> bytes:
    blocks = [{"type": "image", "mimeType": "image/png", "data": f"blob:sha256:{r}"} for r in references]
    return entry(7, None, blocks)


@pytest.mark.parametrize("blob_folder", ["agent/blobs", "agent/sessions/--w--/blobs"], ids=["agent's", "beside"])
def test_blobs_that_a_session_refers_to_come_along(store: Store, tmp_path: Path, blob_folder: str) -> None:
    content, other = b"\x89PNG picture", b"nobody refers to this"
    write(tmp_path / blob_folder / sha(content), content)
    write(tmp_path / blob_folder / sha(other), other)
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(sha(content)))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, report.missing_blobs) == (1, 1, [])
    assert store.blobs.get(sha(content)) == content
    assert store.blobs.get(sha(other)) is None


def test_only_64_lower_case_hex_digits_are_ever_followed(store: Store, tmp_path: Path) -> None:
    content = b"secret"
    digest = sha(content)
    suffixes = [
        "../../secret",
        "../blobs/" + digest,
        digest.upper(),
        digest[:63],
        digest + "0",
        sha(b"nowhere") + "/../../secret",
        digest[:62] + "..",
        "/etc/passwd",
        "",
        digest[:-1] + "g",
    ]
    agent = tmp_path / "agent"
    for name in ("blobs/" + digest, "secret", "sessions/secret", *("blobs/" + s for s in suffixes if s.isalnum())):
        write(agent / name, content)
    write(agent / "sessions/--w--/s.jsonl", header(), with_blobs(*suffixes))
    report = store.import_paths([agent])
    assert (report.imported, report.blobs) == (1, 0)
    assert store.sql("SELECT count(*) AS n FROM blob") == [{"n": 0}]
    assert store.blobs.get(digest) is None


def test_a_blob_with_another_s_name_is_not_taken(store: Store, tmp_path: Path) -> None:
    digest = sha(b"right")
    write(tmp_path / "agent/blobs" / digest, b"wrong")
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(digest))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, len(report.missing_blobs)) == (1, 0, 1)
    assert store.blobs.get(digest) is None


def test_a_blob_that_is_no_regular_file_does_not_stop_the_import(store: Store, tmp_path: Path) -> None:
    fifo, folder = sha(b"fifo"), sha(b"folder")
    (tmp_path / "agent/blobs" / folder).mkdir(parents=True)
    os.mkfifo(tmp_path / "agent/blobs" / fifo)
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(fifo, folder))
    report = store.import_paths([tmp_path / "agent"])
    assert (report.imported, report.blobs, len(report.missing_blobs)) == (1, 0, 2)


def test_a_blob_that_comes_later_is_taken_by_the_next_import(store: Store, tmp_path: Path) -> None:
    content = b"late picture"
    write(tmp_path / "agent/sessions/--w--/s.jsonl", header(), with_blobs(sha(content)))
    first = store.import_paths([tmp_path / "agent"])
    assert (first.imported, first.blobs, len(first.missing_blobs)) == (1, 0, 1)
    write(tmp_path / "agent/blobs" / sha(content), content)
    second = store.import_paths([tmp_path / "agent"])
    assert (second.imported, second.unchanged, second.blobs, second.missing_blobs) == (0, 1, 1, [])
    assert store.blobs.get(sha(content)) == content


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
