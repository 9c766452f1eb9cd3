"""The context of a stored session is the context of its file, at every leaf."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from sessiondb import SessionManager, Store, build_session_context, load_entries_from_file
from sessiondb.jsonl import encode_entry
from sessiondb.metadata import DIALECTS

from .conftest import SHARED
from .support import GOLDEN, OpenStore

SMALL = sorted(GOLDEN.rglob("*.jsonl"))
SHARED_FILES = sorted((SHARED / "corpus").rglob("*.jsonl"))


def contexts_are_equal(store: Store, file: Path, *, at_most: int) -> int:
    """How many leaves were compared: every end of a branch, and some entries between."""
    compared = 0
    for dialect in DIALECTS:
        in_place = SessionManager.open(shutil.copy(file, file.with_suffix(f".{dialect}")), dialect=dialect)
        stored = SessionManager.open(file, store=store, dialect=dialect)
        entries = in_place.get_entries()
        assert stored.get_entries() == entries
        ids = [entry["id"] for entry in entries if type(entry) is dict]
        parents = {entry.get("parentId") for entry in entries if type(entry) is dict}
        ends = [entry_id for entry_id in dict.fromkeys(ids) if entry_id not in parents]
        between = random.Random(file.name).sample(ids, min(at_most, len(ids)))
        for leaf in (*ends, *between):
            expected = build_session_context(entries, leaf, dialect=dialect)
            assert store.context(file, leaf) == expected, (dialect, leaf)
            compared += 1
        assert encode_entry(stored.build_session_context()) == encode_entry(in_place.build_session_context())
    return compared


@pytest.mark.parametrize("file", SMALL, ids=lambda f: f.stem)
def test_small_files(file: Path, tmp_path: Path, open_store: OpenStore) -> None:
    store, place = open_store(), Path(shutil.copy(file, tmp_path))
    store.import_paths([place])
    if load_entries_from_file(place):  # else a file in place gives way to a fresh session
        contexts_are_equal(store, place, at_most=50)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the blob:UserWarning")
@pytest.mark.skipif(not SHARED_FILES, reason="the shared corpus is not here")
def test_every_file_of_the_corpus(tmp_path: Path, open_store: OpenStore) -> None:
    store, compared = open_store(), 0
    for number, file in enumerate(SHARED_FILES):
        place = Path(shutil.copy(file, tmp_path / f"{number}.jsonl"))
        store.import_paths([place])
        if load_entries_from_file(place):  # else a file in place gives way to a fresh session
            compared += contexts_are_equal(store, place, at_most=20)
    assert compared > 1_500
