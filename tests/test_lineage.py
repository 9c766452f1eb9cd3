"""Which session another came from: told where exactly one is named, whatever the order of import."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sessiondb import Store
from sessiondb.connection import transaction
from sessiondb.rows import delete_session
from tests.support import entry, header, write


def parents(store: Store) -> dict[str, str | None]:
    """Each session's parent, both by their first paths' names."""
    infos = store.sessions(superseded=True)
    names = {info.pk: Path(info.paths[0]).stem if info.paths else f"old {info.id}" for info in infos}
    return {names[info.pk]: names.get(info.parent_pk or 0) for info in infos}


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_parent_is_found_by_id_and_by_path_in_any_order_of_import(
    store: Store, tmp_path: Path, order: tuple[int, ...]
) -> None:
    root = write(tmp_path / "root.jsonl", header("r"), entry(1))
    by_id = write(tmp_path / "by-id.jsonl", header("i", parentSession="r"))
    by_path = write(tmp_path / "by-path.jsonl", header("p", parentSession=str(root)))
    files = [root, by_id, by_path]
    for place in order:
        store.import_paths([files[place]])
    assert parents(store) == {"root": None, "by-id": "root", "by-path": "root"}
    view = store.sql("SELECT c.id, p.id AS parent FROM sessions c JOIN sessions p ON p.pk = c.parent_pk ORDER BY c.id")
    assert view == [{"id": "i", "parent": "r"}, {"id": "p", "parent": "r"}]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_of_two_sessions_with_the_id_none_is_the_parent(
    store: Store, tmp_path: Path, order: tuple[int, ...]
) -> None:  # fmt: skip
    files = [
        write(tmp_path / "one.jsonl", header("same"), entry(1, None, "one")),
        write(tmp_path / "two.jsonl", header("same"), entry(1, None, "two")),
        write(tmp_path / "child.jsonl", header("c", parentSession="same")),
    ]
    for place in order:
        store.import_paths([files[place]])
    assert parents(store)["child"] is None


NO_PARENTS = {
    "nothing named": {},
    "unknown": {"parentSession": "elsewhere"},
    "itself": {"parentSession": "c"},
    "no text": {"parentSession": 7},
    "the path in other words": {"parentSession": "{folder}/./root.jsonl"},
    "the start of an id": {"parentSession": "root-0"},
}


@pytest.mark.parametrize("more", NO_PARENTS.values(), ids=NO_PARENTS)
def test_what_names_no_session_here_is_no_parent(store: Store, tmp_path: Path, more: dict[str, object]) -> None:
    named = {key: value.format(folder=tmp_path) if isinstance(value, str) else value for key, value in more.items()}
    root = write(tmp_path / "root.jsonl", header("root-00"), entry(1))
    child = write(tmp_path / "child.jsonl", header("c", **named))
    store.import_paths([root, child])
    assert parents(store) == {"root": None, "child": None}
    written = named.get("parentSession")
    assert store.session("c").parent_session == (written if isinstance(written, str) else None)


def test_a_session_that_took_over_the_file_is_the_parent(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "root.jsonl", header("r"), entry(1))
    by_id = write(tmp_path / "by-id.jsonl", header("i", parentSession="r"))
    by_path = write(tmp_path / "by-path.jsonl", header("p", parentSession=str(root)))
    store.import_paths([root, by_id, by_path])
    old = store.session(root).pk
    write(root, header("r"), entry(1, None, "other"))
    store.import_paths([root])
    new = store.session(root).pk
    assert new != old
    assert {info.parent_pk for info in store.sessions() if info.parent_session} == {new}
    write(root, header("r2"), entry(1, None, "a third"))
    store.import_paths([root])
    assert parents(store) == {"root": None, "old r": None, "by-id": None, "by-path": "root"}


def test_a_path_that_comes_to_hold_the_session_leads_to_it(store: Store, tmp_path: Path) -> None:
    twin = tmp_path / "twin.jsonl"
    store.import_paths([write(tmp_path / "root.jsonl", header("r"), entry(1))])
    store.import_paths([write(tmp_path / "child.jsonl", header("c", parentSession=str(twin)))])
    assert parents(store)["child"] is None
    store.import_paths([write(twin, header("r"), entry(1))])
    assert parents(store)["child"] == "root"


def test_when_a_session_goes_its_children_are_linked_anew(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", header("same"), entry(1, None, "one"))
    two = write(tmp_path / "two.jsonl", header("same"), entry(1, None, "two"))
    store.import_paths([one, two, write(tmp_path / "child.jsonl", header("c", parentSession="same"))])
    for gone, left in ((one, "two"), (two, None)):
        pk = store.session(gone).pk
        with transaction(store.connection):
            delete_session(store.connection, pk)
        assert parents(store)["child"] == left


def test_two_sessions_may_name_each_other(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", header("1", parentSession="2"))
    two = write(tmp_path / "two.jsonl", header("2", parentSession="1"))
    store.import_paths([one, two])
    assert parents(store) == {"one": "two", "two": "one"}
    walk = """
    WITH RECURSIVE up (pk) AS (
      SELECT pk FROM sessions WHERE id = '1' UNION SELECT s.parent_pk FROM up JOIN sessions s ON s.pk = up.pk
    )
    SELECT count(*) AS n FROM up
    """
    assert store.sql(walk) == [{"n": 2}]


def test_check_finds_a_link_that_the_header_does_not_name(store: Store, tmp_path: Path) -> None:
    one, two = (write(tmp_path / f"{n}.jsonl", header(n), entry(1, None, n)) for n in "ab")
    store.import_paths([one, two])
    link = "UPDATE session SET parent_pk = :parent WHERE id = 'a'"
    store.connection.execute(link, {"parent": store.session("b").pk})
    assert any("parent" in problem for problem in store.check())
    store.connection.execute(link, {"parent": None})
