"""Old, odd and broken lines, and trees that do not close: nothing is lost, everything is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiondb import Store
from tests.support import (
    BUGCASES,
    CASE_23,
    GOLDEN,
    OpenStore,
    derived,
    dump,
    entry,
    exported,
    header,
    write,
)

# Version 1 and entries without ids


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


def linked(entry_id: str, parent: str | None = None) -> bytes:
    return dump(
        {"type": "custom", "id": entry_id, "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z"}
    )


def test_trees_that_loop_or_dangle_are_cut_and_flagged(store: Store, tmp_path: Path) -> None:
    """Invariant 6; B18, B19, B72."""
    chain = [linked(f"c{i}", f"c{(i + 1) % 2000}") for i in range(2000)]
    odd = [linked("self", "self"), linked("lost", "nobody"), linked("early", "late"),
           linked("late"), linked("twin", "early"), linked("twin", "twin")]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(b"".join([header("s"), *chain, *odd]))
    store.import_paths([tmp_path])
    kinds = [(f["line"], f["kind"]) for f in store.faults("s")]
    assert kinds == [
        (2001, "cycle"), (2002, "cycle"), (2003, "unknown-parent"), (2007, "duplicate-id"), (2007, "cycle"),
    ]  # fmt: skip
    roots = store.tree("s")
    assert [r["entry"]["id"] for r in roots] == ["c1999", "self", "lost", "late", "twin"]
    depths = store.sql("SELECT entry_id, depth FROM entries WHERE entry_id IN ('c0', 'early', 'twin') ORDER BY pk")
    assert [d["depth"] for d in depths] == [1999, 1, 2, 0]
