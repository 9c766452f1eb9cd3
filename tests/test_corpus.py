"""Real files, authored faults and the clients' own cases: in, told apart, and out again byte for byte.

What stands under tests/golden runs everywhere; the whole corpus where its folder lies beside the repository. The
corpus's INDEX.tsv was counted by another program and is held against ours.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from pathlib import Path

from sessiondb import Store
from tests.support import GOLDEN, OpenStore, exported, tables, without_last_look

EMPTY = {"bc28-empty.jsonl", "12-empty-file.jsonl"}

Faults = list[tuple[int, str]]

BUGCASE_FAULTS: dict[str, Faults] = {
    "bc01-torn-tail.jsonl": [(6, "malformed")],
    "bc02-torn-then-fused.jsonl": [(5, "torn")],
    "bc03-two-objects-one-line.jsonl": [(3, "glued")],
    "bc06-bad-header.jsonl": [(1, "malformed")],
    "bc10-lone-surrogate.jsonl": [(3, "lone-surrogate"), (4, "lone-surrogate")],
    "bc14-duplicate-ids.jsonl": [(4, "cycle"), (4, "duplicate-id"), (6, "duplicate-id")],
    "bc15-broken-parent.jsonl": [(4, "unknown-parent")],
    "bc27-unknown-future.jsonl": [(4, "bad-time"), *((n, "not-an-object") for n in (7, 8, 9))],
    "bc30-mask-broke-escape.jsonl": [(2, "malformed"), (3, "unknown-parent")],
}
CASE_FAULTS: dict[str, Faults] = {
    "05-partial-tail.jsonl": [(4, "malformed")],
    "07-malformed-middle.jsonl": [(3, "malformed")],
    "08-non-object-values.jsonl": [(n, "not-an-object") for n in (3, 4, 5, 6)],
    "10-null-first.jsonl": [(1, "not-an-object")],
    "11-header-not-first.jsonl": [(2, "header-not-first")],
    "13-two-headers.jsonl": [(3, "second-header")],
    "15-duplicate-ids.jsonl": [(4, "duplicate-id")],
    "16-missing-parent.jsonl": [(3, "unknown-parent")],
    "17-self-parent.jsonl": [(2, "cycle")],
    "19-strings.jsonl": [(2, "lone-surrogate")],
}
SPECIMEN_FAULTS: dict[str, Faults] = {
    "authored-roundtrip-edge.jsonl": [(12, "lone-surrogate"), (13, "lone-surrogate"), (18, "torn")],
    "node-bad-spaced-separators.jsonl": [*((n, "unknown-parent") for n in (4, 5, 6)), (7, "duplicate-id")],
    "node-bad-unicode-escapes.jsonl": [(1, "unknown-parent")],
    "nul-escape-in-string.jsonl": [(2, "unknown-parent")],
    "unparseable-mask-broke-escape.jsonl": [(n, "malformed") for n in (1, 2, 3)],
    "unparseable-two-objects-glued.jsonl": [(1, "glued"), (2, "glued")],
}
REAL_FAULTS: dict[str, Faults] = {
    "003-pi-v1.jsonl": [(1013, "glued")],
    "024-gjc-v3.jsonl": [(31, "malformed"), (32, "unknown-parent")],
    "026-gjc-v3.jsonl": [(118, "malformed"), (119, "unknown-parent")],
    "082-pi-fixture.jsonl": [(10, "malformed")],
    "084-openclaw-fixture.jsonl": [(n, "unknown-parent") for n in (2, 6, 8, 11)],
    "086-openclaw-fixture.jsonl": [(n, "unknown-parent") for n in (2, 3, 5)],
}
"""What is wrong in each file, by line; a file that is not named has nothing wrong."""

FAULTS = {**BUGCASE_FAULTS, **CASE_FAULTS, **SPECIMEN_FAULTS, **REAL_FAULTS}


def faults_of(store: Store, file: Path) -> Faults:
    return sorted((f["line"], f["kind"]) for f in store.faults(file))


def hold(store: Store, folders: list[Path]) -> list[Path]:
    """Import the folders and hold every promise of the round trip against every file; the files are returned."""
    report = store.import_paths(folders)
    files = sorted(f for folder in folders for f in folder.rglob("*.jsonl"))
    skipped = sorted(s.path for s in report.skipped)
    assert skipped == sorted(str(f) for f in files if f.name in EMPTY)
    taken = [f for f in files if f.name not in EMPTY]
    contents = {f: f.read_bytes() for f in taken}
    assert report.imported == len(set(contents.values()))
    assert report.imported + report.unchanged == len(taken)
    for file, content in contents.items():
        assert exported(store, file) == content, file.name
        assert exported(store, file, "original") == content, file.name
    reported = Counter((f.path, f.line, f.kind) for f in report.faults)
    assert report.fault_count == len(report.faults) == sum(reported.values())
    for file in taken:
        assert faults_of(store, file) == FAULTS.get(file.name, []), file.name
        assert sorted((n, k) for p, n, k in reported if p == str(file)) == FAULTS.get(file.name, []), file.name
        starts = offsets(contents[file])
        for fault in store.faults(file):
            assert starts[fault["line"] - 1] <= fault["offset"] <= starts[fault["line"]], file.name
    assert {v.state for v in store.verify()} == {"equal"}
    assert {v.path for v in store.verify()} == {str(f) for f in taken}
    return taken


def offsets(content: bytes) -> list[int]:
    """Where each line begins, and where the file ends."""
    starts = [0]
    for line in content.split(b"\n"):
        starts.append(min(starts[-1] + len(line) + 1, len(content)))
    return starts


def test_the_golden_files_go_in_and_out(store: Store) -> None:
    taken = hold(store, [GOLDEN / "bugcases", GOLDEN / "cases", GOLDEN / "specimens"])
    assert len(taken) > 40


def test_a_second_import_of_the_golden_files_changes_no_row(open_store: OpenStore) -> None:
    store = open_store()
    store.import_paths([GOLDEN])
    before = without_last_look(tables(store))
    again = open_store().import_paths([GOLDEN])
    assert (again.imported, again.updated, again.replaced) == (0, 0, 0)
    assert without_last_look(tables(store)) == before


def test_the_golden_files_are_the_corpus_s(corpus: Path) -> None:
    for name, place in (("bugcases", corpus), ("specimens", corpus), ("cases", corpus.parent / "reference")):
        for file in (GOLDEN / name).glob("*.jsonl"):
            assert file.read_bytes() == (place / name / file.name).read_bytes(), file.name


def test_the_whole_corpus_goes_in_and_out(store: Store, corpus: Path) -> None:
    """The issue's "done when": every file but the empty one, the damaged ones told line by line; twice the same."""
    taken = hold(store, [corpus, corpus.parent / "reference/cases"])
    assert len(taken) > 90
    before = without_last_look(tables(store))
    again = store.import_paths([corpus, corpus.parent / "reference/cases"])
    assert (again.imported, again.updated, again.unchanged) == (0, 0, len(taken))
    assert without_last_look(tables(store)) == before


