"""Times of entries: ISO text and milliseconds since 1970, as JavaScript's ``Date`` converts them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_MS: Final = 8_640_000_000_000_000
"""Date's own limit: 100,000,000 days on either side of 1970."""

_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the Gregorian calendar repeats
_CYCLE_MS: Final = _CYCLE_DAYS * _DAY_MS
_YEAR_2000_MS: Final = 946_684_800_000

_ISO = re.compile(
    r"""([0-9]{4}) (?:-([0-9]{2}) (?:-([0-9]{2}))?)?
        (?: [Tt\ ] ([0-9]{2}):([0-9]{2}) (?: :([0-9]{2}) (?:\.([0-9]+))? )?
            (?: [Zz] | ([+-])([0-9]{2}):?([0-9]{2}) )? )?""",
    re.VERBOSE,
)


def parse_time(value: Any) -> int | None:
    """Milliseconds since 1970 of an ISO time, or None for what is none; exact, with further digits of the fraction cut.

    As ``new Date(value).getTime()``: a date alone is midnight UTC, 31 February is 3 March, 24:00 the next day's
    start. A date and time without a zone is taken as UTC, where JavaScript takes the zone of the machine: a stored
    time must not depend on the machine that reads it. The year has four digits; the other spellings that engines
    accept beyond ISO give None. A finite int or float (no bool) is milliseconds already, cut to an integer; beyond
    Date's range it is None.
    """
    if type(value) is str:
        # YYYY-MM-DDTHH:MM:SS.mmmZ, the form every client writes. Python's own parser is quick and takes it, but also
        # weeks (2025-W01-1) where months stand.
        if len(value) == 24 and value[10] == "T" and value[19] == "." and value[23] == "Z" and value[5] != "W":
            try:
                return (datetime.fromisoformat(value) - _EPOCH) // _MS
            except ValueError:
                pass  # 31 February and 24:00 are times to JavaScript
        return _parse_iso(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if -_LAST_MS <= value <= _LAST_MS else None  # nan is not between


def js_time(value: Any) -> int | None:
    """What ``new Date(value).getTime()`` makes of a JSON value: as `parse_time`, but null and booleans are numbers.

    `UNSET` gives None, as everything that is no time.
    """
    return int(value or 0) if value is None or isinstance(value, bool) else parse_time(value)


def format_time(time_ms: int) -> str:
    """``new Date(time_ms).toISOString()``; raises ValueError beyond Date's range, as JavaScript raises RangeError."""
    if not -_LAST_MS <= time_ms <= _LAST_MS:
        raise ValueError(f"{time_ms} ms is outside of the range of times")
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")[:-6] + "Z"
    except OverflowError:
        # Python knows the years 1 to 9999: write a year of the same calendar and put the real one in its place
        cycles = (time_ms - _YEAR_2000_MS) // _CYCLE_MS
        text = format_time(time_ms - cycles * _CYCLE_MS)
        year = int(text[:4]) + cycles * _CYCLE_YEARS
        return (f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}") + text[4:]


def _parse_iso(text: str) -> int | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else 0 for part in match.groups()[:6])
    millis = int((match[7] or "")[:3].ljust(3, "0"))
    month, day = (month if match[2] else 1), (day if match[3] else 1)
    time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + millis
    if not (1 <= month <= 12 and 1 <= day <= 31 and minute < 60 and second < 60 and time_ms <= _DAY_MS):
        return None
    zone_hours, zone_minutes = int(match[9] or 0), int(match[10] or 0)
    if zone_hours > 23 or zone_minutes > 59:
        return None
    zone_ms = (zone_hours * 60 + zone_minutes) * 60_000
    return _days_to(year, month, day) * _DAY_MS + time_ms + (zone_ms if match[8] == "-" else -zone_ms)


def _days_to(year: int, month: int, day: int) -> int:
    """Days from 1970 to a date. Python's calendar has no year 0 and no 31 February: it is asked for the month alone."""
    cycles, inside = divmod(year, _CYCLE_YEARS)
    start = date(_CYCLE_YEARS + inside, month, 1).toordinal() + (cycles - 1) * _CYCLE_DAYS
    return start + day - 1 - _EPOCH_DAY
