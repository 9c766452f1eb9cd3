"""Everything that was ever said is found, narrowed exactly, and kept in step with the lines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from sessiondb import SessionManager, Store
from sessiondb.errors import BadQueryError, DamagedDatabaseError
from sessiondb.search import Hit
from sessiondb.texts import KINDS, texts_of
from tests.support import GOLDEN, OpenStore, entry, header, write
from tests.test_live_tree import assistant, talk, tool_call, user


def live(store: Store, cwd: str = "/w", dialect: str = "xcsh") -> SessionManager:
    manager = SessionManager.create(cwd, store=store, dialect=dialect)
    manager.ensure_on_disk()
    return manager


def entries(store: Store, query: str, **more: Any) -> set[str | None]:
    return {hit.entry for hit in store.search(query, limit=None, **more).hits}


def everything(manager: SessionManager) -> dict[str, str]:
    """An entry of each kind of text, and what is said in it."""
    say = manager.append_message
    thinking = [{"type": "thinking", "thinking": "pondering walrus"}, {"type": "text", "text": "spoken heron"}]
    output = [{"type": "text", "text": "otter"}]
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "bash", "content": output}
    first = say(user("asked badger"))
    return {
        "badger": first,
        "heron": (thought := say({**assistant(), "content": thinking})),
        "walrus": thought,
        "weasel": say({**assistant(), "content": [tool_call("c", command="run weasel", nested={"deep": ["lynx"]})]}),
        "otter": say(result),
        "marmot": say({"role": "bashExecution", "command": "ls marmot", "output": "beaver", "exitCode": 0}),
        "ferret": manager.append_compaction("kept ferret", first, 10, short_summary="short stoat"),
        "gopher": manager.branch_with_summary(first, "left gopher"),
        "vole": manager.append_custom_entry("ext", {"memo": ["vole"]}),
        "shrew": manager.append_custom_message_entry("ext", "told shrew", True),
        "mole": manager.append_label_change(first, "mole hill"),
        "hare": manager.append_session_init({"systemPrompt": "be a hare", "task": "dig", "tools": []}),
        "lynx": "",
    }


KIND_OF = {
    "badger": "text", "heron": "text", "walrus": "thinking", "weasel": "call", "otter": "result", "marmot": "bash",
    "ferret": "summary", "gopher": "summary", "vole": "custom", "shrew": "custom", "mole": "label", "hare": "other",
}  # fmt: skip


def test_every_text_of_every_entry_is_found_and_kinds_narrow_that(store: Store) -> None:
    said = everything(live(store))
    for word, kind in KIND_OF.items():
        (hit,) = store.search(word).hits
        assert (hit.entry, hit.kinds) == (said[word], (kind,))
        assert [hit.snippet[begin:end] for begin, end in hit.marks] == [word]
        assert entries(store, word, kinds=[kind]) == {said[word]}
        assert entries(store, word, kinds=[other for other in KINDS if other != kind]) == set()
    assert entries(store, "lynx") == {said["weasel"]}
    assert entries(store, "stoat") == {said["ferret"]}
    assert entries(store, "bash", kinds=["call"]) == {said["weasel"]}  # the tool's name
    with pytest.raises(ValueError, match="no kind of text 'words'"):
        store.search("x", kinds=["words"])
    with pytest.raises(ValueError, match="order"):
        store.search("x", order="best")  # type: ignore[arg-type]  # asked wrongly


def test_names_of_sessions_are_found_wherever_they_stand(store: Store, tmp_path: Path) -> None:
    named = live(store)
    named.append_message(user())
    named.set_session_name("Refactoring pelican", "user")
    pi = live(store, dialect="pi")
    pi.append_message(user())
    pi.append_session_info("Mending toucan")
    omp = live(store, dialect="omp")
    omp.set_session_name("Counting ostrich", "user")
    assert [(hit.session, hit.type) for hit in store.search("pelican").hits] == [(named.get_session_id(), "session")]
    assert [(hit.session, hit.type) for hit in store.search("toucan").hits] == [(pi.get_session_id(), "session_info")]
    assert {hit.session for hit in store.search("ostrich").hits} == {omp.get_session_id()}
    assert store.search("pelican").hits[0].entry is None
    assert store.search("pelican").hits[0].title == "Refactoring pelican"
    named.set_session_name("Refactoring albatross", "user")
    assert store.search("pelican").total == 0
    assert store.search("albatross").total == 1


def test_names_and_ids_of_things_are_no_texts() -> None:
    image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
    message = {"role": "user", "content": [image, "plain"]}
    assert texts_of({"type": "message", "id": "abc", "message": message}) == {"text": "plain"}
    assert texts_of({"type": "model_change", "id": "x", "parentId": None, "timestamp": "t", "model": "a/b"}) == {}
    assert texts_of({"type": "message", "message": None}) == {}
    assert texts_of({"type": ["odd"], "content": {"deep": ["here"]}}) == {"other": "here"}
    blocks = [{"type": "toolCall", "name": "odd"}, "plain", {"type": "text", "text": "t"}]
    result = {"role": "toolResult", "content": blocks}
    assert texts_of({"type": "message", "message": result}) == {"result": "toolCall\nodd\nplain\nt"}


# -- narrowing -------------------------------------------------------------------------------------------------------


def filled(store: Store, seed: int) -> list[dict[str, Any]]:
    """Sessions with messages that say one of three words; what each of them is."""
    rng = random.Random(seed)
    for number in range(6):
        clock = iter(range(1_700_000_000_000 + number * 7, 1_800_000_000_000, 1_000_000)).__next__
        manager = SessionManager.create(rng.choice(["/a", "/b"]), store=store, dialect="pi", clock=clock)
        manager.ensure_on_disk()
        for _ in range(12):
            word = rng.choice(["rare", "common", "common common"])
            answer = {**assistant(word), "model": rng.choice(["m1", "m2"])}
            result = {"role": "toolResult", "toolName": rng.choice(["bash", "read"]), "content": word}
            manager.append_message(rng.choice([user(word), answer, result]))
    return store.sql(
        "SELECT e.*, s.cwd, s.id AS session FROM entries e JOIN sessions s ON s.pk = e.session_pk ORDER BY e.pk"
    )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
def test_filters_are_exact(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    rows = filled(store, seed)
    lines = {row["pk"]: store.raw_entry(row["session"], row["entry_id"]) for row in rows}
    said = {pk: json.loads(line)["message"]["content"] for pk, line in lines.items()}
    texts = {pk: content if isinstance(content, str) else content[0]["text"] for pk, content in said.items()}
    times = [row["time_ms"] for row in rows]
    for _ in range(150):
        asked: dict[str, Any] = {}
        for name, choices in {
            "cwd": ["/a", "/b", "/c"], "role": ["user", "assistant", "toolResult"], "tool": ["bash", "read"],
            "model": ["m1", "m2"], "session": [row["session"] for row in rows],
            "since_ms": times, "until_ms": times,
        }.items():  # fmt: skip
            if rng.random() < 0.25:
                asked[name] = rng.choice(choices)
        word = rng.choice(["rare", "common"])
        expected = {
            row["pk"]
            for row in rows
            if word in texts[row["pk"]]
            and all(row[name] == asked.get(name, row[name]) for name in ("cwd", "role", "tool", "model", "session"))
            and asked.get("since_ms", 0) <= row["time_ms"] < asked.get("until_ms", 1 << 62)
        }
        for order in ("rank", "newest"):
            result = store.search(word, limit=None, order=order, **asked)
            assert {hit.entry_pk for hit in result.hits} == expected, asked
            assert (result.total, result.cut) == (len(expected), False)
            pages = [store.search(word, limit=3, offset=at, order=order, **asked) for at in range(0, len(expected), 3)]
            assert [hit for page in pages for hit in page.hits] == result.hits
            assert all(page.cut for page in pages[:-1])
        newest = [hit.time_ms or 0 for hit in result.hits]
        assert newest == sorted(newest, reverse=True)


def test_the_best_come_first_and_say_how_good_they_are(store: Store) -> None:
    manager = live(store)
    for text in ("x " * 200 + "needle", "needle needle needle", "a needle in it"):
        manager.append_message(user(text))
    ranks = [hit.rank for hit in store.search("needle").hits]
    assert None not in ranks
    assert ranks == sorted(ranks)  # type: ignore[type-var]  # no rank is None
    assert store.search("needle").hits[0].snippet == "needle needle needle"
    assert [hit.rank for hit in store.search("needle", order="newest").hits] == [None] * 3


def test_a_hit_says_where_it_was_and_shows_the_words_around(store: Store) -> None:
    manager = live(store, "/proj")
    long = "start " * 100 + "\n\n  the needle \t is here " + "end " * 100
    manager.append_message(assistant(long))
    (hit,) = store.search("needle").hits
    assert (hit.session, hit.cwd, hit.role, hit.model) == (manager.get_session_id(), "/proj", "assistant", "m")
    assert (hit.entry, hit.type) == (manager.get_leaf_id(), "message")
    assert "the needle is here" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert "\n" not in hit.snippet
    assert len(hit.snippet) < 200
    assert [hit.snippet[begin:end] for begin, end in hit.marks] == ["needle"]
    assert json.loads(json.dumps(hit.to_dict()))["marks"] == [list(hit.marks[0])]


def test_the_size_of_the_answer_can_be_bounded(store: Store) -> None:
    manager = live(store)
    for number in range(30):
        manager.append_message(user(f"needle number {number}"))
    whole = store.search("needle", limit=None)
    size = [len(json.dumps(hit.to_dict(), separators=(",", ":"), ensure_ascii=False)) for hit in whole.hits]
    for bound in (0, size[0] - 1, size[0], sum(size[:7]), 10**6):
        bounded = store.search("needle", limit=None, max_chars=bound)
        assert sum(size[: len(bounded.hits)]) <= bound or not bounded.hits
        assert bounded.hits == whole.hits[: len(bounded.hits)]
        assert (bounded.total, bounded.cut) == (30, len(bounded.hits) < 30)


def test_the_indexs_own_syntax_on_request(store: Store) -> None:
    manager = live(store)
    ids = [manager.append_message(user(text)) for text in ("one two", "two three", "one three")]
    assert entries(store, "one NOT two", fts=True) == {ids[2]}
    assert entries(store, "one OR three", fts=True) == set(ids)
    assert entries(store, "text : two", fts=True) == set(ids[:2])
    output = manager.append_message({"role": "toolResult", "toolName": "bash", "content": "two results"})
    assert entries(store, "result : two", fts=True) == {output}
    assert entries(store, "two", fts=True) == {*ids[:2], output}
    assert entries(store, "two", fts=True, kinds=["result"]) == {output}
    assert entries(store, "two", fts=True, kinds=["text", "call"]) == set(ids[:2])
    assert entries(store, 'NEAR("one" "two", 2)', fts=True) == {ids[0]}
    for wrong in ("one AND", "(one", 'one"', "nothing : one"):
        with pytest.raises(BadQueryError):
            store.search(wrong, fts=True)


# -- in step ---------------------------------------------------------------------------------------------------------


def test_the_index_follows_imports_growth_changes_and_deletion(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", header("a"), entry(1, None, "first heron"))
    store.import_paths([path])
    assert store.search("heron").total == 1
    path.write_bytes(path.read_bytes() + entry(2, 1, "second heron"))
    store.import_paths([path])
    assert store.search("heron").total == 2
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    grown = write(tmp_path / "b.jsonl", header("b"), entry(1, None, "open osprey").removesuffix(b"\n"))
    store.import_paths([grown])
    grown.write_bytes(grown.read_bytes() + b"\n" + entry(2, 1, "osprey again"))
    store.import_paths([grown])
    assert store.search("osprey").total == 2
    path.write_bytes(header("a") + entry(1, None, "first egret"))
    store.import_paths([path])
    assert [hit.superseded for hit in store.search("heron").hits] == [True, True]
    assert store.search("egret").total == 1
    from sessiondb import rows
    from sessiondb.connection import transaction

    with transaction(store.connection):
        rows.delete_session(store.connection, store.search("osprey").hits[0].session_pk)
    assert store.search("osprey").total == 0
    assert store.check() == []


def test_the_index_follows_rewrites(store: Store) -> None:
    manager = live(store, dialect="pi")
    ids = talk(manager, *[f"word{number} same" for number in range(200)])
    call = manager.append_message({**assistant(), "content": [tool_call("c", path="old.txt")]})
    manager.rewrite_tool_call_arguments("c", {"path": "new.txt"})
    assert entries(store, "new.txt") == {call}
    assert entries(store, "old.txt") == set()
    assert entries(store, "same") == set(ids)
    assert entries(store, "word77") == {ids[77]}


def test_a_session_that_is_taken_back_leaves_no_words(store: Store) -> None:
    manager = live(store)
    talk(manager, "question heron", "answer heron")
    branch = manager.branched()
    assert store.search("heron").total == 4
    branch.discard()
    assert store.search("heron").total == 2


def test_many_slots_and_blocks(store: Store, tmp_path: Path) -> None:
    lines = [header("big"), *(entry(number, number - 1 or None, f"n{number} all") for number in range(1, 1_500))]
    store.import_paths([write(tmp_path / "big.jsonl", *lines)])
    assert store.search("all").total == 1_499
    for number in (1, 62, 63, 64, 65, 127, 128, 1_499):
        assert entries(store, f"n{number}") == {f"{number:08x}"}
    assert store.sql("SELECT count(*) AS n FROM text_block")[0]["n"] == 1_500 // 64 + 1


def test_the_golden_files_are_found_by_their_own_words(store: Store) -> None:
    store.import_paths([GOLDEN])
    for info in store.sessions(superseded=True):
        for said in store.entries(info):
            texts = texts_of(said).values() if type(said) is dict else []
            words = [word for text in texts for word in text.split() if word.isalnum() and word.isascii()][:5]
            if words:
                found = store.search(" ".join(words), session=info, limit=None).hits
                assert said.get("id") in {hit.entry for hit in found} or "id" not in said


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM entry_fts WHERE rowid = (SELECT min(id) FROM entry_fts_docsize)",
        "DELETE FROM result_fts WHERE rowid = (SELECT min(id) FROM result_fts_docsize)",
        "INSERT INTO result_fts (rowid, result) SELECT max(id), 'twice' FROM entry_fts_docsize",
        "INSERT INTO entry_fts (rowid, text) VALUES (99999999, 'stray')",
        "INSERT OR REPLACE INTO entry_fts (rowid, text) SELECT max(id), 'other words' FROM entry_fts_docsize",
        "DELETE FROM text_block",
        "INSERT INTO text_block (first_pk) VALUES (1 << 40)",
    ],
)
def test_an_index_out_of_step_is_found_and_mended(store: Store, harm: str) -> None:
    manager = live(store)
    talk(manager, "question heron", "answer egret")
    manager.append_message({"role": "toolResult", "toolName": "bash", "content": [{"type": "text", "text": "output"}]})
    store.connection.execute(harm)
    assert store.check() != []
    assert store.reindex() == 1
    assert store.check() == []
    assert store.search("heron").total == 1


def test_a_hit_without_its_line_is_damage_and_no_riddle(store: Store) -> None:
    talk(live(store), "question heron", "answer")
    store.connection.execute("INSERT INTO entry_fts (rowid, text) VALUES (99999999, 'stray')")
    with pytest.raises(DamagedDatabaseError, match="reindex"):
        store.search("stray")
    store.reindex()
    assert store.search("stray").total == 0


def test_a_session_that_is_being_imported_is_not_found_yet(store: Store) -> None:
    talk(live(store), "question heron", "answer")
    store.connection.execute("UPDATE session SET staged_by = 'here 1 x'")
    assert store.search("heron").total == 0
    assert store.search("heron").hits == []
    assert store.check() == []
    store.connection.execute("UPDATE session SET staged_by = NULL")
    assert store.search("heron").total == 1


def test_one_session_is_derived_again_and_the_others_are_left(store: Store) -> None:
    one, other = live(store), live(store)
    talk(one, "heron", "a")
    talk(other, "heron", "a")
    store.connection.execute("DELETE FROM text_block")
    assert store.reindex(one.get_session_id()) == 1
    assert [hit.session for hit in store.search("heron").hits] == [one.get_session_id()]
    store.reindex()


def test_the_index_is_no_bigger_than_it_must_be(store: Store, corpus: Path) -> None:
    report = store.import_paths([corpus / "real"] if (corpus / "real").is_dir() else [corpus])
    size = "SELECT sum(pgsize) AS n FROM dbstat WHERE name LIKE '%_fts%' OR name LIKE '%text_block%'"
    used = next(iter(store.connection.execute(size)))[0]
    assert used < 0.35 * report.bytes_read  # small files fill no pages; the benchmark has the measure


def test_hits_are_compared_by_what_they_are(store: Store) -> None:
    talk(live(store), "heron", "a")
    assert store.search("heron").hits == store.search("heron").hits
    assert isinstance(store.search("heron").hits[0], Hit)


def test_searching_while_another_thread_appends(open_store: OpenStore) -> None:
    import threading

    store = open_store()
    manager = live(store)
    stop = threading.Event()
    errors: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                result = store.search("heron", limit=None)
                assert len(result.hits) == result.total
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(200):
        manager.append_message(user(f"heron {number}"))
    stop.set()
    thread.join()
    assert errors == []
    assert store.search("heron").total == 200
