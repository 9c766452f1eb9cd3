"""What an export writes: each form's bytes, where, and nothing besides (the issue's part 5; invariants 1, 3)."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.errors import ExportExistsError, SessionDBError, SessionNotFoundError
from sessiondb.places import file_name, folder_for_cwd
from tests.support import CASE_23, GOLDEN, OpenStore, derived, dump, entry, exported, header, sha, with_blobs, write

FORMS = ["as-is", "original", "current"]


# Forms


CASE_23_CURRENT = (
    '{"type":"session","id":"sess-1","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/tmp","version":3}\n' + CASE_23
)
"""Reference case 23 as pi leaves the file after opening it, with the reference's counted ids."""


def test_the_current_form_of_version_1_is_the_client_s_file_with_our_ids(store: Store, tmp_path: Path) -> None:
    expected = CASE_23_CURRENT
    for number in range(1, 5):
        expected = expected.replace(f"{number:08d}", derived("sess-1", number + 1))
    file = write(tmp_path / "s.jsonl", (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes())
    store.import_paths([file])
    assert exported(store, file, "current").decode() == expected
    assert exported(store, file) == exported(store, file, "original") == file.read_bytes()


def test_the_current_form_of_version_2_is_rewritten_as_json_stringify_does(store: Store, tmp_path: Path) -> None:
    file = write(
        tmp_path / "s.jsonl",
        b'{"type": "session", "version": 2, "id": "v2", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}\r\n',
        b"\n",
        b'{"type":"custom","customType":"n","data":{"b":1.0,"2":1e3,"x":"\\u00e9\\/"},"id":"a","parentId":null,'
        b'"timestamp":"2026-01-01T00:00:01.000Z"}\n',
        b'{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:02.000Z",'
        b'"message":{"role":"hookMessage","content":"h"}}',
    )
    store.import_paths([file])
    assert exported(store, file, "current").decode() == (
        '{"type":"session","version":3,"id":"v2","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'
        '{"type":"custom","customType":"n","data":{"2":1000,"b":1,"x":"é/"},"id":"a","parentId":null,'
        '"timestamp":"2026-01-01T00:00:01.000Z"}\n'
        '{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:02.000Z",'
        '"message":{"role":"custom","content":"h"}}\n'
    )
    assert exported(store, file) == file.read_bytes()


def test_the_current_form_gives_recovered_entries_lines_of_their_own(store: Store, tmp_path: Path) -> None:
    """B03: the glued compaction of a version 1 file, which pi loses."""
    message = {"type": "message", "timestamp": "2026-01-01T00:00:01.000Z", "message": {"role": "user", "content": "x"}}
    compaction = {"type": "compaction", "timestamp": "2026-01-01T00:00:02.000Z", "summary": "s", "tokensBefore": 1}
    file = write(
        tmp_path / "s.jsonl",
        dump({"type": "session", "id": "old", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}),
        dump(message)[:-1] + dump(compaction),
        dump(message),
    )
    store.import_paths([file])
    lines = [json.loads(line) for line in exported(store, file, "current").splitlines()]
    assert [line["type"] for line in lines] == ["session", "message", "compaction", "message"]
    assert [line["parentId"] for line in lines[1:]] == [None, lines[1]["id"], lines[2]["id"]]
    assert len({line["id"] for line in lines}) == 4


def test_the_current_form_is_a_version_3_file_with_the_same_entries(open_store: OpenStore, tmp_path: Path) -> None:
    file = write(tmp_path / "v1.jsonl", (GOLDEN / "cases/23-v1-compaction.jsonl").read_bytes())
    first, second = open_store("first.db"), open_store("second.db")
    first.import_paths([file])
    first.export(file, tmp_path / "v3.jsonl", "current")
    second.import_paths([tmp_path / "v3.jsonl"])
    info = second.session(tmp_path / "v3.jsonl")
    assert (info.version, info.fault_count) == (3, 0)
    assert second.entries(info) == first.entries(file)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content",
    {
        "plain": header() + entry(1),
        "no newline at the end": header() + entry(1)[:-1],
        "spaced, CR LF, blank lines": header().replace(b":", b": ") + b"\r\n\n" + entry(1).replace(b"\n", b"\r\n"),
        "broken and glued lines": header() + b"{torn\n" + entry(1)[:-1] + entry(2, 1),
        "a later version": header(version=7) + entry(1),
        "the version as text": header(version="3") + entry(1),
    }.items(),
    ids=lambda case: case[0],
)
def test_a_file_of_version_3_or_later_comes_out_untouched_in_every_form(
    store: Store, tmp_path: Path, content: tuple[str, bytes], form: str
) -> None:
    file = write(tmp_path / "s.jsonl", content[1])
    store.import_paths([file])
    assert exported(store, file, form) == content[1]  # type: ignore[arg-type]  # one of FORMS


