"""One tree in three homes: leaf, branches, labels and context are the same in a file, in a database and in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiondb import UNSET, SessionDBError, SessionManager, Store, build_session_context
from sessiondb.errors import EntryNotFoundError, SessionNotFoundError
from tests.support import GOLDEN, OpenStore, dump, entry, exported, header, write

DIALECTS = ("xcsh", "pi", "omp")
SEEDS = [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))]
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00.000Z"""


class Home:
    """Where the sessions of one test live: `file`, `database` or `memory`."""

    def __init__(self, name: str, tmp_path: Path, open_store: OpenStore) -> None:
        self.name = name
        self.folder = tmp_path / "sessions"
        self.agent_dir = tmp_path / "agent"
        self.in_database = name == "database"
        self._store: Store | None = open_store() if self.in_database else None

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @property
    def options(self) -> dict[str, Any]:
        if self.in_database:
            return {"store": self.store}
        return {"session_dir": self.folder, "agent_dir": self.agent_dir}

    def create(self, cwd: str = "/w", **more: Any) -> SessionManager:
        if self.name == "memory":
            return SessionManager.in_memory(cwd, **more)
        return SessionManager.create(cwd, **self.options, **more)

    def put(self, *lines: bytes, name: str = "2026-01-01T00-00-00-000Z_s-1.jsonl", dialect: str | None = None) -> str:
        """Have the home hold a session of these bytes; what it is opened by is returned."""
        path = write(self.folder / name, *lines)
        if self.in_database:
            report = self.store.import_paths([path], dialect=dialect)
            assert not report.skipped
        return str(path)

    def open(self, ref: str | None, **more: Any) -> SessionManager:
        assert ref is not None
        return SessionManager.open(ref, **self.options, **more)

    def reopen(self, manager: SessionManager, **more: Any) -> SessionManager:
        """The same session again. A database knows its dialect; a file may hold no mark of it."""
        manager.close()
        if not self.in_database:
            more = {"dialect": manager.get_dialect(), **more}
        return self.open(manager.get_session_file(), **more)

    def stored(self, manager: SessionManager) -> bytes:
        """All that the home holds of the session now."""
        ref = manager.get_session_file()
        assert ref is not None
        if not self.in_database:
            return Path(ref).read_bytes() if Path(ref).exists() else b""
        try:
            return exported(self.store, ref)
        except SessionNotFoundError:
            return b""


