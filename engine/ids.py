"""Ids of sessions and entries as each dialect's client makes them, and the clock beside them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import Final, Literal

Kind = Literal["entry", "session"]
MakeId = Callable[[Kind], str]
Clock = Callable[[], int]
"""Milliseconds since 1970."""

TRIES: Final = 100

SNOWFLAKE_EPOCH_MS: Final = 1_420_070_400_000
SNOWFLAKE_COUNTER_BITS: Final = 22
SNOWFLAKE_LAST_MS: Final = (1 << 42) - 1


def system_clock() -> int:
    """Milliseconds since 1970 now."""
    return time.time_ns() // 1_000_000


def new_session_id(
    dialect: str, *, now_ms: int, random: Callable[[int], bytes] = os.urandom, after: str | None = None
) -> str:
    """A session's id: a UUIDv7 in pi and omp, a Snowflake in xcsh.

    `after` is the id made before, in the same dialect. A UUIDv7 sorts behind it, also within a millisecond and when the
    clock went back; a Snowflake takes the next number of its counter, which starts at random. `random` gives bytes.
    """
    if dialect == "xcsh":
        return _snowflake(now_ms, random, after)
    return _uuid7(now_ms, random, after)


def _snowflake(now_ms: int, random: Callable[[int], bytes], after: str | None) -> str:
    counter = int.from_bytes(random(4)) if after is None else int(after, 16) + 1
    counter &= (1 << SNOWFLAKE_COUNTER_BITS) - 1
    # 42 bits of time last from 2015 to 2154; beyond, the id would no longer have 16 digits
    elapsed_ms = min(max(now_ms - SNOWFLAKE_EPOCH_MS, 0), SNOWFLAKE_LAST_MS)
    return f"{elapsed_ms << SNOWFLAKE_COUNTER_BITS | counter:016x}"


def _uuid7(now_ms: int, random: Callable[[int], bytes], after: str | None) -> str:
    # The sequence is the 32 bits behind the time. It starts below the middle, so that there is room to count.
    position = (max(now_ms, 0) << 32) | (int.from_bytes(random(4)) >> 1)
    if after is not None and now_ms <= uuid.UUID(after).int >> 80:
        position = _position(uuid.UUID(after)) + 1
    time_ms, sequence = position >> 32 & (1 << 48) - 1, position & (1 << 32) - 1
    tail = int.from_bytes(random(6)) >> 6
    bits = time_ms << 80 | 7 << 76 | (sequence >> 20) << 64 | 2 << 62 | (sequence & (1 << 20) - 1) << 42 | tail
    return str(uuid.UUID(int=bits))


def _position(made: uuid.UUID) -> int:
    """Time and sequence of a UUIDv7 that `_uuid7` made, as one number."""
    return (made.int >> 80) << 32 | (made.int >> 64 & 0xFFF) << 20 | made.int >> 42 & (1 << 20) - 1


def new_entry_id(
    dialect: str, taken: Callable[[str], bool], make: MakeId | None = None, *, clock: Clock = system_clock
) -> str:
    """An entry's id that is not `taken`: 8 hex digits of a UUIDv4, the first in pi, the last in xcsh and omp.

    With `make`, that gives the candidates and the clock is never read. After 100 candidates that are taken, as in the
    clients, a full UUIDv4 in pi, a Snowflake in xcsh and omp; beside a `make` always the UUIDv4.
    """
    for _ in range(TRIES):
        candidate = make("entry") if make is not None else _eight_digits()
        if not taken(candidate):
            return candidate
    if dialect == "pi" or make is not None:
        return str(uuid.uuid4())
    return _snowflake(clock(), os.urandom, None)


def _eight_digits() -> str:
    # all of the first and the last eight digits of a UUIDv4 are random: no need to make the others
    return os.urandom(4).hex()


class Ids:
    """The ids of one manager, in order: each session id comes after the one before.

    `make` is what a caller injected; the clock is then never read here.
    """

    def __init__(self, dialect: str, clock: Clock = system_clock, make: MakeId | None = None) -> None:
        self._dialect = dialect
        self._clock = clock
        self._make = make
        self._last: str | None = None

    def session(self) -> str:
        """A new session id."""
        if self._make is not None:
            return self._make("session")
        self._last = new_session_id(self._dialect, now_ms=self._clock(), after=self._last)
        return self._last

    def entry(self, taken: Callable[[str], bool]) -> str:
        """A new entry id that is not `taken`."""
        return new_entry_id(self._dialect, taken, self._make, clock=self._clock)
