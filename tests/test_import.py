"""Rules of the import that need a look inside: its own database, given dialects, trees."""

from __future__ import annotations

from pathlib import Path

from sessiondb import Store
from sessiondb.jsonl import encode_entry

T = "2026-01-01T00:00:00.000Z"
HEADER: dict[str, object] = {"type": "session", "version": 3, "id": "s", "timestamp": T, "cwd": "/w"}


def jsonl(*entries: dict[str, object]) -> bytes:
    return b"".join(encode_entry(e) + b"\n" for e in entries)


def entry(kind: str, entry_id: str = "1", parent: str | None = None) -> dict[str, object]:
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": T}


def test_a_dialect_that_is_given_later_changes_a_session_that_is_held(store: Store, tmp_path: Path) -> None:
    file = tmp_path / ".pi/agent/sessions/a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(jsonl(HEADER | {"title": "Title"}))
    store.import_paths([file])
    assert (store.session(file).dialect, store.session(file).title) == ("pi", None)
    assert store.import_paths([file], dialect="xcsh").updated == 1
    info = store.session(file)
    assert (info.dialect, info.dialect_reason, info.title) == ("xcsh", "given", "Title")
    assert store.import_paths([file], dialect="xcsh").updated == 0


def test_the_database_itself_is_never_opened_as_a_source(store: Store) -> None:
    """Invariant 9: its plain close would drop SQLite's locks."""
    link = store.path.with_name("link")
    link.symlink_to(store.path.parent)
    report = store.import_paths([store.path, link / store.path.name])
    assert [s.reason for s in report.skipped] == ["the database itself"] * 2


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
