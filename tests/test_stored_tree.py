"""A stored session answers as the whole of it in memory would, and reads no more than the answer needs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from sessiondb import Store
from sessiondb.entries import is_current
from sessiondb.stored_tree import StoredTree
from sessiondb.tree import SETTINGS, MemoryTree, Window, role_of
from tests.support import GOLDEN, dump, entry, header, write


def tree_of(store: Store, ref: str | Path) -> StoredTree:
    return StoredTree(store.connection, store.session(ref).pk)


LAST_ALONE_COUNTS = {"thinking_level_change", "service_tier_change", "mode_change", "context_change"}


def expected_window(path: list[dict[str, Any]], dialect: str) -> Window:
    """What the path holds for a context, told by a walk over a list."""
    void = LAST_ALONE_COUNTS | {"model_change"} if dialect == "pi" else LAST_ALONE_COUNTS
    places = [i for i, e in enumerate(path) if e.get("type") == "compaction"]
    if not places:
        return Window([], path)
    kept_id = path[places[-1]].get("firstKeptEntryId")
    start = next((i for i, e in enumerate(path[: places[-1]]) if e["id"] == kept_id), places[-1])
    above, rest = path[:start], path[start:]
    assistants = [] if any(role_of(e) == "assistant" for e in rest) else [e for e in above if role_of(e) == "assistant"]
    last_alone = {e["type"]: e["id"] for e in above if e.get("type") in void}
    settings = [e for e in above if e.get("type") in SETTINGS and last_alone.get(e["type"], e["id"]) == e["id"]]
    return Window([e for e in above if e in settings or e in assistants[-1:]], rest)


def assert_answers_as_memory(store: Store, ref: str | Path, *, ids: list[str] | None = None) -> None:
    entries = store.entries(ref)
    stored, memory = tree_of(store, ref), MemoryTree(entries)
    dialect = store.session(ref).dialect
    assert stored.entries() == entries
    assert len(stored) == len(memory)
    assert stored.last() == memory.last()
    assert list(stored.labels().items()) == list(memory.labels().items())
    assert stored.has_assistant() == memory.has_assistant()
    assert list(stored.usage_entries()) == list(memory.usage_entries())
    assert stored.latest_message_leaf() == memory.latest_message_leaf()
    assert stored.children(None) == memory.children(None)
    whole_paths = dialect == "omp" or not is_current(store.connection, store.session(ref).pk)
    known = [e["id"] for e in entries if type(e) is dict and type(e.get("id")) is str]
    for entry_id in [*(ids or dict.fromkeys(known)), "none", ""]:
        path = memory.path(entry_id)
        assert stored.get(entry_id) == memory.get(entry_id)
        assert stored.path(entry_id) == path, entry_id
        window = stored.window(entry_id)
        assert window == (Window([], path) if whole_paths else expected_window(path, dialect)), entry_id
        assert stored.children(entry_id) == memory.children(entry_id), entry_id


# Random trees


TYPES = ["message"] * 8 + ["compaction"] * 2 + ["label", "custom", "unknown", 7, *SETTINGS]


def random_entry(rng: random.Random, number: int, ids: list[str]) -> dict[str, Any]:
    kind = rng.choice(TYPES)
    near = ids[-1:] if rng.random() < 0.7 else ids
    parent = rng.choice([*near, None]) if rng.random() < 0.9 else rng.choice(["orphan", f"{number + 3:x}", 5, None])
    made: dict[str, Any] = {"type": kind, "id": f"{number:x}", "parentId": parent}
    made["timestamp"] = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000Z" if rng.random() < 0.95 else "never"
    if rng.random() < 0.04 and ids:
        made["id"] = rng.choice(ids)
    if rng.random() < 0.03:
        del made[rng.choice(["id", "parentId"])]
    if kind == "message":
        role = rng.choice(["user", "assistant", "toolResult", "user", "toolResult"])
        message = {"role": role, "toolName": rng.choice(["task", "bash"]), "content": "x"}
        made["message"] = message if rng.random() < 0.95 else 5
    if kind == "compaction":
        kept = rng.choice([*ids[-5:] * 4, *ids, f"{number:x}", f"{number + 1:x}", "none", None, 4])
        made |= {"summary": "S"} if rng.random() < 0.1 else {"summary": "S", "firstKeptEntryId": kept}
    if kind == "label":
        made |= {"targetId": rng.choice([*ids[-6:], "none", None]), "label": rng.choice(["a", "b", "", None])}
    return made


def random_lines(rng: random.Random, count: int) -> list[bytes]:
    """A session with what breaks naive walks: branches, orphans, forward parents, cycles, ids that come again."""
    tidy = rng.random() < 0.5
    ids: list[str] = []
    lines = [header(version=rng.choice([3, 3, 3, 3, 2, "2", 1]))] if rng.random() < 0.9 else []
    for number in range(count):
        made = random_entry(rng, number, ids)
        if tidy:
            made |= {"id": f"{number:x}", "parentId": made.get("parentId") if made.get("parentId") in ids else None}
        if "id" in made:
            ids.append(made["id"])
        lines.append(dump(made))
        if not tidy and rng.random() < 0.05:
            lines.append(rng.choice([b"42\n", b"\n", b"null\n", b"{broken\n", lines[-1][:-1] + lines[-1]]))
    return lines


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 80))])
def test_random_sessions_answer_as_their_lists_of_entries(store: Store, tmp_path: Path, seed: int) -> None:
    for number in range(20):
        rng = random.Random(seed * 1000 + number)
        lines = random_lines(rng, rng.choice([3, 10, 40]))
        cut = rng.randrange(len(lines) + 1)
        file = write(tmp_path / f"{number}.jsonl", *lines[:cut])
        store.import_paths([file], dialect=rng.choice([None, None, None, "omp"]))
        write(file, *lines)  # read on from there: what was read before is restored from the rows
        store.import_paths([file])
        assert_answers_as_memory(store, file)


ABOVE = [(False, False), (True, False), (True, True)]
"""Whether there are entries above, and whether an assistant's message is among them."""


