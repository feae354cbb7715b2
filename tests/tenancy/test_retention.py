"""Priorities of blocks from what requests claim: ranges, durations, and never a low parent."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.tenancy.retention import DEFAULT_PRIORITY, Claim, Retention, RetentionRange, Standing


def priorities(
    retention: Retention, num_blocks: int, *, now_ms: int = 0, at_ms: int = 0
) -> list[int]:
    standings = retention.standings(
        num_blocks, input_tokens=num_blocks * 16, block_tokens=16, now_ms=now_ms
    )
    return [standing.priority(at_ms) for standing in standings]


def test_without_wishes_every_block_has_the_default() -> None:
    assert priorities(Retention(), 3) == [DEFAULT_PRIORITY] * 3


def test_block_takes_the_highest_range_that_touches_it() -> None:
    ranges = (RetentionRange(0, 17, priority=80), RetentionRange(16, 32, priority=60))
    assert priorities(Retention(ranges=ranges), 3) == [80, 80, 35]


def test_range_without_an_end_reaches_the_end_of_the_prompt() -> None:
    ranges = (RetentionRange(0, 16, priority=90), RetentionRange(16, priority=10))
    assert priorities(Retention(ranges=ranges), 3) == [90, 10, 10]


def test_blocks_before_a_protected_one_are_protected_too() -> None:
    ranges = (RetentionRange(0, 16, priority=5), RetentionRange(32, 48, priority=70))
    assert priorities(Retention(ranges=ranges), 4) == [70, 70, 70, 35]


def test_after_its_duration_a_priority_falls_back_to_the_default() -> None:
    retention = Retention(priority=90, duration_s=2.0)
    assert priorities(retention, 1, now_ms=500, at_ms=2499) == [90]
    assert priorities(retention, 1, now_ms=500, at_ms=2500) == [35]


def test_after_its_duration_a_low_priority_rises_to_the_default() -> None:
    retention = Retention(priority=1, duration_s=2.0)
    assert priorities(retention, 1, at_ms=1999) == [1]
    assert priorities(retention, 1, at_ms=2000) == [35]


def test_blocks_of_the_answer_have_a_priority_of_their_own() -> None:
    retention = Retention(priority=80, answer_priority=20, answer_duration_s=1.0)
    standings = retention.standings(4, input_tokens=40, block_tokens=16, now_ms=0)
    assert [standing.priority(0) for standing in standings] == [80, 80, 80, 20]
    assert [standing.priority(1000) for standing in standings] == [80, 80, 80, 35]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 101},
        {"priority": -1},
        {"duration_s": -0.1},
        {"ttl_s": -1.0},
        {"ttl_s": float("nan")},
        {"answer_priority": 200},
        {"ranges": (RetentionRange(0, 16, priority=101),)},
        {"ranges": (RetentionRange(16, 16),)},
        {"ranges": (RetentionRange(-1, 16),)},
    ],
)
def test_impossible_retention_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"priority|duration|time to live|range"):
        Retention(**wrong)


claims = st.builds(Claim, st.integers(0, 100), st.sampled_from([1.0, 2.0, 3.0, 4.0]))


def standing_of(claim: Claim) -> Standing:
    return Standing() if claim.priority == DEFAULT_PRIORITY else Standing((claim,))


@given(st.lists(claims, min_size=1, max_size=5))
def test_standing_is_at_any_time_the_highest_claim_joined_into_it(joined: list[Claim]) -> None:
    standing = standing_of(joined[0])
    for claim in joined[1:]:
        standing = standing.join(standing_of(claim))
    for now_ms in range(6):
        expected = max(
            claim.priority if now_ms < claim.until_ms else DEFAULT_PRIORITY for claim in joined
        )
        assert standing.priority(now_ms) == expected


ranges_ = st.builds(
    lambda start, size, priority, duration: RetentionRange(start, start + size, priority, duration),
    st.integers(0, 80),
    st.integers(1, 60),
    st.integers(0, 100),
    st.none() | st.sampled_from([1.0, 2.0, 3.0]),
)


@given(
    st.lists(ranges_, max_size=4),
    st.integers(0, 100),
    st.none() | st.integers(0, 100),
    st.integers(0, 4),
)
def test_priorities_never_rise_along_a_prompt_at_any_time(
    ranges: list[RetentionRange], priority: int, answer: int | None, seconds: int
) -> None:
    retention = Retention(priority=priority, ranges=ranges, answer_priority=answer)
    standings = retention.standings(8, input_tokens=96, block_tokens=16, now_ms=0)
    found = [standing.priority(seconds * 1000) for standing in standings]
    assert all(parent >= child for parent, child in itertools.pairwise(found))
