"""What is taken in and what is not; what is known of a session then (DESIGN, "What is a session", "Dialect")."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sessiondb import Store
from sessiondb.jsonl import encode_entry, encode_title_slot
from sessiondb.report import Progress

T = "2026-01-01T00:00:00.000Z"
HEADER: dict[str, object] = {"type": "session", "version": 3, "id": "s", "timestamp": T, "cwd": "/w"}
SLOT = encode_title_slot("Slot", updated_at=T)


def jsonl(*entries: dict[str, object] | bytes) -> bytes:
    return b"".join(e if isinstance(e, bytes) else encode_entry(e) + b"\n" for e in entries)


Line = dict[str, object]


def entry(kind: str, entry_id: str = "1", parent: str | None = None, **more: object) -> Line:
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": T, **more}


def message(role: str, content: object, entry_id: str = "1", parent: str | None = None, **more: object) -> Line:
    return entry("message", entry_id, parent, message={"role": role, "content": content, **more})


def test_what_is_no_session_file_is_skipped_and_named(store: Store, tmp_path: Path) -> None:
    """B13, B15: one bad file stops nothing."""
    folder = tmp_path / "in"
    (folder / "folder.jsonl").mkdir(parents=True)
    (folder / "empty.jsonl").touch()
    (folder / "blank.jsonl").write_bytes(b"\n \t\r\n\n")
    (folder / "binary.jsonl").write_bytes(bytes(range(256)).replace(b"\n", b"") * 3)
    (folder / "text.jsonl").write_bytes(b"hello\nworld {}\n")
    (folder / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (folder / "folder.jsonl/inside.jsonl").write_bytes(jsonl(HEADER))
    (folder / "notes.md").write_text("{}")
    os.mkfifo(folder / "fifo.jsonl")
    report = store.import_paths([folder, tmp_path / "missing.jsonl"])
    assert report.imported == 1
    assert {Path(s.path).name: s.reason for s in report.skipped} == {
        "empty.jsonl": "empty",
        "blank.jsonl": "no line starts with {: not a session file",
        "binary.jsonl": "no line starts with {: not a session file",
        "text.jsonl": "no line starts with {: not a session file",
        "dangling.jsonl": "a link to nothing",
        "fifo.jsonl": "a FIFO, not a regular file",
        "missing.jsonl": "no such file or directory",
    }
    assert report.ignored == {".md": 1}


def test_a_named_file_is_taken_whatever_it_is_called_and_leftovers_are_reported(store: Store, tmp_path: Path) -> None:
    names = (".a.jsonl.13c95.tmp", "b.jsonl.17c.bak", "plain")
    for name in names:
        (tmp_path / name).write_bytes(jsonl(HEADER | {"id": name}))
    report = store.import_paths([tmp_path])
    assert (report.imported, sorted(report.leftovers)) == (0, sorted(str(tmp_path / n) for n in names[:2]))
    assert store.import_paths([tmp_path / name for name in names]).imported == 3


def test_folder_links_are_followed_once_and_loops_end(store: Store, tmp_path: Path) -> None:
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/a.jsonl").write_bytes(jsonl(HEADER))
    (tmp_path / "in/deep/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/again").symlink_to(tmp_path / "in/deep")
    report = store.import_paths([tmp_path / "in"])
    assert (report.files, report.imported) == (1, 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("2026-01-01T00-00-00-000Z_ab-1.jsonl", "ab-1"), ("one.jsonl", "one"), ("x_y_z.jsonl", "z"), ("x_.jsonl", "x_")],
)
def test_a_file_without_header_has_the_id_of_its_name(store: Store, tmp_path: Path, name: str, expected: str) -> None:
    """B06, bc07."""
    (tmp_path / name).write_bytes(jsonl(message("user", "hi")))
    store.import_paths([tmp_path / name])
    assert store.session(tmp_path / name).id == expected


def test_an_id_that_is_given_stands_for_a_missing_one_only(store: Store, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_bytes(jsonl(message("user", "hi")))
    (tmp_path / "own.jsonl").write_bytes(jsonl(HEADER))
    store.import_paths([tmp_path], session_id="given")
    assert [store.session(tmp_path / n).id for n in ("none.jsonl", "own.jsonl")] == ["given", "s"]


MARKS: dict[str, tuple[list[Line | bytes], str, str]] = {
    "slot": ([SLOT, HEADER], "omp", "lines: title slot"),
    "fallback": ([HEADER, entry("model_change", model="a/b", resolvedModelIsFallback=False)], "omp",
                 "lines: resolvedModelIsFallback"),
    "credential_pin": ([HEADER, entry("credential_pin")], "omp", "lines: credential_pin"),
    "model": ([HEADER, entry("model_change", model="a/b")], "xcsh", "lines: model_change.model"),
    "mode": ([HEADER, entry("mode_change", mode="plan")], "xcsh", "lines: mode_change"),
    "fromExtension": ([HEADER, entry("compaction", fromExtension=False)], "xcsh", "lines: fromExtension"),
    "attribution": ([HEADER, entry("custom_message", attribution="agent")], "xcsh", "lines: attribution"),
    "modelId": ([HEADER, entry("model_change", provider="a", modelId="b")], "pi", "lines: modelId"),
    "session_info": ([HEADER, entry("session_info", name="n")], "pi", "lines: session_info"),
    "omp before xcsh": ([HEADER, entry("mode_change"), entry("title_change", "2", "1")], "omp", "lines: title_change"),
    "xcsh before pi": ([HEADER, entry("session_info"), entry("session_init", "2", "1")], "xcsh", "lines: session_init"),
    "none": ([HEADER, message("user", "hi")], "pi", "default"),
}  # fmt: skip


@pytest.mark.parametrize("name", MARKS)
def test_the_dialect_is_told_from_marks_in_the_lines(store: Store, tmp_path: Path, name: str) -> None:
    lines, dialect, reason = MARKS[name]
    (tmp_path / "a.jsonl").write_bytes(jsonl(*lines))
    store.import_paths([tmp_path])
    info = store.session(tmp_path / "a.jsonl")
    assert (info.dialect, info.dialect_reason) == (dialect, reason)


FOLDERS = [(".pi", "pi"), (".omp", "omp"), (".xcsh", "xcsh"), (".openclaw", "pi")]


@pytest.mark.parametrize(("folder", "dialect"), FOLDERS)
def test_without_marks_the_folder_tells_the_dialect_and_a_given_one_comes_first(
    store: Store, tmp_path: Path, folder: str, dialect: str
) -> None:
    file = tmp_path / folder / "agent/sessions/a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(jsonl(HEADER))
    store.import_paths([tmp_path])
    assert (store.session(file).dialect, store.session(file).dialect_reason) == (dialect, f"folder {folder}")
    (tmp_path / "b.jsonl").write_bytes(jsonl(HEADER | {"id": "b"}, entry("session_info")))
    store.import_paths([tmp_path / "b.jsonl"], dialect="omp")
    assert (store.session("b").dialect, store.session("b").dialect_reason) == ("omp", "given")
    assert store.import_paths([file], dialect="xcsh").updated == 1
    assert (store.session(file).dialect, store.session(file).dialect_reason) == ("xcsh", "given")
    assert store.import_paths([file], dialect="xcsh").updated == 0


NAMED_A = entry("session_info", name="a")
TITLES: dict[str, tuple[list[Line | bytes], str | None]] = {
    "pi: the last name, trimmed": ([HEADER, NAMED_A, entry("session_info", "2", "1", name=" b ")], "b"),
    "pi: an empty name is none": ([HEADER, NAMED_A, entry("session_info", "2", "1", name="")], None),
    "pi: the header's title is ignored": ([HEADER | {"title": "h"}, entry("session_info", name="n")], "n"),
    "xcsh: the header's title": ([HEADER | {"title": "h"}, entry("mode_change")], "h"),
    "xcsh: else the last short summary": (
        [HEADER, entry("compaction", fromExtension=True, shortSummary="one"),
         entry("compaction", "2", "1", shortSummary="two")], "two"),
    "omp: the slot": ([SLOT, HEADER | {"title": "h"}], "Slot"),
    "omp: an empty slot is no title": ([encode_title_slot("", updated_at=T), HEADER | {"title": "h"}], None),
}  # fmt: skip


@pytest.mark.parametrize("name", TITLES)
def test_the_title_is_the_one_the_client_lists(store: Store, tmp_path: Path, name: str) -> None:
    lines, title = TITLES[name]
    (tmp_path / "a.jsonl").write_bytes(jsonl(*lines))
    store.import_paths([tmp_path])
    assert store.session("s").title == title


def test_counts_times_and_first_message(store: Store, tmp_path: Path) -> None:
    """B37: activity is the messages' own time, never the file's."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        jsonl(
            HEADER,
            message("assistant", [{"type": "text", "text": "first"}], "1", timestamp=1_767_225_700_000),
            message("user", [{"type": "image"}, *({"type": "text", "text": t} for t in ("Hello", "you"))], "2", "1"),
            message("toolResult", "x", "3", "2", timestamp=1_999_999_999_999),
            entry("custom", "4", "3"),
        )
    )
    os.utime(file, (0, 0))
    store.import_paths([file])
    info = store.session("s")
    assert (info.message_count, info.entry_count, info.line_count) == (3, 4, 5)
    assert (info.created_ms, info.modified_ms) == (1_767_225_600_000, 1_767_225_700_000)
    assert info.first_message == "Hello you"
    assert file.stat().st_mtime == 0