def test_the_corpus_exported_and_imported_again_has_the_same_digests(
    open_store: OpenStore, corpus: Path, tmp_path: Path
) -> None:
    first, second = open_store("first.db"), open_store("second.db")
    first.import_paths([corpus])
    report = first.export_all(tmp_path / "out")
    assert (report.files, report.refused) == (len(first.sessions()), [])
    second.import_paths([tmp_path / "out"])
    digests = [s.sql("SELECT hex(digest) AS d FROM session ORDER BY d") for s in (first, second)]
    assert digests[0] == digests[1]
    contents = {hashlib.sha256(f.read_bytes()).hexdigest().upper() for f in corpus.rglob("*.jsonl") if f.stat().st_size}
    assert {row["d"] for row in digests[0]} == contents


def index(corpus: Path) -> list[dict[str, str]]:
    with (corpus / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row for row in rows if (corpus / "real" / row["file"]).exists()]


def test_the_real_files_hold_what_their_index_says(store: Store, corpus: Path) -> None:
    """Bytes, lines, version, types of entries, broken lines and broken parents, as another program counted them."""
    store.import_paths([corpus / "real"])
    rows = index(corpus)
    assert len(rows) > 25
    for row in rows:
        name, file = row["file"], corpus / "real" / row["file"]
        info = store.session(file)
        assert (info.byte_count, info.line_count) == (int(row["bytes"]), int(row["lines"])), name
        assert info.version == int(row["version"][0]), name
        types = Counter(e["type"] for e in store.entries(file))
        types["session"] += 1
        counted = Counter({k: int(n) for k, n in (t.split(":") for t in row["entry_types"].split(","))})
        kinds = Counter(kind for _, kind in faults_of(store, file))
        recovered = types - counted
        assert sum(recovered.values()) == 2 * kinds["glued"], name  # the index counts no entry of a glued line
        assert counted - types == Counter(), name
        features = dict(f.partition("=")[::2] for f in row["features"].split())
        assert kinds["unknown-parent"] == int(features.get("parent-not-seen", 0)), name
        assert (kinds["malformed"] + kinds["glued"] + kinds["torn"] > 0) == ("unparseable-line" in features), name


def test_entries_of_a_version_3_file_are_their_lines_as_json_reads_them(store: Store, corpus: Path) -> None:
    store.import_paths([corpus / "real"])
    for row in index(corpus):
        file = corpus / "real" / row["file"]
        if row["version"] == "3" and file.name not in REAL_FAULTS:
            values = [json.loads(line) for line in file.read_bytes().split(b"\n") if line.strip()]
            assert store.entries(file) == [v for v in values if v["type"] != "session"], file.name


def test_the_growing_export_is_linked_and_the_clash_is_not(store: Store, corpus: Path) -> None:
    """B31."""
    store.import_paths([corpus / "bugcases"])
    names = ("bc31a-same-session-id", "bc31b-same-session-id", "bc31c-grown-export")
    first, clash, second = (store.session(corpus / f"bugcases/{name}.jsonl") for name in names)
    assert (first.id, second.id, clash.id) == ("harbor", "harbor", "harbor")
    assert (first.grown_from, second.grown_from, clash.grown_from) == (None, first.pk, None)


def test_two_projects_in_one_folder_are_told_apart_by_cwd(store: Store, corpus: Path) -> None:
    """B32."""
    store.import_paths([corpus / "bugcases"])
    dash, slash = (store.session(corpus / f"bugcases/bc25{n}.jsonl") for n in ("a-cwd-dash", "b-cwd-slash"))
    assert dash.cwd != slash.cwd
    assert [s.pk for s in store.sessions(cwd=dash.cwd)] == [dash.pk]
    assert [s.pk for s in store.sessions(cwd=slash.cwd)] == [slash.pk]
