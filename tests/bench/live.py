"""Live sessions beside what a user would write by hand, and beside pi: contexts and appends, as ratios within one run.

    python tests/bench/live.py [--generator ../shared/bench/gen.py] [--runs 5] [--entries 100000]

Nothing here fails a build. Run it on a machine that does nothing else. pi is measured when tests/clients has it
(`npm ci` there).
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import orjson

from sessiondb import SessionManager, Store

HERE = Path(__file__).resolve().parent
PI = HERE.parent / "clients/node_modules/@mariozechner/pi-coding-agent/dist/core/session-manager.js"

PI_CONTEXT = """
const {SessionManager} = await import(process.argv[1]);
const start = performance.now();
const context = SessionManager.open(process.argv[2]).buildSessionContext();
console.log(JSON.stringify({seconds: (performance.now() - start) / 1000, messages: context.messages.length}));
"""

MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": "All tests pass now; the parser keeps the last line. " * 6}],
    "provider": "anthropic",
    "model": "claude",
    "usage": {"input": 10, "output": 20, "cacheRead": 30, "cacheWrite": 40, "cost": {"total": 0.25}},
    "stopReason": "stop",
    "timestamp": 1_770_000_000_000,
}

MESSAGE_TEXT = MESSAGE["content"][0]["text"]  # type: ignore[index]  # a dict in a list in a dict

APPENDS = 300


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--generator", default=str(HERE.parents[2] / "shared/bench/gen.py"))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--entries", type=int, default=100_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        generate(given.generator, given.entries, work / "long.jsonl", "--compact")
        generate(given.generator, 2_000, work / "short.jsonl", "--compact")
        generate(given.generator, given.entries, work / "whole.jsonl")
        (work / "start.jsonl").write_bytes(b"".join((work / "short.jsonl").open("rb").readlines()[:101]))
        with Store.open(work / "sessions.db") as store:
            store.import_paths([work])
            contexts(store, work, given.runs)
            appends(store, work, given.runs)


def generate(generator: str, entries: int, out: Path, *more: str) -> None:
    command = [sys.executable, generator, "single", str(entries), "1500", "7", str(out), *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def contexts(store: Store, work: Path, runs: int) -> None:
    def seconds(name: str) -> float:
        start = time.perf_counter()
        SessionManager.open(work / f"{name}.jsonl", store=store).build_session_context()
        return time.perf_counter() - start

    times: dict[str, list[float]] = {"long": [], "short": [], "whole": [], "pi": []}
    seconds("long"), seconds("short")
    for _ in range(runs):
        times["long"].append(statistics.median(seconds("long") for _ in range(9)))
        times["short"].append(statistics.median(seconds("short") for _ in range(9)))
        times["whole"].append(seconds("whole"))
        if PI.exists():
            done = subprocess.run(
                ["node", "--input-type=module", "-e", PI_CONTEXT, str(PI), str(work / "whole.jsonl")],
                check=True, capture_output=True,
            )  # fmt: skip
            times["pi"].append(json.loads(done.stdout)["seconds"])
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    print("open + context, median of", runs, "runs")
    print(f"  recent compaction, 2,000 entries    {medians['short'] * 1000:8.2f} ms")
    print(f"  recent compaction, many entries     {medians['long'] * 1000:8.2f} ms", end="")
    print(f"   {medians['long'] / medians['short']:.2f} x (mark 2, 10 ms)")
    print(f"  no compaction, many entries         {medians['whole'] * 1000:8.0f} ms", end="")
    print(f"   {medians['whole'] / medians['pi']:.2f} x pi (mark 1)" if "pi" in medians else "   (pi is not installed)")


def appends(store: Store, work: Path, runs: int) -> None:
    print(f"appends a second, {APPENDS} a run, median of {runs} runs; ours, by hand, ratio (mark 0.7)")
    for durability in ("full", "normal"):
        for name in ("start", "long"):
            rates: dict[str, list[float]] = {"ours": [], "hand": []}
            for _ in range(runs):
                rates["ours"].append(rate(ours(store, work / f"{name}.jsonl", durability)))
                rates["hand"].append(rate(by_hand(store, work / f"{name}.jsonl", durability)))
            ratios = [ours / hand for ours, hand in zip(rates["ours"], rates["hand"], strict=True)]
            label = f"{durability}, behind {'100' if name == 'start' else 'many'} entries"
            print(
                f"  {label:32}{statistics.median(rates['ours']):8.0f} {statistics.median(rates['hand']):8.0f}"
                f"   {statistics.median(ratios):.2f}"
            )


def rate(append: Callable[[], Any]) -> float:
    append()
    start = time.perf_counter()
    for _ in range(APPENDS):
        append()
    return APPENDS / (time.perf_counter() - start)


def ours(store: Store, file: Path, durability: str) -> Callable[[], Any]:
    manager = SessionManager.open(file, store=store, durability=durability)
    return lambda: manager.append_message(MESSAGE)


def by_hand(store: Store, file: Path, durability: str) -> Callable[[], Any]:
    """The same rows as an append of ours leaves behind, at the same place, with nothing around the SQL but what makes
    the line."""
    path = store.database.with_name("hand.db")
    if not path.exists():
        shutil.copyfile(store.database, path)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    names = [row[0] for row in db.execute("SELECT name FROM pragma_table_info('session') WHERE name <> 'pk'")]
    pk = store.session(file).pk
    session = next(db.execute("SELECT pk, * FROM session WHERE pk = ?", (pk,)))
    (last,) = next(db.execute("SELECT max(pk) FROM line WHERE pk < ?", ((pk + 1) << 32,)))
    _, _, parent_id, *columns = next(
        db.execute("SELECT * FROM entry WHERE session_pk = ? ORDER BY pk DESC LIMIT 1", (pk,))
    )
    fold = session[2 + names.index("fold")]
    keys = iter(range(last + 1, last + 1_000_000))
    (number,) = next(db.execute("SELECT (max(pk) + 1000000) << 6 FROM text_block"))
    number -= last
    insert = f"INSERT INTO entry VALUES (?, ?, ?, {', '.join('?' * len(columns))})"

    def append() -> None:
        nonlocal parent_id
        key = next(keys)
        entry_id = secrets.token_hex(4)
        stamp = f"{datetime.now(UTC).isoformat(timespec='milliseconds')[:-6]}Z"
        entry = {"type": "message", "id": entry_id, "parentId": parent_id, "timestamp": stamp, "message": MESSAGE}
        raw = orjson.dumps(entry).decode() + "\n"
        parent_id = entry_id
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO line (pk, raw) VALUES (?, ?)", (key, raw))
        db.execute(insert, (key, pk, entry_id, *columns))
        db.execute("INSERT INTO entry_fts (rowid, text) VALUES (?, ?)", (number + key, MESSAGE_TEXT))
        db.execute(
            "UPDATE session SET modified_ms = ?, message_count = ?, entry_count = ?, line_count = ?, slot_count = ?, "
            "byte_count = ?, fold = ?, leaf_pk = ? WHERE pk = ?",
            (key, key, key, key, key & 0xFFFFFFFF, key, fold, key, pk),
        )
        db.execute("COMMIT")

    return append


if __name__ == "__main__":
    main()