def test_a_time_that_cannot_be_does_not_rank_first(store: Store, tmp_path: Path) -> None:
    for name, stamp in (("past", 1_700_000_000_000), ("micro", 1_760_000_000_000_000), ("ahead", 4_000_000_000_000)):
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(HEADER | {"id": name}, message("user", "x", timestamp=stamp)))
    junk = HEADER | {"id": "junk", "timestamp": "soon"}
    (tmp_path / "junk.jsonl").write_bytes(jsonl(junk, entry("custom") | {"timestamp": 1.5}))
    store.import_paths([tmp_path])
    assert [s.id for s in store.sessions()] == ["micro", "past", "junk", "ahead"]


def test_lists_filter_all_sessions_before_they_page(store: Store, tmp_path: Path) -> None:
    """B39: nothing beyond a cap is out of reach."""
    for number in range(250):
        day = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000Z"
        head = HEADER | {"id": f"n{number:03d}", "timestamp": day, "cwd": f"/w{number % 2}"}
        said = message("user", f"Größe {number % 5}") | {"timestamp": day}
        (tmp_path / f"{number}.jsonl").write_bytes(jsonl(head, said))
    store.import_paths([tmp_path])
    assert len(store.sessions()) == 250
    assert [s.id for s in store.sessions(cwd="/w1", query="GRÖSSE 3", limit=2)] == ["n243", "n233"]
    assert [s.id for s in store.sessions(cwd="/w1", query="größe 3", limit=99, offset=24)] == ["n003"]
    assert [s.id for s in store.sessions(until_ms=1_767_225_602_000)] == ["n001", "n000"]


