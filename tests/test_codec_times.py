"""Times: exact, and as JavaScript's Date converts them (FORMAT.md, D1 to D4)."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sessiondb.jsonl import format_time, parse_time

ORACLE = Path(__file__).parent / "clients" / "json-oracle.mjs"
DAY = 86_400_000


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2025-10-09T08:53:20.001Z", 1760000000001),
        ("2025-10-09T08:53:20.999Z", 1760000000999),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2025-10-09T08:53:20Z", 1760000000000),
        ("2025-10-09T08:53Z", 1759999980000),
        ("2025-10-09t08:53:20z", 1760000000000),
        ("2025-10-09 08:53:20Z", 1760000000000),
        ("2025-10-09T08:53:20.1Z", 1760000000100),
        ("2025-10-09T08:53:20.123999Z", 1760000000123),
        ("2025-10-09T10:53:20.000+02:00", 1760000000000),
        ("2025-10-09T03:23:20-0530", 1760000000000),
        ("2025-10-09", 1759968000000),
        ("2025-10", 1759276800000),
        ("2025", 1735689600000),
        ("2025-10-09T08:53:20", 1760000000000),
        ("2025-02-31T00:00:00.000Z", 1740960000000),
        ("2025-10-09T24:00:00.000Z", 1760054400000),
        ("0000-01-01T00:00:00.000Z", -62167219200000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
        (1760000000001, 1760000000001),
        (1760000000001.9, 1760000000001),
        (-1.9, -1),
        (0, 0),
    ],
)
def test_a_time_is_milliseconds_since_1970(value: Any, time_ms: int) -> None:
    assert parse_time(value) == time_ms
    assert type(parse_time(value)) is int


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "2025-13-01",
        "2025-00-01",
        "2025-01-32",
        "2025-10-09T24:00:00.001Z",
        "2025-10-09T24:00:01.000Z",
        "2025-10-09T25:00:00.000Z",
        "2025-10-09T08:60:00.000Z",
        "2025-10-09T08:00:60.000Z",
        "2025-10-09T08:00:00.Z",
        "2025-10-09T08Z",
        "2025-10-09T08:00:00+24:00",
        "2025-10-09T08:00:00+01",
        "2025-10-09T08:00:00,000Z",
        "2025-10-09T08:00:00.0００Z",
        "2025-10-09T08:00:00.000ZZ",
        "2025-10-09T08:00:00.000Z\n",
        "+002025-10-09T08:00:00Z",
        "12025-10-09T08:00:00.00Z",
        "\ud800" * 24,
        None,
        True,
        [],
        {},
        b"2025-10-09",
        math.nan,
        math.inf,
        8_640_000_000_000_001,
        10**400,
    ],
    ids=repr,
)
def test_what_is_no_time_is_none(value: Any) -> None:
    assert parse_time(value) is None


def test_every_millisecond_survives_the_way_out_and_back() -> None:
    rng = random.Random(1)
    times = [rng.randrange(-62167219200000, 253402300800000) for _ in range(20_000)]
    times += [1760000000000 + millis for millis in range(1000)]
    assert [parse_time(format_time(time_ms)) for time_ms in times] == times


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1760000000001, "2025-10-09T08:53:20.001Z"),
        (-62167219200000, "0000-01-01T00:00:00.000Z"),
        (-62167219200001, "-000001-12-31T23:59:59.999Z"),
        (253402300800000, "+010000-01-01T00:00:00.000Z"),
        (8_640_000_000_000_000, "+275760-09-13T00:00:00.000Z"),
        (-8_640_000_000_000_000, "-271821-04-20T00:00:00.000Z"),
    ],
)
def test_a_time_is_written_as_to_iso_string_writes_it(time_ms: int, text: str) -> None:
    assert format_time(time_ms) == text


@pytest.mark.parametrize("time_ms", [8_640_000_000_000_001, -8_640_000_000_000_001])
def test_a_time_beyond_dates_range_is_refused(time_ms: int) -> None:
    with pytest.raises(ValueError, match="outside of the range"):
        format_time(time_ms)


def test_iso_texts_are_read_as_node_reads_them() -> None:
    node = shutil.which("node")
    if node is None:
        assert not os.environ.get("CI"), "CI must have node: these texts are compared with its Date"
        pytest.skip("node is not installed; texts are compared with its Date")
    rng = random.Random(5)
    zones = ["Z", "+00:00", "-00:30", "+0545", "+23:59", "-12:00", "+24:00", "+05:60"]
    texts = []
    for _ in range(4000):
        month, day, hour, minute, second = (rng.randrange(0, top) for top in (14, 33, 26, 62, 62))
        fraction = rng.choice(["", ".5", ".25", ".001", ".9999", f".{rng.randrange(1000):03d}", "."])
        seconds = rng.choice(["", f":{second:02d}{fraction}"])
        date = f"{rng.randrange(10_000):04d}-{month:02d}-{day:02d}"
        texts.append(date if rng.random() < 0.2 else f"{date}T{hour:02d}:{minute:02d}{seconds}{rng.choice(zones)}")
    done = subprocess.run(
        [node, ORACLE, "date"],
        input="".join(json.dumps(text) + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [None if line == "NaN" else int(line) for line in done.stdout.split()]
    assert sum(answer is not None for answer in answers) > 1000
    assert [(text, parse_time(text)) for text in texts] == list(zip(texts, answers, strict=True))
