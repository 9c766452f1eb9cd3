"""Fixtures for every test: a store whose database is sound at the end, and the shared corpus where it is present."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessiondb import Store

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(autouse=True)
def _nobody_s_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or writes the agents' folders or the database of whoever runs it."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in [n for n in os.environ if n.startswith(("SESSIONDB_", "PI_CODING_AGENT_", "XDG_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens stores under tmp_path; at the end of the test each one's `check` must find nothing."""
    opened: list[Store] = []

    def open_one(name: str = "sessions.db", **options: object) -> Store:
        store = Store.open(tmp_path / "db" / name, **options)  # type: ignore[arg-type]  # passed on as they are
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        problems = [] if store.read_only else store.check()
        store.close()
        assert problems == []


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    """One empty store."""
    return open_store()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The shared folder of real and authored session files; tests that need it are skipped where it is not."""
    if not (SHARED / "corpus").is_dir():
        pytest.skip("needs the corpus folder beside the repository")
    return SHARED / "corpus"