BLOB = b"\x89PNG pretend"
HASH = hashlib.sha256(BLOB).hexdigest()


def with_blob(tmp_path: Path, reference: str) -> Path:
    file = tmp_path / "agent/sessions/--w--/a.jsonl"
    file.parent.mkdir(parents=True)
    image = {"type": "image", "data": reference, "mimeType": "image/png"}
    file.write_bytes(jsonl(HEADER, message("user", [image])))
    (tmp_path / "agent/blobs").mkdir()
    return file


def test_blobs_beside_a_session_come_along_and_later_ones_too(store: Store, tmp_path: Path) -> None:
    file = with_blob(tmp_path, f"blob:sha256:{HASH}")
    report = store.import_paths([tmp_path])
    assert (report.blobs, len(report.missing_blobs)) == (0, 1)
    assert not next(store.verify()).is_deletable
    (tmp_path / "agent/blobs" / HASH).write_bytes(b"other bytes")
    assert "another digest" in store.import_paths([tmp_path]).missing_blobs[0].reason
    (tmp_path / "agent/blobs" / HASH).write_bytes(BLOB)
    report = store.import_paths([tmp_path])
    assert (report.unchanged, report.blobs, report.missing_blobs) == (1, 1, [])
    assert store.blobs.get(HASH) == BLOB
    assert next(store.verify(file)).is_deletable


@pytest.mark.parametrize("suffix", ["../../../secret", HASH.upper(), HASH[:-1], HASH + "0", HASH + "/../x", ""])
def test_only_64_lower_case_hex_digits_are_ever_followed(store: Store, tmp_path: Path, suffix: str) -> None:
    with_blob(tmp_path, f"blob:sha256:{suffix}")
    (tmp_path / "agent/blobs" / HASH).write_bytes(BLOB)
    report = store.import_paths([tmp_path])
    assert (report.blobs, report.missing_blobs, store.blobs.get(HASH)) == (0, [], None)