def test_the_random_sessions_have_windows_of_every_kind(store: Store, tmp_path: Path) -> None:
    """Else the test above could pass without meeting what it is about."""
    kinds = set()
    files = [write(tmp_path / f"{n}.jsonl", *random_lines(random.Random(n), 50)) for n in range(100)]
    store.import_paths(files)
    for file in files:
        tree = tree_of(store, file)
        for known in tree.entries():
            if type(known) is dict:
                above, path = tree.window(known["id"])
                compacted = any(e.get("type") == "compaction" for e in path)
                kept = compacted and path[0].get("type") != "compaction"
                kinds.add((compacted, kept, bool(above), any(role_of(e) == "assistant" for e in above)))
    assert kinds == {(False,) * 4, *((True, kept, *above) for kept in (False, True) for above in ABOVE)}


# Files that were written by clients, or against them


def test_golden_files_answer_as_their_lists_of_entries(store: Store) -> None:
    store.import_paths([GOLDEN])
    infos = store.sessions(superseded=True)
    assert len(infos) > 20
    for info in infos:
        assert_answers_as_memory(store, info.paths[0])


@pytest.mark.slow
def test_every_file_of_the_corpus_answers_as_its_list_of_entries(store: Store, corpus: Path) -> None:
    store.import_paths([corpus])
    rng = random.Random(1)
    for info in store.sessions(superseded=True):
        ids = [e["id"] for e in store.entries(info) if type(e) is dict]
        assert_answers_as_memory(store, info.paths[0], ids=rng.sample(ids, min(len(ids), 40)))


# Rules one by one


def settings(number: int, parent: int | None, kind: str = "thinking_level_change", **more: str) -> bytes:
    return entry(number, parent, **{"type": kind, **more})  # type: ignore[arg-type]  # no key of `entry` is among them


def compaction(number: int, parent: int | None, kept: object) -> bytes:
    return entry(number, parent, type="compaction", summary="S", firstKeptEntryId=kept)


def shown(window: Window) -> tuple[list[int], list[int]]:
    return [int(e["id"], 16) for e in window.above], [int(e["id"], 16) for e in window.path]