class Counted:
    """A clock that stands until it is told to tick, and ids that count."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.last = 0

    def tick(self, ms: int = 1000) -> None:
        self.now_ms += ms

    def clock(self) -> int:
        return self.now_ms

    def ids(self, kind: str) -> str:
        self.last += 1
        return f"{self.last:08x}" if kind == "entry" else f"session-{self.last}"

    @property
    def options(self) -> dict[str, Any]:
        return {"clock": self.clock, "ids": self.ids}


def user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": START_MS}


def assistant(text: str = "yes", *, cost: float = 0.5, **more: Any) -> dict[str, Any]:
    usage = {"input": 10, "output": 3, "cacheRead": 2, "cacheWrite": 1, "totalTokens": 16, "cost": {"total": cost}}
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "provider": "p", "model": "m", "usage": usage, **more}


def tool_call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": arguments}


def talk(manager: SessionManager, *texts: str) -> list[str]:
    """Append user and assistant messages in turn; their ids."""
    made = (user, assistant)
    return [manager.append_message(made[i % 2](text)) for i, text in enumerate(texts)]


def ids_of(entries: Any) -> list[Any]:
    return [e["id"] if isinstance(e, dict) else e for e in entries]


def shape(nodes: Any) -> list[Any]:
    """A tree as nested pairs of id and children."""
    return [(n["entry"]["id"], shape(n["children"])) for n in nodes]


def texts_of(context: dict[str, Any]) -> list[Any]:
    """What the messages of a context say."""
    return [m.get("summary") or _text(m["content"]) for m in context["messages"]]


def _text(content: Any) -> Any:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@pytest.fixture(params=["file", "database", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    return Home(request.param, tmp_path, open_store)


@pytest.fixture(params=["file", "database"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, open_store: OpenStore) -> Home:
    """The homes that outlive their manager."""
    return Home(request.param, tmp_path, open_store)


# --- the leaf

APPENDS: list[tuple[str, str, Callable[[SessionManager, str], str]]] = [
    ("message", "xcsh pi omp", lambda m, i: m.append_message(user())),
    ("thinking_level_change", "xcsh pi omp", lambda m, i: m.append_thinking_level_change("high")),
    ("model_change", "xcsh pi omp", lambda m, i: m.append_model_change("openai/gpt-5")),
    ("compaction", "xcsh pi omp", lambda m, i: m.append_compaction("sum", i, 7)),
    ("branch_summary", "xcsh pi omp", lambda m, i: m.branch_with_summary(m.get_leaf_id(), "sum")),
    ("custom", "xcsh pi omp", lambda m, i: m.append_custom_entry("ext", {"n": 1})),
    ("custom_message", "xcsh pi omp", lambda m, i: m.append_custom_message_entry("ext", "text", True)),
    ("label", "xcsh pi omp", lambda m, i: m.append_label_change(i, "mark")),
    ("session_info", "pi", lambda m, i: m.append_session_info("name")),
    ("mode_change", "xcsh omp", lambda m, i: m.append_mode_change("plan", {"planFile": "/p"})),
    ("ttsr_injection", "xcsh omp", lambda m, i: m.append_ttsr_injection(["a", "b"])),
    ("session_init", "xcsh omp", lambda m, i: m.append_session_init({"systemPrompt": "s", "task": "t", "tools": []})),
    ("context_change", "xcsh", lambda m, i: m.append_context_change("prod", "acme", "ns")),
    ("service_tier_change", "xcsh omp", lambda m, i: m.append_service_tier_change("flex")),
    ("mcp_tool_selection", "xcsh", lambda m, i: m.append_mcp_tool_selection(["x"])),
    ("credential_pin", "omp", lambda m, i: m.append_credential_pin("p", "h")),
    ("reset_boundary", "omp", lambda m, i: m.append_reset_boundary()),
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_append_of_any_type_is_a_child_of_the_leaf_and_becomes_the_leaf(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    first, leaf = talk(manager, "u", "a")
    made = [first, leaf]
    for kind in (name for name, dialects, _ in APPENDS if dialect in dialects.split()):
        leaf_before, leaf = leaf, next(a for n, _, a in APPENDS if n == kind)(manager, first)
        made.append(leaf)
        assert manager.get_leaf_id() == leaf
        entry_made = manager.get_entry(leaf)
        assert entry_made is not None
        assert manager.get_leaf_entry() == entry_made
        assert (entry_made["type"], entry_made["id"], entry_made["parentId"]) == (kind, leaf, leaf_before)
    assert ids_of(manager.get_entries()) == made
    if home.name != "memory":
        before = list(manager.get_entries())
        again = home.reopen(manager)
        assert again.get_leaf_id() == leaf
        assert list(again.get_entries()) == before


def test_a_new_session_has_no_leaf_no_entries_and_an_empty_context(home: Home) -> None:
    manager = home.create("/srv/x")
    assert (manager.get_leaf_id(), manager.get_leaf_entry()) == (None, None)
    assert (list(manager.get_entries()), list(manager.get_branch()), list(manager.get_tree())) == ([], [], [])
    assert manager.build_session_context()["messages"] == []
    head = manager.get_header()
    assert (head["type"], head["version"], head["cwd"]) == ("session", 3, "/srv/x")
    assert head["id"] == manager.get_session_id()
    assert manager.get_cwd() == "/srv/x"


def test_branching_moves_only_the_leaf(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a", "u2", "a2")
    before = list(manager.get_entries())
    manager.branch(ids[1])
    assert manager.get_leaf_id() == ids[1]
    assert list(manager.get_entries()) == before
    other = manager.append_message(user("other"))
    assert ids_of(manager.get_branch()) == [ids[0], ids[1], other]
    assert ids_of(manager.get_children(ids[1])) == [ids[2], other]
    assert texts_of(manager.build_session_context()) == ["u", "a", "other"]


@pytest.mark.parametrize("unknown", ["nope", ""])
@pytest.mark.parametrize(
    "call",
    [
        lambda m, i: m.branch(i),
        lambda m, i: m.branch_with_summary(i, "sum"),
        lambda m, i: m.append_label_change(i, "mark"),
        lambda m, i: m.create_branched_session(i),
    ],
    ids=["branch", "branch_with_summary", "label", "create_branched_session"],
)
def test_an_unknown_entry_is_refused_in_the_clients_words_and_changes_nothing(
    home: Home, call: Callable[[SessionManager, str], Any], unknown: str
) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a")
    with pytest.raises(EntryNotFoundError) as raised:
        call(manager, unknown)
    assert isinstance(raised.value, LookupError)
    assert str(raised.value) == f"Entry {unknown} not found"
    assert manager.get_leaf_id() == ids[1]
    assert ids_of(manager.get_entries()) == ids


def test_after_a_reset_the_next_append_is_another_root(home: Home) -> None:
    manager = home.create()
    first, _ = talk(manager, "u", "a")
    manager.reset_leaf()
    assert (manager.get_leaf_id(), manager.get_leaf_entry()) == (None, None)
    assert list(manager.get_branch()) == []
    assert manager.build_session_context()["messages"] == []
    root = manager.append_message(user("again"))
    assert manager.get_entry(root) == manager.get_leaf_entry()
    assert manager.get_leaf_entry()["parentId"] is None  # type: ignore[index]  # it has just been appended
    assert ids_of(manager.get_children(None)) == [first, root]
    assert texts_of(manager.build_session_context()) == ["again"]


@pytest.mark.parametrize(("dialect", "flag"), [("xcsh", "fromExtension"), ("omp", "fromExtension"), ("pi", "fromHook")])
def test_branching_with_a_summary_names_the_target_as_its_origin(home: Home, dialect: str, flag: str) -> None:
    manager = home.create(dialect=dialect)
    first, *_ = talk(manager, "u", "a", "u2", "a2")
    made = manager.get_entry(manager.branch_with_summary(first, "left", {"n": 1}, True))
    assert made is not None
    assert (made["type"], made["parentId"], made["fromId"], made["summary"]) == ("branch_summary", first, first, "left")
    assert (made["details"], made[flag]) == ({"n": 1}, True)
    assert texts_of(manager.build_session_context()) == ["u", "left"]
    rooted = manager.get_entry(manager.branch_with_summary(None, "all left"))
    assert rooted is not None
    assert (rooted["parentId"], rooted["fromId"]) == (None, "root")
    assert "details" not in rooted
    assert flag not in rooted


def test_a_branch_is_asked_for_by_its_end(home: Home) -> None:
    manager = home.create()
    ids = talk(manager, "u", "a", "u2", "a2")
    assert ids_of(manager.get_branch()) == ids
    assert ids_of(manager.get_branch(None)) == ids
    assert ids_of(manager.get_branch(UNSET)) == ids
    assert ids_of(manager.get_branch(ids[2])) == ids[:3]
    assert list(manager.get_branch("nope")) == []
    assert list(manager.get_branch("")) == []
    assert list(manager.get_children("nope")) == []
    assert manager.get_entry("nope") is None


# --- labels


@pytest.mark.parametrize("clear", [None, UNSET, ""], ids=["null", "unset", "empty"])
def test_a_label_is_set_changed_and_cleared(home: Home, clear: Any) -> None:
    manager = home.create()
    first, second = talk(manager, "u", "a")
    assert manager.get_label(first) is None
    manager.append_label_change(first, "one")
    manager.append_label_change(second, "two")
    manager.append_label_change(first, "three")
    assert (manager.get_label(first), manager.get_label(second)) == ("three", "two")
    manager.append_label_change(first, clear)
    assert (manager.get_label(first), manager.get_label(second)) == (None, "two")


def test_the_last_label_of_the_file_counts_on_whatever_branch_it_stands(home: Home) -> None:
    manager = home.create()
    first, second = talk(manager, "u", "a")
    manager.append_label_change(first, "old")
    manager.branch(second)
    label = manager.append_label_change(first, "new")
    manager.append_label_change(label, "label of a label")
    manager.branch(second)
    assert manager.get_label(first) == "new"
    assert manager.get_label(label) == "label of a label"
    if home.name != "memory":
        again = home.reopen(manager)
        assert (again.get_label(first), again.get_label(label)) == ("new", "label of a label")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tree_shows_labels_and_in_pi_when_they_were_set(home: Home, dialect: str) -> None:
    counted = Counted()
    manager = home.create(dialect=dialect, **counted.options)
    first, second = talk(manager, "u", "a")
    counted.tick()
    manager.append_label_change(first, "mark")
    node = manager.get_tree()[0]
    assert node["label"] == "mark"
    assert node.get("labelTimestamp") == ("2026-01-01T00:00:01.000Z" if dialect == "pi" else None)
    assert node["children"][0]["entry"]["id"] == second
    assert "label" not in node["children"][0]


def test_a_stored_label_without_its_target_stays(kept: Home) -> None:
    label = {"type": "label", "id": "l", "parentId": "00000001", "timestamp": "2026-01-01T00:00:05.000Z"}
    ref = kept.put(header(), entry(1), dump({**label, "targetId": "gone", "label": "lost"}))
    manager = kept.open(ref, dialect="xcsh")
    assert manager.get_label("gone") == "lost"
    with pytest.raises(EntryNotFoundError, match=r"^Entry gone not found$"):
        manager.append_label_change("gone", "again")


# --- the order of the tree


def test_children_stand_in_the_order_of_their_times_and_roots_in_that_of_the_file(home: Home) -> None:
    counted = Counted()
    manager = home.create(**counted.options)
    counted.tick(90_000)
    first, second = talk(manager, "u", "a")
    late = manager.append_message(user("late"))
    manager.branch(second)
    counted.tick(-60_000)
    early = manager.append_message(user("early"))
    manager.branch(second)
    early_too = manager.append_message(user("early too"))
    manager.reset_leaf()
    root = manager.append_message(user("first by time, last in the file"))
    below: list[Any] = [(early, []), (early_too, []), (late, [])]
    assert shape(manager.get_tree()) == [(first, [(second, below)]), (root, [])]
    assert ids_of(manager.get_children(second)) == [late, early, early_too]


ODD_TREES = [
    pytest.param([(1, None), (2, 9), (3, 2)], [(1, []), (2, [(3, [])])], [2, 3], id="unknown parent"),
    pytest.param([(1, None), (2, 2), (3, 2)], [(1, []), (2, [(3, [])])], [2, 3], id="its own parent"),
    pytest.param([(1, 2), (2, None), (3, 1)], [(2, [(1, [(3, [])])])], [2, 1, 3], id="parent later in the file"),
    pytest.param([(1, 2), (2, 1)], [(2, [(1, [])])], [2], id="two in a circle"),
    pytest.param([(1, 3), (2, 1), (3, 2), (4, 1)], [(3, [(1, [(2, []), (4, [])])])], [3, 1, 4], id="tail on a circle"),
    pytest.param([(1, None), (2, 1), (2, 1), (3, 2)], [(1, [(2, [(3, [])])])], [1, 2, 3], id="an id twice"),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("parents", "tree", "path"), ODD_TREES)
def test_odd_parents_are_read_and_no_walk_loops(
    kept: Home, dialect: str, parents: list[tuple[int, int | None]], tree: Any, path: list[int]
) -> None:
    lines = [entry(n, parent, f"t{i}", second=i) for i, (n, parent) in enumerate(parents)]
    manager = kept.open(kept.put(header(), *lines, dialect=dialect), dialect=dialect)
    assert len(manager.get_entries()) == len(parents)
    assert numbered(shape(manager.get_tree())) == tree
    assert [int(i, 16) for i in ids_of(manager.get_branch())] == path
    assert manager.get_leaf_id() == f"{parents[-1][0]:08x}"
    last_of = {n: f"t{i}" for i, (n, _) in enumerate(parents)}
    assert texts_of(manager.build_session_context()) == [last_of[n] for n in path]
    new = manager.append_message(assistant())
    assert [int(i, 16) for i in ids_of(manager.get_branch())[:-1]] == path
    assert manager.get_leaf_id() == new


def numbered(nodes: list[Any]) -> list[Any]:
    return [(int(i, 16), numbered(children)) for i, children in nodes]


def test_values_that_are_no_objects_are_entries_but_never_the_leaf(kept: Home) -> None:
    values = [b'"x"\n', b"[]\n", b"true\n", b"null\n"]
    ref = kept.put(header(), entry(1), b"42\n", entry(2, 1, "a", role="assistant"), *values)
    manager = kept.open(ref, dialect="pi")
    assert ids_of(manager.get_entries()) == ["00000001", 42, "00000002", "x", [], True]
    assert manager.get_leaf_id() == "00000002"
    new = manager.append_message(user("next"))
    assert ids_of(manager.get_branch()) == ["00000001", "00000002", new]


def test_a_null_message_is_an_entry_without_a_message_in_the_context(kept: Home) -> None:
    null = {"type": "message", "id": "n", "parentId": "00000001", "timestamp": "2026-01-01T00:00:02.000Z"}
    manager = kept.open(kept.put(header(), entry(1), dump({**null, "message": None})), dialect="xcsh")
    assert ids_of(manager.get_branch()) == ["00000001", "n"]
    assert texts_of(manager.build_session_context()) == ["hi"]
    manager.append_message(assistant("goes on"))
    assert texts_of(manager.build_session_context()) == ["hi", "goes on"]


def test_a_second_header_is_no_entry(kept: Home) -> None:
    manager = kept.open(kept.put(header(), entry(1), header("other"), entry(2, 1)), dialect="pi")
    assert manager.get_session_id() == "s-1"
    assert ids_of(manager.get_entries()) == ["00000001", "00000002"]


# --- where the leaf is when a session is opened


def stale_leaf() -> list[bytes]:
    """An exit entry, written by a process that was killed, stands last and under an old leaf (bc17)."""
    answer = entry(4, 3, "a long good answer", role="assistant", second=21)
    gone = {"type": "custom", "id": "00000007", "parentId": "00000002", "timestamp": "2026-01-01T00:00:30.000Z"}
    talk = [entry(1, None, "start"), entry(2, 1, "started", role="assistant", second=2), entry(3, 2, "more", second=20)]
    return [header(), *talk, answer, dump({**gone, "customType": "session_exit", "data": {"reason": "killed"}})]


def test_the_leaf_is_the_last_entry_whatever_its_type(kept: Home) -> None:
    manager = kept.open(kept.put(*stale_leaf()))
    assert manager.get_leaf_id() == "00000007"
    assert texts_of(manager.build_session_context()) == ["start", "started"]


def test_the_leaf_of_the_newest_message_can_be_asked_for(kept: Home) -> None:
    manager = kept.open(kept.put(*stale_leaf()), leaf="latest-message")
    assert manager.get_leaf_id() == "00000004"
    assert texts_of(manager.build_session_context()) == ["start", "started", "more", "a long good answer"]
    new = manager.append_message(user("on"))
    assert ids_of(manager.get_branch())[-2:] == ["00000004", new]


def test_the_newest_message_s_branch_goes_on_to_its_end(kept: Home) -> None:
    label = {"type": "label", "id": "l", "parentId": "00000004", "timestamp": "2026-01-01T00:00:25.000Z"}
    first, *rest = stale_leaf()
    lines = [first, *rest[:-1], dump({**label, "targetId": "00000001", "label": "x"}), rest[-1]]
    assert kept.open(kept.put(*lines), leaf="latest-message").get_leaf_id() == "l"


def test_the_store_says_that_another_branch_has_later_messages(open_store: OpenStore, tmp_path: Path) -> None:
    home = Home("database", tmp_path, open_store)
    ref = home.put(*stale_leaf())
    assert home.store.later_branch(ref) is not None
    straight = home.put(header("s-2"), entry(1), name="2026-01-01T00-00-00-000Z_s-2.jsonl")
    assert home.store.later_branch(straight) is None


@pytest.mark.parametrize("where", ["branch", "reset", "appended"])
def test_the_database_remembers_the_leaf(open_store: OpenStore, tmp_path: Path, where: str) -> None:
    home = Home("database", tmp_path, open_store)
    manager = home.create()
    ids = talk(manager, "u", "a", "u2", "a2")
    if where == "branch":
        manager.branch(ids[1])
    elif where == "reset":
        manager.reset_leaf()
    else:
        manager.branch(ids[0])
        ids.append(manager.append_message(user("other")))
    left_at = manager.get_leaf_id()
    manager.close()
    ref = manager.get_session_file()
    assert home.open(ref, leaf="saved").get_leaf_id() == left_at
    assert home.open(ref).get_leaf_id() == ids[-1]


def test_a_leaf_that_was_never_moved_is_saved_as_the_last_entry(open_store: OpenStore, tmp_path: Path) -> None:
    home = Home("database", tmp_path, open_store)
    assert home.open(home.put(*stale_leaf()), leaf="saved").get_leaf_id() == "00000007"


def test_a_file_remembers_no_leaf_and_says_so(tmp_path: Path, open_store: OpenStore) -> None:
    home = Home("file", tmp_path, open_store)
    ref = home.put(*stale_leaf())
    with pytest.raises((ValueError, SessionDBError), match="only a database remembers the leaf"):
        home.open(ref, leaf="saved")


def test_a_leaf_that_is_none_of_the_three_is_refused(kept: Home) -> None:
    ref = kept.put(*stale_leaf())
    with pytest.raises(ValueError, match="middle"):
        kept.open(ref, leaf="middle")


# --- what goes to the model


@pytest.mark.parametrize("dialect", DIALECTS)
def test_after_a_compaction_the_context_begins_at_what_was_kept(home: Home, dialect: str) -> None:
    manager = home.create(dialect=dialect)
    ids = talk(manager, "u", "a", "u2", "a2", "u3", "a3")
    manager.append_compaction("first", ids[2], 100)
    talk(manager, "u4", "a4")
    assert texts_of(manager.build_session_context()) == ["first", "u2", "a2", "u3", "a3", "u4", "a4"]
    manager.append_compaction("second", ids[4], 100)
    assert texts_of(manager.build_session_context()) == ["second", "u3", "a3", "u4", "a4"]
    manager.append_compaction("keeps nothing", "nowhere", 100)
    talk(manager, "u5")
    assert texts_of(manager.build_session_context()) == ["keeps nothing", "u5"]


def test_open_tool_calls_are_reported(home: Home) -> None:
    manager = home.create()
    manager.append_message(user())
    broken = manager.append_message(assistant() | {"content": [tool_call("c1", x=1), tool_call("c2")]})
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "ok"}]}
    manager.append_message(result)
    report = manager.context_report()
    assert [(c.entry_id, c.tool_call_id) for c in report.open_tool_calls] == [(broken, "c2")]
    assert report.unreachable == 0


def test_entries_that_cannot_be_reached_are_counted(kept: Home) -> None:
    lines = [entry(1), entry(2, 1, role="assistant"), entry(3, 9), entry(4, 3, role="assistant")]
    report = kept.open(kept.put(header(), *lines)).context_report()
    assert (report.broken_parent, report.unreachable) == ("00000009", 2)


def test_usage_is_summed_over_every_branch_and_the_tasks(home: Home) -> None:
    manager = home.create()
    first, _ = talk(manager, "u", "a")
    manager.branch(first)
    more = assistant(cost=0.25)
    more["usage"]["premiumRequests"] = 2
    manager.append_message(more)
    spent = {"input": 100, "output": 200, "cacheRead": 300, "cacheWrite": 400, "cost": {"total": 1}}
    result = {"role": "toolResult", "toolCallId": "c", "content": [], "details": {"usage": spent}}
    manager.append_message({**result, "toolName": "task"})
    manager.append_message({**result, "toolName": "bash"})
    expected = {"input": 120, "output": 206, "cacheRead": 304, "cacheWrite": 402, "premiumRequests": 2, "cost": 1.75}
    assert manager.get_usage_statistics() == expected
    if home.name != "memory":
        assert home.reopen(manager).get_usage_statistics() == expected


# --- the three homes against a plain model


class Model:
    """The tree as a list, walked in the plainest way."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        self.leaf: str | None = None
        self.labels: dict[str, str] = {}

    def add(self, entry_id: str) -> str:
        self.parents[entry_id] = self.leaf
        self.leaf = entry_id
        return entry_id

    def path(self) -> list[str]:
        found: list[str] = []
        at = self.leaf
        while at is not None:
            found.insert(0, at)
            at = self.parents[at]
        return found

    def tree(self, parent: str | None = None) -> list[Any]:
        return [(i, self.tree(i)) for i, p in self.parents.items() if p == parent]