def test_a_dry_run_counts_the_same_and_writes_nothing(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.jsonl").write_bytes(jsonl(HEADER | {"id": "c" if name == "b" else name}, b"broken\n"))
    (folder / "c.jsonl").write_bytes((folder / "b.jsonl").read_bytes())
    before = store.sql("SELECT count(*) AS n FROM line"), store.path.read_bytes()
    rehearsed = store.import_paths([folder], dry_run=True)
    assert (store.sql("SELECT count(*) AS n FROM line"), store.path.read_bytes()) == before
    real = store.import_paths([folder])
    for name in ("imported", "unchanged", "known_elsewhere", "fault_count", "files", "bytes_read"):
        assert getattr(rehearsed, name) == getattr(real, name), name
    assert real.imported == 2


def test_two_imports_in_a_row_change_no_row_and_no_source(store: Store, tmp_path: Path, corpus: Path) -> None:
    tables = ("session", "line", "entry", "fault", "source", "root", "blob", "blob_reference")

    def dump() -> list[object]:
        return [store.sql(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]

    folder = tmp_path / "in"
    folder.mkdir()
    for file in (corpus / "bugcases").glob("*.jsonl"):
        (folder / file.name).write_bytes(file.read_bytes())
    before = {f: (f.read_bytes(), f.stat().st_mtime_ns, f.stat().st_mode) for f in folder.iterdir()}
    store.import_paths([folder])
    first = dump()
    report = store.import_paths([folder])
    assert (report.imported, report.updated) == (0, 0)
    assert dump() == first
    assert {f: (f.read_bytes(), f.stat().st_mtime_ns, f.stat().st_mode) for f in folder.iterdir()} == before


def test_the_database_itself_is_never_opened_as_a_source(store: Store) -> None:
    """Invariant 9: its plain close would drop SQLite's locks."""
    link = store.path.with_name("link")
    link.symlink_to(store.path.parent)
    report = store.import_paths([store.path, link / store.path.name])
    assert [s.reason for s in report.skipped] == ["the database itself"] * 2


def test_progress_reaches_its_totals(store: Store, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(HEADER | {"id": name}))
    seen: list[Progress] = []
    store.import_paths([tmp_path], on_progress=seen.append)
    assert [p.files for p in seen] == [0, 1, 2, 3]
    assert (seen[-1].files_total, seen[-1].bytes) == (3, seen[-1].bytes_total)


def test_without_paths_every_known_agent_folder_is_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = Path(os.environ["HOME"])
    places = [".pi/agent/sessions/--a--/1", ".omp/agent/sessions/-a/2", ".xcsh/agent/sessions/x/3",
              ".openclaw/agents/main/sessions/4", ".pi/agent/5"]  # fmt: skip
    for place in places:
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / f"{place}.jsonl").write_bytes(jsonl(HEADER | {"id": place[-1]}))
    (tmp_path / "named/sessions").mkdir(parents=True)
    (tmp_path / "named/sessions/6.jsonl").write_bytes(jsonl(HEADER | {"id": "6"}))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "named"))
    assert store.import_paths().imported == 6
    assert {s.id for s in store.sessions()} == set("123456")


def test_four_processes_importing_one_folder_take_each_session_once(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(60):
        said = [message("user", "x" * 500, str(i)) for i in range(20)]
        (folder / f"{number}.jsonl").write_bytes(jsonl(HEADER | {"id": str(number)}, *said))
    store = open_store()
    code = (
        "import sys; from sessiondb import Store, batch; batch.BATCH_BYTES = 20_000\n"
        "with Store.open(sys.argv[1]) as store: print(store.import_paths([sys.argv[2]]).imported)"
    )
    args = [sys.executable, "-c", code, str(store.path), str(folder)]
    children = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    outcomes = [child.communicate(timeout=120) for child in children]
    assert [error for _, error in outcomes] == [""] * 4
    assert sum(int(out) for out, _ in outcomes) == 60
    assert len(store.sessions()) == 60


def test_trees_that_loop_or_dangle_are_cut_and_flagged(store: Store, tmp_path: Path) -> None:
    """Invariant 6; B18, B19, B72."""
    chain = [entry("custom", f"c{i}", f"c{(i + 1) % 2000}") for i in range(2000)]
    odd = [entry("custom", "self", "self"), entry("custom", "lost", "nobody"), entry("custom", "early", "late"),
           entry("custom", "late"), entry("custom", "twin", "early"), entry("custom", "twin", "twin")]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(jsonl(HEADER, *chain, *odd))
    store.import_paths([tmp_path])
    kinds = [(f["line"], f["kind"]) for f in store.faults("s")]
    assert kinds == [
        (2001, "cycle"), (2002, "cycle"), (2003, "unknown-parent"), (2007, "duplicate-id"), (2007, "cycle"),
    ]  # fmt: skip
    roots = store.tree("s")
    assert [r["entry"]["id"] for r in roots] == ["c1999", "self", "lost", "late", "twin"]
    depths = store.sql("SELECT entry_id, depth FROM entries WHERE entry_id IN ('c0', 'early', 'twin') ORDER BY pk")
    assert [d["depth"] for d in depths] == [1999, 1, 2, 0]
