"""The write-ahead log beside live appends: emptied by a thread, kept in bounds, and no part of what is promised."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from sessiondb import SessionManager, Store, checkpoints
from tests.support import OpenStore
from tests.test_live_tree import assistant, user

MEGABYTE = 1024 * 1024
BIG = user("x" * 100_000)


@pytest.fixture
def store(tmp_path: Path, open_store: OpenStore) -> Store:
    return open_store()


def log_bytes(store: Store) -> int:
    return store.database.with_name(store.database.name + "-wal").stat().st_size


def talking(store: Store) -> SessionManager:
    manager = SessionManager.create("/w", store=store, durability="normal")
    manager.append_message(assistant())
    return manager


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sessiondb checkpoints"]


def eventually(holds: Callable[[], Any], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(holds())


def test_the_log_reaches_the_database_while_the_store_is_open(store: Store) -> None:
    manager = talking(store)
    before = store.database.stat().st_size
    for _ in range(60):
        manager.append_message(BIG)
    assert eventually(lambda: store.database.stat().st_size - before > 2 * MEGABYTE)


def test_the_log_stays_in_bounds_however_much_is_appended(store: Store) -> None:
    manager = talking(store)
    largest = 0
    for _ in range(1_000):
        manager.append_message(BIG)
        largest = max(largest, log_bytes(store))
    assert store.connection.pragma("page_count") * 8192 > 95 * MEGABYTE
    assert largest < 64 * MEGABYTE


def test_no_thread_is_left_when_the_store_is_closed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "closed.db") as store:
        manager = talking(store)
        for _ in range(60):
            manager.append_message(BIG)
        assert running()
    assert not running()


def test_the_thread_ends_when_it_has_nothing_to_do_and_comes_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(checkpoints, "IDLE_SECONDS", 0.01)
    manager = talking(store)
    for megabytes in (2, 5):
        for _ in range(60):
            manager.append_message(BIG)
        enough = megabytes * MEGABYTE
        assert eventually(lambda: not running())
        assert store.database.stat().st_size > enough


def test_appends_go_on_when_no_checkpoint_can_be_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = talking(store)

    def refuse() -> apsw.Connection:
        raise apsw.CantOpenError("no more files")

    monkeypatch.setattr(store._checkpoints, "_connect", refuse)
    ids = [manager.append_message(BIG) for _ in range(120)]
    assert eventually(lambda: not running())
    assert [entry["id"] for entry in manager.get_entries()][1:] == ids


def test_a_reader_that_stays_does_not_stop_appends(store: Store) -> None:
    manager = talking(store)
    reader = apsw.Connection(str(store.database), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    (count,) = next(reader.execute("SELECT count(*) FROM entry"))
    for _ in range(700):
        manager.append_message(BIG)
    assert next(reader.execute("SELECT count(*) FROM entry")) == (count,)
    reader.execute("ROLLBACK")
    reader.close()
    assert len(manager.get_entries()) == 701