def one_step(rng: random.Random, manager: SessionManager, model: Model) -> None:
    known = list(model.parents)
    target = rng.choice(known)
    what = rng.randrange(12)
    if what == 0:
        manager.branch(target)
        model.leaf = target
    elif what == 1 and rng.random() < 0.3:
        manager.reset_leaf()
        model.leaf = None
    elif what == 2:
        origin = rng.choice([target, None])
        model.leaf = origin
        model.add(manager.branch_with_summary(origin, rng.choice(["left", ""])))
    elif what == 3:
        label = rng.choice(["x", "y", ""])
        model.add(manager.append_label_change(target, label))
        model.labels.pop(target, None)
        model.labels |= {target: label} if label else {}
    elif what == 4:
        model.add(manager.append_compaction(f"sum {len(known)}", rng.choice([target, "nowhere", model.leaf]), 5))
    elif what == 5:
        model.add(manager.append_model_change(rng.choice(["p/one", "q/two"])))
    elif what == 6:
        model.add(manager.append_thinking_level_change(rng.choice(["low", "high"])))
    elif what == 7:
        model.add(manager.append_custom_message_entry("ext", "said", True))
    elif what == 8:
        model.add(manager.append_custom_entry("ext", {"n": len(known)}))
    else:
        model.add(manager.append_message(rng.choice([user, assistant])(f"text {len(known)}")))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_work_gives_the_same_tree_and_context_in_every_home(home: Home, dialect: str, seed: int) -> None:
    rng, counted, model = random.Random(seed), Counted(), Model()
    manager = home.create(dialect=dialect, **counted.options)
    for made in talk(manager, "u", "a"):
        model.add(made)
    for step in range(60):
        counted.tick()
        one_step(rng, manager, model)
        if home.name != "memory" and step % 20 == 19:
            manager = home.reopen(manager, **counted.options)
            model.leaf = list(model.parents)[-1]
            assert manager.get_dialect() == dialect
        assert manager.get_leaf_id() == model.leaf
        assert ids_of(manager.get_branch()) == model.path()
        pure = build_session_context(manager.get_entries(), model.leaf, dialect=dialect)  # type: ignore[arg-type]
        assert manager.build_session_context() == pure
    assert [(e["id"], e["parentId"]) for e in manager.get_entries()] == list(model.parents.items())
    assert shape(manager.get_tree()) == model.tree()
    assert {i: manager.get_label(i) for i in model.parents if manager.get_label(i) is not None} == model.labels
    parents: list[str | None] = [*model.parents, None]
    for parent in parents:
        assert ids_of(manager.get_children(parent)) == [i for i, p in model.parents.items() if p == parent]


