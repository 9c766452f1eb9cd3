"""Ids as each client makes them: their form, their order, and what happens when they run out."""

from __future__ import annotations

import re
import time
import uuid

import pytest

from sessiondb.ids import SNOWFLAKE_EPOCH_MS, TRIES, Ids, new_entry_id, new_session_id, system_clock

NOW = 1_760_000_000_000
EIGHT_DIGITS = re.compile(r"[0-9a-f]{8}")
SNOWFLAKE = re.compile(r"[0-9a-f]{16}")


def zeros(size: int) -> bytes:
    return bytes(size)


def ones(size: int) -> bytes:
    return b"\xff" * size


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_a_session_id_of_pi_and_omp_is_a_uuid_of_version_7_with_its_time(dialect: str) -> None:
    made = uuid.UUID(new_session_id(dialect, now_ms=NOW))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, NOW)


@pytest.mark.parametrize("random", [zeros, ones], ids=["all zeros", "all ones"])
def test_every_random_bit_leaves_version_and_variant_alone(random: object) -> None:
    made = uuid.UUID(new_session_id("pi", now_ms=NOW, random=random))  # type: ignore[arg-type]
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, NOW)


@pytest.mark.parametrize("step_ms", [0, -5_000, 1], ids=["the clock stands", "goes back", "goes on"])
def test_session_ids_of_pi_sort_in_the_order_they_were_made(step_ms: int) -> None:
    now = [NOW]

    def clock() -> int:
        now[0] += step_ms
        return now[0]

    ids = Ids("pi", clock)
    made = [ids.session() for _ in range(2_000)]
    assert made == sorted(set(made))


def test_a_uuid_whose_sequence_is_used_up_borrows_from_the_next_millisecond() -> None:
    last = "0199c82c-c000-7fff-bfff-ffffffffffff"
    following = uuid.UUID(new_session_id("pi", now_ms=0x0199C82CC000, after=last))
    assert following.int >> 80 == 0x0199C82CC001
    assert following.version == 7
    assert str(following) > last


def test_a_session_id_of_xcsh_is_a_snowflake_whose_counter_starts_at_random_and_goes_up_by_one() -> None:
    first = new_session_id("xcsh", now_ms=NOW, random=lambda size: b"\x11" * size)
    second = new_session_id("xcsh", now_ms=NOW + 7, after=first)
    assert SNOWFLAKE.fullmatch(first)
    assert int(first, 16) == (NOW - SNOWFLAKE_EPOCH_MS) << 22 | 0x111111
    assert int(second, 16) == (NOW + 7 - SNOWFLAKE_EPOCH_MS) << 22 | 0x111112


def test_the_snowflake_of_a_recorded_run_is_made_again() -> None:
    """xcsh with random bytes 0x11 and the clock at 2025-10-09T08:53:20Z, counter one further than its first."""
    before = f"{0x111111:016x}"
    assert new_session_id("xcsh", now_ms=1_760_000_000_000, after=before) == "13c9588400111112"


@pytest.mark.parametrize(
    ("now_ms", "start"), [(0, "0" * 11), (10**15, "f" * 10)], ids=["before 2015", "after 2154"]
)  # fmt: skip
def test_a_snowflake_has_16_digits_at_any_time(now_ms: int, start: str) -> None:
    made = new_session_id("xcsh", now_ms=now_ms, random=lambda size: b"\0" * size)
    assert SNOWFLAKE.fullmatch(made)
    assert made.startswith(start)


def test_a_snowflake_counter_wraps() -> None:
    last = new_session_id("xcsh", now_ms=NOW, random=ones)
    assert int(new_session_id("xcsh", now_ms=NOW, after=last), 16) & 0x3FFFFF == 0


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_an_entry_id_is_eight_hex_digits_that_are_all_random(dialect: str) -> None:
    made = [new_entry_id(dialect, lambda _: False) for _ in range(500)]
    assert all(re.fullmatch("[0-9a-f]{8}", entry_id) for entry_id in made)
    assert [len({entry_id[place] for entry_id in made}) for place in range(8)] == [16] * 8


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_an_entry_id_that_is_taken_is_not_given(dialect: str) -> None:
    refused: list[str] = []

    def first_two_are_taken(candidate: str) -> bool:
        if len(refused) < 2:
            refused.append(candidate)
            return True
        return candidate in refused

    made = new_entry_id(dialect, first_two_are_taken)
    assert EIGHT_DIGITS.fullmatch(made)
    assert len(refused) == 2
    assert made not in refused


@pytest.mark.parametrize(("dialect", "form"), [("pi", None), ("xcsh", SNOWFLAKE), ("omp", SNOWFLAKE)])
def test_after_a_hundred_candidates_a_longer_id_is_given(dialect: str, form: re.Pattern[str] | None) -> None:
    asked: list[str] = []

    def taken(candidate: str) -> bool:
        asked.append(candidate)
        return True

    made = new_entry_id(dialect, taken, clock=lambda: NOW)
    assert len(asked) == TRIES == 100
    if form is not None:
        assert form.fullmatch(made)
        assert int(made, 16) >> 22 == NOW - SNOWFLAKE_EPOCH_MS
    else:
        assert uuid.UUID(made).version == 4


def no_clock() -> int:
    raise AssertionError("the clock was read")


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_injected_ids_are_given_as_they_come_and_no_clock_is_read(dialect: str) -> None:
    kinds: list[str] = []

    def make(kind: str) -> str:
        kinds.append(kind)
        return f"{kind}-{len(kinds)}"

    ids = Ids(dialect, no_clock, make)
    assert [ids.session(), ids.entry(lambda _: False), ids.entry(lambda i: i == "entry-3")] == [
        "session-1", "entry-2", "entry-4",
    ]  # fmt: skip
    assert kinds == ["session", "entry", "entry", "entry"]


@pytest.mark.parametrize("dialect", ["pi", "xcsh", "omp"])
def test_an_injected_id_that_is_always_taken_ends_in_a_uuid_without_a_clock(dialect: str) -> None:
    ids = Ids(dialect, no_clock, lambda kind: "same")
    assert uuid.UUID(ids.entry(lambda candidate: candidate == "same")).version == 4


def test_the_system_clock_tells_milliseconds() -> None:
    before = time.time() * 1000 - 1
    assert before <= system_clock() <= time.time() * 1000 + 1