# Where it goes


def test_a_stream_gets_the_bytes_and_stays_open(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), *(entry(n) for n in range(500)))
    store.import_paths([file])
    out = io.BytesIO(b"before ")
    out.seek(0, io.SEEK_END)
    size = store.export("s-1", out)
    assert (out.getvalue(), size) == (b"before " + file.read_bytes(), file.stat().st_size)
    assert not out.closed


class Stubborn(io.RawIOBase):
    """Takes a few bytes a call, as a pipe may."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        piece = bytes(content)[:7]  # type: ignore[call-overload]  # a buffer of bytes
        self.taken += piece
        return len(piece)


def test_a_stream_that_takes_a_few_bytes_a_call_gets_them_all(store: Store, tmp_path: Path) -> None:
    """B60: a short write is no success."""
    file = write(tmp_path / "s.jsonl", header(), entry(1), entry(2, 1))
    store.import_paths([file])
    out = Stubborn()
    store.export("s-1", out)  # type: ignore[arg-type]  # a raw stream is one too
    assert bytes(out.taken) == file.read_bytes()


def test_a_refused_export_touches_nothing(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))
    store.import_paths([file])
    out = write(tmp_path / "out/mine.txt", b"mine")
    out.chmod(0o640)
    os.utime(out, (1, 1))
    with pytest.raises(ExportExistsError) as caught:
        store.export("s-1", out)
    assert isinstance(caught.value, FileExistsError)
    assert str(out) in str(caught.value)
    assert (out.read_bytes(), out.stat().st_mtime, stat.S_IMODE(out.stat().st_mode)) == (b"mine", 1, 0o640)
    assert list(out.parent.iterdir()) == [out]
    store.export("s-1", out, force=True)
    assert (out.read_bytes(), stat.S_IMODE(out.stat().st_mode)) == (file.read_bytes(), 0o600)
    assert list(out.parent.iterdir()) == [out]


def test_an_export_over_its_own_source_is_refused_like_any_other(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))
    store.import_paths([file])
    inode = file.stat().st_ino
    with pytest.raises(ExportExistsError):
        store.export(file, file)
    assert file.stat().st_ino == inode


def test_what_is_asked_wrongly_writes_nothing(store: Store, tmp_path: Path) -> None:
    store.import_paths([write(tmp_path / "s.jsonl", header(), entry(1))])
    out = tmp_path / "new/out.jsonl"
    with pytest.raises((ValueError, SessionDBError)):
        store.export("s-1", out, "pretty")  # type: ignore[arg-type]  # no such form
    with pytest.raises(SessionNotFoundError):
        store.export("unknown", out)
    assert not out.parent.exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(SessionDBError):
        store.export("s-1", tmp_path / "folder", force=True)
    assert list((tmp_path / "folder").iterdir()) == []


# All of them


def test_an_export_of_everything_recreates_each_dialect_s_folders(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BEHAVIOUR section 2; for xcsh the document's folder name."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    encoded = "--" + str(home / "proj").strip("/").replace("/", "-") + "--"
    folders = {
        "pi-srv": ("pi", "/srv/x", "--srv-x--"),
        "pi-home": ("pi", str(home / "proj"), encoded),
        "xcsh-srv": ("xcsh", "/srv/x", "--srv-x--"),
        "xcsh-home": ("xcsh", str(home / "proj"), encoded),
        "omp-srv": ("omp", "/srv/x", "--srv-x--"),
        "omp-home": ("omp", str(home / "proj"), "-proj"),
        "windows": ("pi", "C:\\Users\\dev", "--C--Users-dev--"),
    }
    for session_id, (dialect, cwd, _) in folders.items():
        file = write(tmp_path / f"{session_id}.jsonl", header(session_id, cwd=cwd), entry(1))
        store.import_paths([file], dialect=dialect)
    store.export_all(tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.jsonl")}
    stem = "2026-01-01T00-00-00-000Z"
    assert found == {f"sessions/{folder}/{stem}_{i}.jsonl" for i, (_, _, folder) in folders.items()}


def test_everything_that_is_written_is_private(store: Store, tmp_path: Path) -> None:
    """B82."""
    content = b"picture"
    write(tmp_path / "in/blobs" / sha(content), content)
    write(tmp_path / "in/s.jsonl", header(), with_blobs(sha(content)))
    store.import_paths([tmp_path / "in"])
    before = os.umask(0)
    try:
        report = store.export_all(tmp_path / "out/deep")
    finally:
        os.umask(before)
    assert (report.files, report.blobs, report.missing_blobs) == (1, 1, [])
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").rglob("*")}
    modes[tmp_path / "out"] = stat.S_IMODE((tmp_path / "out").stat().st_mode)
    assert {m for p, m in modes.items() if p.is_dir()} == {0o700}
    assert {m for p, m in modes.items() if p.is_file()} == {0o600}
    assert (tmp_path / "out/deep/blobs" / sha(content)).read_bytes() == content


def test_a_blob_that_is_not_held_is_named(store: Store, tmp_path: Path) -> None:
    """Invariant 8."""
    store.import_paths([write(tmp_path / "s.jsonl", header(), with_blobs(sha(b"nowhere")))])
    report = store.export_all(tmp_path / "out")
    assert (report.files, report.blobs, report.missing_blobs) == (1, 0, ["s-1: " + sha(b"nowhere")])


HOSTILE = {
    "../../x": ".._.._x",
    "a/b\\c": "a_b_c",
    "nul\0tab\tnew\nline": "nul_tab_new_line",
    "with blank": "with_blank",
    "a:b*c?d": "a_b_c_d",
    "Az09._-": "Az09._-",
    "é": "_",
}


@pytest.mark.parametrize(("session_id", "expected"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_characters_of_an_id_that_no_file_name_should_have_become_underscores(
    store: Store, tmp_path: Path, session_id: str, expected: str
) -> None:
    file = write(tmp_path / "s.jsonl", header(session_id), entry(1))
    store.import_paths([file])
    store.export_all(tmp_path / "out")
    (out,) = (tmp_path / "out").rglob("*.jsonl")
    assert out.name == f"2026-01-01T00-00-00-000Z_{expected}.jsonl"
    assert out.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("session_id", ["x" * 300, "é" * 300, "😀" * 80, "\ud83d", ".hidden", "..", "con", "-rf"])
def test_no_id_makes_a_name_that_cannot_be_written(store: Store, tmp_path: Path, session_id: str) -> None:
    raw = json.dumps({"type": "session", "version": 3, "id": session_id, "cwd": "/w"}).encode() + b"\n"
    file = write(tmp_path / "s.jsonl", raw, entry(1))
    store.import_paths([file])
    report = store.export_all(tmp_path / "out")
    (out,) = (tmp_path / "out").rglob("*.jsonl")
    assert (report.files, report.refused) == (1, [])
    assert out.parent == tmp_path / "out/sessions/--w--"
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,240}\.jsonl", out.name)
    assert out.read_bytes() == file.read_bytes()


def test_ids_that_become_the_same_name_clash_and_are_listed(store: Store, tmp_path: Path) -> None:
    for name, session_id in (("1", "a/b"), ("2", "a:b"), ("3", "A/b")):
        write(tmp_path / f"in/{name}.jsonl", header(session_id), entry(1))
    store.import_paths([tmp_path / "in"])
    report = store.export_all(tmp_path / "out")
    assert report.files == 3
    assert len({p.read_bytes() for p in (tmp_path / "out").rglob("*.jsonl")}) == 3
    assert [(wanted[-10:], got[-12:]) for wanted, got in report.renamed if wanted.endswith("_a_b.jsonl")] == [
        ("_a_b.jsonl", "_a_b-2.jsonl")
    ]


def test_a_file_that_was_there_is_refused_and_listed_and_the_rest_goes_on(store: Store, tmp_path: Path) -> None:
    """Invariant 7; a second export finds the first one's files and overwrites none."""
    for n in range(3):
        write(tmp_path / f"in/{n}.jsonl", header(f"id-{n}"), entry(n))
    store.import_paths([tmp_path / "in"])
    taken = write(tmp_path / "out/sessions/--w--/2026-01-01T00-00-00-000Z_id-1.jsonl", b"mine")
    report = store.export_all(tmp_path / "out")
    assert (report.files, len(report.refused)) == (2, 1)
    assert taken.name in report.refused[0][0] + report.refused[0][1]
    assert taken.read_bytes() == b"mine"
    assert store.export_all(tmp_path / "out", force=True).files == 3
    assert taken.read_bytes() == (tmp_path / "in/1.jsonl").read_bytes()