WINDOWS = {
    # name: (lines, entries above, path), for the last line
    "no compaction: the whole path": ([settings(1, None), entry(2, 1), entry(3, 2)], [], [1, 2, 3]),
    "kept from an entry above": ([entry(1), entry(2, 1), entry(3, 2), compaction(4, 3, "00000002")], [], [2, 3, 4]),
    "settings above the kept range": (
        [settings(1, None), entry(2, 1), settings(3, 2), entry(4, 3), settings(5, 4), compaction(6, 5, "00000004"),
         entry(7, 6)], [3], [4, 5, 6, 7],
    ),
    "kept range begins before an older compaction": (
        [settings(1, None), entry(2, 1), compaction(3, 2, None), entry(4, 3), compaction(5, 4, "00000002")],
        [1], [2, 3, 4, 5],
    ),
    "of settings that void each other the last": (
        [settings(1, None, "mode_change"), settings(2, 1, "mode_change"), settings(3, 2, "context_change"),
         settings(4, 3, "context_change"), settings(5, 4, "ttsr_injection"), settings(6, 5, "ttsr_injection"),
         settings(7, 6, "model_change", model="a/b"), settings(8, 7, "model_change", model="c/d"),
         compaction(9, 8, None)], [2, 4, 5, 6, 7, 8], [9],
    ),
    "pi has one model": (
        [settings(1, None, "model_change", modelId="a"), settings(2, 1, "model_change", modelId="b"),
         compaction(3, 2, None)], [2], [3],
    ),
    "settings above an older compaction": (
        [settings(1, None), compaction(2, 1, None), entry(3, 2), compaction(4, 3, "00000003")], [1], [3, 4],
    ),
    "kept id on another branch": ([entry(1), entry(2, 1), entry(3, 1), compaction(4, 3, "00000002")], [], [4]),
    "kept id is its own": ([entry(1), compaction(2, 1, "00000002")], [], [2]),
    "kept id is below it": ([entry(1), compaction(2, 1, "00000003"), entry(3, 2)], [], [2, 3]),
    "kept id unknown": ([entry(1), compaction(2, 1, "none")], [], [2]),
    "kept id is no text": ([entry(1), compaction(2, 1, 1)], [], [2]),
    "the compaction is the root": ([compaction(1, None, "00000001"), entry(2, 1)], [], [1, 2]),
    "the last assistant above, and no other": (
        [entry(1, role="assistant"), entry(2, 1, role="assistant"), settings(3, 2), compaction(4, 3, None)],
        [2, 3], [4],
    ),
    "an assistant in the window: none above": (
        [entry(1, role="assistant"), settings(2, 1), entry(3, 2, role="assistant"), compaction(4, 3, "00000003")],
        [2], [3, 4],
    ),
    "a leaf on another branch than the compaction": (
        [entry(1), compaction(2, 1, "00000001"), entry(3, 2), settings(4, 1), entry(5, 4)], [], [1, 4, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "above", "path"), WINDOWS.values(), ids=WINDOWS)
def test_a_window_is_what_a_context_needs(
    store: Store, tmp_path: Path, lines: list[bytes], above: list[int], path: list[int]
) -> None:
    file = write(tmp_path / "s.jsonl", header(), *lines)
    store.import_paths([file])
    last = tree_of(store, file).last()
    assert last is not None
    assert shown(tree_of(store, file).window(last["id"])) == (above, path)


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_settings_of_every_type_reach_through_compactions(store: Store, tmp_path: Path, kind: str) -> None:
    lines = [settings(1, None, kind), entry(2, 1), compaction(3, 2, "00000002")]
    file = write(tmp_path / "s.jsonl", header(), *lines)
    store.import_paths([file])
    assert shown(tree_of(store, file).window("00000003")) == ([1], [2, 3])


def test_in_an_omp_session_the_window_is_the_whole_path(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", header(), entry(1), entry(2, 1), compaction(3, 2, "00000002"))
    store.import_paths([file], dialect="omp")
    assert shown(tree_of(store, file).window("00000003")) == ([], [1, 2, 3])


def test_an_id_with_half_a_surrogate_pair_is_found(store: Store, tmp_path: Path) -> None:
    lines = [entry(1).replace(b"00000001", b"\\ud800"), entry(2).replace(b'"parentId":null', b'"parentId":"\\ud800"')]
    file = write(tmp_path / "s.jsonl", header(), *lines)
    store.import_paths([file])
    tree = tree_of(store, file)
    assert tree.path("00000002") == tree.entries()
    assert tree.children("\ud800") == tree.entries()[1:]


# What it costs


def long_session(count: int) -> list[bytes]:
    """`count` entries, then the same end for every count: a compaction that keeps ten, and thirty more."""
    lines = [header(), settings(1, None), entry(2, 1, role="assistant")]
    lines += [entry(n, n - 1) for n in range(3, count)]
    lines += [compaction(count, count - 1, f"{count - 10:08x}")]
    return lines + [entry(n, n - 1, role="assistant") for n in range(count + 1, count + 31)]


def steps_of(db: apsw.Connection, ask: Any) -> int:
    """How many steps of its machine SQLite takes; tells what a clock would, and the same on every machine."""
    counted = 0

    def count() -> bool:
        nonlocal counted
        counted += 1
        return False

    db.set_progress_handler(count, 1)
    try:
        ask()
    finally:
        db.set_progress_handler(None)
    return counted


def test_a_window_costs_no_more_in_a_long_session_than_in_a_short_one(store: Store, tmp_path: Path) -> None:
    """Nor beside other sessions: a plan that scans the table would show here."""
    costs = {}
    for count in (200, 20_000):
        file = write(tmp_path / f"{count}.jsonl", *long_session(count))
        store.import_paths([file])
        tree = tree_of(store, file)
        last = tree.last()
        assert last is not None
        window = tree.window(last["id"])
        assert (len(window.above), len(window.path)) == (1, 41)
        costs[count] = steps_of(store.connection, lambda tree=tree, last=last: tree.window(last["id"]))
        costs[-count] = steps_of(store.connection, lambda tree=tree, last=last: (tree.get(last["id"]), tree.labels()))
    assert costs[20_000] <= costs[200] * 1.05
    assert costs[-20_000] <= costs[-200] * 1.05
