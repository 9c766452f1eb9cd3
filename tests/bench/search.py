"""The text index: what it costs an import and a live append, how big it is, and searches beside ripgrep.

    python tests/bench/search.py --corpus DIR [--runs 3]
    python tests/bench/search.py --generator ../shared/bench/gen.py [--sessions 1000] [--mb 500]

Nothing here fails a build. Each import has a process of its own; ratios are within a run, medians of the runs are
printed. ripgrep (`rg`) is measured when it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RARE = "zyxomma quorvexed lantern"
COMMON = "build failed again"
INDEXED = ("none", "conversation", "everything")


def import_indexed(corpus: Path, database: Path, what: str) -> dict[str, float]:
    """Import with `what` in the text index; that is no option of the product, so the one door is told here."""
    from sessiondb import Store, lines
    from sessiondb.texts import texts_of

    def without_results(entry: dict[str, Any]) -> Any:
        message = entry.get("message")
        is_result = type(message) is dict and message.get("role") == "toolResult"
        return {} if is_result or what == "none" else texts_of(entry)

    if what != "everything":
        lines.texts_of = without_results  # type: ignore[attr-defined]  # imported there
    with Store.open(database) as store:
        started = time.perf_counter()
        report = store.import_paths([corpus])
        seconds = time.perf_counter() - started
        sizes = dict(store.connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
    parts = ("entry_fts", "result_fts", "text_block")
    index = sum(size for name, size in sizes.items() if any(part in name for part in parts))
    return {"seconds": seconds, "bytes": report.bytes_read, "index": index, "database": database.stat().st_size}


def searches(database: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(database) as store:
        return {
            "rare": timed(lambda: store.search(f'"{RARE}"')),
            "common": timed(lambda: store.search(f'"{COMMON}"')),
            "hits_rare": store.search(f'"{RARE}"').total,
            "hits_common": store.search(f'"{COMMON}"').total,
            "append": live_append(store),
        }


def timed(call: Callable[[], object], times: int = 7) -> float:
    call()
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def live_append(store: Any) -> float:
    """Seconds of one append, median of 300, with durability="normal"."""
    from sessiondb import SessionManager

    manager = SessionManager.create("/bench", store=store, dialect="pi", durability="normal")
    manager.ensure_on_disk()
    message = {"role": "user", "content": "All tests pass now; the parser keeps the last line. " * 6}
    return timed(lambda: manager.append_message(message), 300)


def ripgrep(phrase: str, corpus: Path) -> float:
    command = ["rg", "--fixed-strings", "--no-ignore", "--count", phrase, str(corpus)]
    return timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True), 3)


def run_once(corpus: Path, work: Path) -> dict[str, dict[str, float]]:
    outcome: dict[str, dict[str, float]] = {}
    for what in INDEXED:
        database = work / f"{what}.db"
        command = [sys.executable, __file__, "--step", what, "--corpus", str(corpus), "--work", str(database)]
        outcome[what] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        if what != INDEXED[-1]:
            database.unlink()  # or the system would write it out while the next one is made
    outcome["search"] = searches(work / "everything.db")
    if shutil.which("rg"):
        outcome["rg"] = {"rare": ripgrep(RARE, corpus), "common": ripgrep(COMMON, corpus)}
    return outcome


def report(runs: list[dict[str, dict[str, float]]]) -> None:
    def median(value: Callable[[dict[str, dict[str, float]]], float]) -> float:
        return statistics.median(value(run) for run in runs)

    size = runs[0]["none"]["bytes"]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {size / 1e6:.0f} MB, {len(runs)} runs, medians")
    for what, mark in zip(INDEXED, ("", " (to reach: 0.6)", " (to reach: 0.4)"), strict=True):
        seconds = median(lambda run, what=what: run[what]["seconds"])  # type: ignore[misc]  # a default binds the name
        speed = median(lambda run, what=what: run["none"]["seconds"] / run[what]["seconds"])  # type: ignore[misc]
        print(f"import, indexed: {what:14}{seconds:7.2f} s   {speed:.2f} of the speed without{mark}")
    print(f"index / JSONL          {median(lambda run: run['everything']['index'] / size):.3f} (to reach: 0.2)")
    print(f"database / JSONL       {median(lambda run: run['everything']['database'] / size):.2f}")
    for name, times, ms in (("rare", 20, 5), ("common", 5, 20)):
        seconds = median(lambda run, name=name: run["search"][name])  # type: ignore[misc]
        hits = runs[0]["search"][f"hits_{name}"]
        print(f"{name} phrase, {hits:,.0f} hits {seconds * 1e3:7.2f} ms (to reach: {ms})", end="")
        if "rg" in runs[0]:
            ratio = median(lambda run, name=name: run["rg"][name] / run["search"][name])  # type: ignore[misc]
            print(f"   {ratio:.0f} × as fast as rg (to reach: {times})", end="")
        print()
    print(f"live append, normal    {median(lambda run: run['search']['append']) * 1e3:.3f} ms (to reach: 1)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--generator", type=Path, default=Path(__file__).parents[3] / "shared/bench/gen.py")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=INDEXED, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(import_indexed(options.corpus, options.work, options.step)))
        return
    with tempfile.TemporaryDirectory(prefix="sessiondb-bench-") as scratch:
        corpus = options.corpus
        if corpus is None:
            corpus = Path(scratch, "corpus")
            size = [str(options.sessions), str(options.mb), "42", str(corpus)]
            subprocess.run([sys.executable, str(options.generator), "corpus", *size], check=True)
        runs = []
        for number in range(options.runs):
            work = Path(scratch, f"run{number}")
            work.mkdir()
            runs.append(run_once(corpus, work))
            shutil.rmtree(work)
        report(runs)


if __name__ == "__main__":
    main()
