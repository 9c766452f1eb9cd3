"""Import, export, list and refresh beside their floors, each in a process of its own, as ratios within one run.

    python tests/bench/bench.py --corpus DIR [--runs 3]
    python tests/bench/bench.py --generator ../shared/bench/gen.py [--sessions 1000] [--mb 500]

Nothing here fails a build. Medians of the runs are printed; run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STEPS: dict[str, Callable[[Path, Path], dict[str, float]]] = {}


def step(work: Callable[[Path, Path], dict[str, float]]) -> Callable[[Path, Path], dict[str, float]]:
    STEPS[work.__name__] = work
    return work


def files_of(corpus: Path) -> list[Path]:
    return sorted(corpus.rglob("*.jsonl"))


@step
def floor(corpus: Path, _work: Path) -> dict[str, float]:
    """orjson.loads of every line, cyclic garbage collection off."""
    import orjson

    gc.disable()
    started, size, longest = time.perf_counter(), 0, 0
    for file in files_of(corpus):
        with file.open("rb") as stream:
            for line in stream:
                orjson.loads(line)
                size += len(line)
                longest = max(longest, len(line))
    return {"seconds": time.perf_counter() - started, "bytes": size, "longest_line": longest}


@step
def import_empty(corpus: Path, work: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(work / "empty.db") as store:
        before = peak_mb()
        started = time.perf_counter()
        report = store.import_paths([corpus])
        seconds = time.perf_counter() - started
    assert report.imported == len(files_of(corpus))
    size = (work / "empty.db").stat().st_size
    return {"seconds": seconds, "mb": peak_mb(), "mb_before": before, "size": size / report.bytes_read}


@step
def import_beside_others(corpus: Path, work: Path) -> dict[str, float]:
    """Into a database that holds a session already and that another connection has open: write-ahead log."""
    import apsw

    from sessiondb import Store

    one = work / "one.jsonl"
    one.write_bytes(b'{"type":"session","version":3,"id":"one","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n')
    with Store.open(work / "shared.db") as store:
        store.import_paths([one])
        other = apsw.Connection(str(work / "shared.db"))
        other.execute("SELECT count(*) FROM sessions").fetchall()
        started = time.perf_counter()
        store.import_paths([corpus])
        seconds = time.perf_counter() - started
        other.close()
    return {"seconds": seconds, "mb": peak_mb()}


@step
def refresh_unchanged(_corpus: Path, work: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(work / "empty.db") as store:
        started = time.perf_counter()
        report = store.refresh()
        seconds = time.perf_counter() - started
    assert report.imported == report.updated == 0
    return {"seconds": seconds, "files": report.unchanged}


@step
def list_sessions(_corpus: Path, work: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(work / "empty.db") as store:
        store.sessions(limit=1)
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            count = len(store.sessions())
            taken.append(time.perf_counter() - started)
    return {"seconds": statistics.median(taken), "sessions": count}


@step
def copy_files(corpus: Path, work: Path) -> dict[str, float]:
    """The floor of an export: every file through a temporary file, fsync and rename."""
    out = work / "copy"
    started = time.perf_counter()
    for file in files_of(corpus):
        target = out / file.relative_to(corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(".tmp")
        with file.open("rb") as source, temporary.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(target)
    seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return {"seconds": seconds}


@step
def export_all(_corpus: Path, work: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(work / "empty.db") as store:
        started = time.perf_counter()
        store.export_all(work / "out")
        seconds = time.perf_counter() - started
    shutil.rmtree(work / "out")
    return {"seconds": seconds}


@step
def verify_all(_corpus: Path, work: Path) -> dict[str, float]:
    from sessiondb import Store

    with Store.open(work / "empty.db") as store:
        started = time.perf_counter()
        assert all(verdict.state == "equal" for verdict in store.verify())
        return {"seconds": time.perf_counter() - started}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_step(name: str, corpus: Path, work: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", name, "--corpus", str(corpus), "--work", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def run_all(corpus: Path, work: Path) -> dict[str, dict[str, float]]:
    """Every step once; the floor before and after each import, since a shared machine changes its speed meanwhile."""
    outcome = {"floor": run_step("floor", corpus, work)}
    for name in STEPS:
        if name == "floor":
            continue
        outcome[name] = run_step(name, corpus, work)
        if name.startswith("import"):
            before, outcome["floor"] = outcome["floor"], run_step("floor", corpus, work)
            outcome[name]["floor_seconds"] = (before["seconds"] + outcome["floor"]["seconds"]) / 2
    return outcome


def median_of(runs: list[dict[str, dict[str, float]]], name: str, key: str = "seconds") -> float:
    return statistics.median(run[name][key] for run in runs)


def report(runs: list[dict[str, dict[str, float]]]) -> None:
    size, floor_seconds = runs[0]["floor"]["bytes"], median_of(runs, "floor")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {size / 1e6:.0f} MB, {len(runs)} runs, medians")
    print(f"{'work':24}{'seconds':>9}{'MB/s':>8}   beside its floor")
    print(f"{'orjson.loads':24}{floor_seconds:9.2f}{size / 1e6 / floor_seconds:8.0f}")
    ratios = (
        ("import_empty", "floor", "× orjson.loads, everything indexed (to reach: 6)"),
        ("import_beside_others", "floor", "× orjson.loads, everything indexed (to reach: 10)"),
        ("copy_files", "floor", "× orjson.loads"),
        ("export_all", "copy_files", "× copy with fsync and rename (to reach: 2)"),
        ("verify_all", "copy_files", "× copy with fsync and rename"),
    )
    for name, beside, label in ratios:
        seconds = median_of(runs, name)
        floors = [run[name].get("floor_seconds", run[beside]["seconds"]) for run in runs]
        ratio = statistics.median(run[name]["seconds"] / floor for run, floor in zip(runs, floors, strict=True))
        print(f"{name:24}{seconds:9.2f}{size / 1e6 / seconds:8.0f}   {ratio:.2f} {label}")
    for name, mark in (("refresh_unchanged", "0.5 s for 1,000 files"), ("list_sessions", "0.01 s for 1,000 sessions")):
        print(f"{name:24}{median_of(runs, name):9.4f}           to reach: {mark}")
    allowed = 200 + 6 * runs[0]["floor"]["longest_line"] / 1e6
    print(f"peak memory of an import {median_of(runs, 'import_empty', 'mb'):.0f} MB (to reach: {allowed:.0f})")
    print(f"database / JSONL {median_of(runs, 'import_empty', 'size'):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--generator", type=Path, default=Path(__file__).parents[3] / "shared/bench/gen.py")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(STEPS[options.step](options.corpus, options.work)))
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
            runs.append(run_all(corpus, work))
            shutil.rmtree(work)
        report(runs)


if __name__ == "__main__":
    main()
