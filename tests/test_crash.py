"""A killed import leaves whole sessions, and the next one finishes the job (invariant 4)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from sessiondb import Store, batch, rows
from sessiondb.report import Progress

IMPORT = """
import os, signal, sys
from sessiondb import Store, batch
batch.BATCH_BYTES = int(sys.argv[3])
left = int(sys.argv[4])
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
with Store.open(sys.argv[1]) as store:
    store.connection.exec_trace = count
    print("ready", flush=True)
    store.import_paths([sys.argv[2]])
print(-left, flush=True)
"""
"""Imports a folder; kills itself at the given statement (each row of an executemany is one), or tells how many ran."""


def write_sessions(folder: Path, count: int, lines: int, seed: int) -> None:
    rng = random.Random(seed)
    folder.mkdir()
    for number in range(count):
        parts = [b'{"type":"session","version":3,"id":"s%d","timestamp":"2026-01-01T00:00:00.000Z"}\n' % number]
        for line in range(rng.randrange(1, lines)):
            text = bytes(rng.choices(b"abcdefgh ", k=rng.randrange(20, 900)))
            parts.append(
                b'{"type":"message","id":"%08x","parentId":%s,"timestamp":"2026-01-01T00:00:00.000Z",'
                b'"message":{"role":"user","content":"%s"}}\n'
                % (line, b'"%08x"' % (line - 1) if line else b"null", text)
            )
        (folder / f"{number}.jsonl").write_bytes(b"".join(parts))


def run_import(database: Path, folder: Path, batch: int, kill_at: int, delay: float | None = None) -> tuple[int, str]:
    """Exit code and last word of an import that is killed at a statement, or from outside after `delay` seconds."""
    args = [sys.executable, "-c", IMPORT, str(database), str(folder), str(batch), str(kill_at)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            child.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        return child.wait(), child.stdout.read()


def require_whole(database: Path, folder: Path) -> int:
    """Every visible session has all bytes of its file; how many there are."""
    with Store.open(database) as store:
        assert store.check() == []
        verdicts = list(store.verify())
        assert {v.state for v in verdicts} <= {"equal"}
        return len(verdicts)


def remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def finish(database: Path, folder: Path, sessions: int) -> None:
    with Store.open(database) as store:
        report = store.import_paths([folder])
        assert report.imported + report.unchanged == sessions
        assert report.skipped == []
    assert require_whole(database, folder) == sessions


@pytest.mark.parametrize(
    ("batch", "sessions", "lines"), [(60_000, 40, 40), (10_000, 6, 300)], ids=["many in a batch", "staged in many"]
)
def test_an_import_killed_at_any_statement_leaves_whole_sessions_and_the_next_run_finishes(
    tmp_path: Path, batch: int, sessions: int, lines: int
) -> None:
    folder, database = tmp_path / "sessions", tmp_path / "s.db"
    write_sessions(folder, sessions, lines, seed=sessions)
    code, statements = run_import(database, folder, batch, -1)
    assert code == 0
    rng = random.Random(sessions)
    for _ in range(4):
        remove(database)
        code, _ = run_import(database, folder, batch, rng.randrange(1, int(statements)))
        assert code == -signal.SIGKILL
        assert require_whole(database, folder) < sessions
        finish(database, folder, sessions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_imports_killed_from_outside_at_random_moments_lose_and_tear_nothing(tmp_path: Path, seed: int) -> None:
    folder, database = tmp_path / "sessions", tmp_path / "s.db"
    write_sessions(folder, 60, 200, seed)
    rng = random.Random(seed)
    killed = 0
    for _ in range(25):
        code, _ = run_import(database, folder, 40_000, -1, rng.uniform(0.0, 0.25))
        killed += code == -signal.SIGKILL
        if require_whole(database, folder) == 60:
            remove(database)
    finish(database, folder, 60)
    print(f"{killed} of 25 imports were killed at work")
    assert killed


def test_a_session_bigger_than_a_batch_appears_only_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sessions(tmp_path / "in", 3, 500, seed=9)
    monkeypatch.setattr(batch, "BATCH_BYTES", 5_000)
    seen: list[tuple[int, int]] = []
    original = batch.Batch.flush

    def flush_and_look(self: batch.Batch) -> None:
        original(self)
        shown = store.sql("SELECT (SELECT count(*) FROM sessions) s, (SELECT count(*) FROM entries) e")[0]
        seen.append((shown["s"], shown["e"]))

    monkeypatch.setattr(batch.Batch, "flush", flush_and_look)
    assert store.import_paths([tmp_path / "in"]).imported == 3
    per_session = store.sql("SELECT entry_count FROM sessions ORDER BY pk")
    totals = {0: 0}
    for row in per_session:
        totals[len(totals)] = totals[len(totals) - 1] + row["entry_count"]
    assert len(seen) > 10
    assert {(s, totals[s]) for s, _ in seen} >= set(seen)


def test_rows_of_a_process_that_is_gone_are_removed_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store.open(path).close()
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    host = rows.owner().split()[0]
    db = apsw.Connection(str(path))
    columns = "pk, id, dialect, dialect_reason, version, message_count, entry_count, line_count, slot_count, fault_count, byte_count, digest, imported_bytes, id_hint, fold, imported_ms, staged_by"  # noqa: E501
    values = "?, 'x', '', '', 3, 0, 0, 0, 0, 0, 0, x'', 0, 'x', '', 0, ?"
    owners = {1: f"{host} {dead.stdout.strip()} run", 2: rows.owner(), 3: "elsewhere 1 run"}
    for pk, owner in owners.items():
        db.execute(f"INSERT INTO session ({columns}) VALUES ({values})", (pk, owner))
        db.execute("INSERT INTO line (pk, raw) VALUES (?, 'x')", (pk << 32,))
    db.close()
    Store.open(path).close()
    db = apsw.Connection(str(path))
    assert [pk for (pk,) in db.execute("SELECT pk FROM session ORDER BY pk")] == [2, 3]
    assert [pk >> 32 for (pk,) in db.execute("SELECT pk FROM line ORDER BY pk")] == [2, 3]
    db.close()


def test_an_import_leaves_the_write_lock_to_others_between_batches(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sessions(tmp_path / "first", 1, 5, seed=11)
    store.import_paths([tmp_path / "first"])  # from here on the database has other users
    write_sessions(tmp_path / "in", 40, 200, seed=10)
    monkeypatch.setattr(batch, "BATCH_BYTES", 100_000)
    other = apsw.Connection(str(store.database))
    other.set_busy_timeout(2000)
    got_in = []

    def write_something(progress: Progress) -> None:
        other.execute("UPDATE state SET value = value WHERE name = 'next session'")
        got_in.append(progress.files)

    store.import_paths([tmp_path / "in"], on_progress=write_something)
    other.close()
    assert (sorted(got_in), set(got_in)) == (got_in, set(range(41)))