CASES = sorted((GOLDEN / "cases").glob("*.jsonl"))


@pytest.mark.parametrize("case", CASES, ids=[c.stem for c in CASES])
def test_a_file_and_the_database_open_a_session_alike_at_every_leaf(
    tmp_path: Path, open_store: OpenStore, case: Path
) -> None:
    if case.stem in {"11-header-not-first", "12-empty-file"}:
        pytest.skip("no session in a file: see test_live_writing")
    raw = case.read_bytes()
    opened = []
    for name in ("file", "database"):
        home = Home(name, tmp_path / name, open_store)
        home_ref = home.put(raw, name=case.name, dialect="pi")
        opened.append(home.open(home_ref, dialect="pi"))
    file, database = opened
    assert database.get_header() == file.get_header()
    assert list(database.get_entries()) == list(file.get_entries())
    assert database.get_tree() == file.get_tree()
    assert database.get_session_name() == file.get_session_name()
    assert database.get_usage_statistics() == file.get_usage_statistics()
    leaves = [e["id"] for e in file.get_entries() if isinstance(e, dict) and isinstance(e.get("id"), str)]
    for leaf in [None, *leaves]:
        for manager in opened:
            manager.reset_leaf() if leaf is None else manager.branch(leaf)
        assert list(database.get_branch()) == list(file.get_branch())
        assert database.build_session_context() == file.build_session_context()
        assert database.context_report() == file.context_report()
        assert home.store.context(home_ref, leaf) == file.build_session_context()