def test_what_was_exported_and_imported_again_has_the_same_digests(open_store: OpenStore, tmp_path: Path) -> None:
    """Every fault file of the golden folder, through two databases; a second export is file for file the first."""
    content = b"picture"
    write(tmp_path / "in/blobs" / sha(content), content)
    write(tmp_path / "in/blob.jsonl", header("blob"), with_blobs(sha(content)))
    for file in GOLDEN.rglob("*.jsonl"):
        write(tmp_path / "in" / file.parent.name / file.name, file.read_bytes())
    stores = [open_store(f"{n}.db") for n in range(3)]
    stores[0].import_paths([tmp_path / "in"])
    for n in range(2):
        report = stores[n].export_all(tmp_path / f"out-{n}")
        assert report.files == len(stores[n].sessions()) > 40
        assert stores[n + 1].import_paths([tmp_path / f"out-{n}"]).imported == report.files
    digests = [s.sql("SELECT hex(digest) AS d FROM session ORDER BY d") for s in stores]
    assert digests[0] == digests[1] == digests[2]
    assert {s.blobs.get(sha(content)) for s in stores} == {content}


def test_superseded_sessions_are_exported_when_asked_for(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1))
    store.import_paths([file])
    old = file.read_bytes()
    write(file, header(), entry(1, text="another text"))
    store.import_paths([file])
    assert store.export_all(tmp_path / "one").files == 1
    assert store.export_all(tmp_path / "two", superseded=True).files == 2
    assert {p.read_bytes() for p in (tmp_path / "one").rglob("*.jsonl")} == {file.read_bytes()}
    assert {p.read_bytes() for p in (tmp_path / "two").rglob("*.jsonl")} == {file.read_bytes(), old}


def test_folders_are_named_as_pi_names_them(corpus: Path) -> None:
    recorded = json.loads((corpus.parent / "reference/extra/cwd-dirs.json").read_text())
    pi = next(entry for entry in recorded if entry["client"] == "@mariozechner/pi-coding-agent")
    assert {cwd: folder_for_cwd(cwd, "pi") for cwd in pi["dirs"]} == pi["dirs"]


def test_folders_are_named_as_omp_names_them(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the recorded names those that do not depend on the recording machine's current folder."""
    recorded = json.loads((corpus.parent / "reference/extra/cwd-dirs.json").read_text())
    omp = next(entry for entry in recorded if entry["client"].startswith("@oh-my-pi"))["dirs"]
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")  # noqa: S108 - only its name is used
    absolute = {cwd: name for cwd, name in omp.items() if cwd.startswith("/") and "link" not in cwd}
    assert {cwd: folder_for_cwd(cwd, "omp") for cwd in absolute} == absolute


def test_a_file_is_named_after_its_time_and_id() -> None:
    assert file_name("0199-a", "2025-10-09T08:53:21.000Z") == "2025-10-09T08-53-21-000Z_0199-a.jsonl"
    assert file_name("a/b:c", None) == "a_b_c.jsonl"
