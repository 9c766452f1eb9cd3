"""Times for people, in the zone of this machine, and dates that people give."""

from __future__ import annotations

import time
from datetime import datetime

import click

from sessiondb.jsonl import format_time

_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))


def short_time(time_ms: int | None) -> str:
    """Local time in at most 12 columns: `Mar 14 10:02` this year, else the date."""
    when = _local(time_ms)
    if when is None:
        return _out_of_calendar(time_ms)
    if when.year == datetime.now().astimezone().year:
        return f"{when:%b %d %H:%M}"
    return f"{when:%Y-%m-%d}"


def full_time(time_ms: int | None) -> str:
    """Local time to the minute, `2025-03-14 10:02`."""
    when = _local(time_ms)
    return _out_of_calendar(time_ms) if when is None else f"{when:%Y-%m-%d %H:%M}"


def entry_time(time_ms: int | None) -> str:
    """Local time to the minute without the year, `03-14 10:02`, where a session's own times tell the year."""
    when = _local(time_ms)
    return _out_of_calendar(time_ms) if when is None else f"{when:%m-%d %H:%M}"


def age(time_ms: int) -> str:
    """How long ago: `3 min ago`."""
    seconds = max(0, int(time.time() - time_ms / 1000))
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "a moment ago"


def parse_date(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A date or date-time that somebody gave, in ms since the epoch; without a zone it is this machine's."""
    if value is None:
        return None
    try:
        return int(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{value!r} is no ISO date or time, as 2025-03-14 or 2025-03-14T09:30") from None


def _local(time_ms: int | None) -> datetime | None:
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _out_of_calendar(time_ms: int | None) -> str:
    return "no time" if time_ms is None else format_time(time_ms)[:12]
