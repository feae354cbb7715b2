"""How far a hit reaches, against trying every end from the longest down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.connector.reach import longest_reach, needed_blocks
from kvext.connector.rules import CacheGroup
from tests.connector.toy_hybrid import Window, groups_of, seen_blocks
from tests.connector.toy_parts import BLOCK_TOKENS

WINDOWS = st.lists(st.one_of(st.none(), st.integers(1, 100)), min_size=1, max_size=4)


def brute_force(windows: list[Window], present: list[bytes], first: int, stop: int) -> int:
    for end in range(stop, first, -1):
        if all(
            held[block - first]
            for window, held in zip(windows, present, strict=True)
            for block in seen_blocks(window, end * BLOCK_TOKENS)
            if block >= first
        ):
            return end
    return first


@given(st.data(), WINDOWS, st.integers(0, 10), st.integers(0, 12))
def test_reach_is_the_longest_end_at_which_every_group_has_what_it_needs(
    data: st.DataObject, windows: list[Window], first: int, length: int
) -> None:
    cells = st.lists(st.sampled_from([0, 1, 1, 1]), min_size=length, max_size=length)
    present = [bytes(data.draw(cells)) for _ in windows]
    reach = longest_reach(groups_of(windows), present, first, first + length)
    assert reach == brute_force(windows, present, first, first + length)


@given(st.integers(1, 200), st.integers(0, 12), st.integers(0, 12))
def test_needed_blocks_are_those_that_the_next_token_sees(
    window: int, first: int, length: int
) -> None:
    (group,) = groups_of([window])
    stop = first + length
    seen = [block for block in seen_blocks(window, stop * BLOCK_TOKENS) if block >= first]
    assert list(needed_blocks(group, first, stop)) == seen


@pytest.mark.parametrize(
    ("window", "stop", "first_needed"), [(33, 4, 2), (34, 4, 1), (1, 4, 4), (1000, 4, 0)]
)
def test_a_window_of_one_token_more_than_two_blocks_needs_two_blocks(
    window: int, stop: int, first_needed: int
) -> None:
    (group,) = groups_of([window])
    assert needed_blocks(group, 0, stop) == range(first_needed, stop)


def test_full_attention_needs_every_block_beyond_the_engines_own() -> None:
    group: CacheGroup = groups_of([None])[0]
    assert needed_blocks(group, 2, 6) == range(2, 6)
