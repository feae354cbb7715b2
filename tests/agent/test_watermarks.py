"""How much room is made, and when."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.agent import Watermarks
from kvext.errors import InvalidOption

_SHARES = st.tuples(st.floats(0, 0.49), st.floats(0.01, 0.5)).filter(lambda pair: pair[0] < pair[1])
_EXTENTS = st.integers(1, 10**7)


@given(_SHARES, _EXTENTS, st.data())
def test_room_is_made_below_the_low_watermark_and_then_up_to_the_high_one(
    shares: tuple[float, float], num_extents: int, data: st.DataObject
) -> None:
    marks = Watermarks(*shares)
    num_free = data.draw(st.integers(0, num_extents))
    wanted = marks.num_to_reclaim(num_free, num_extents)
    if num_free >= math.ceil(marks.low * num_extents):
        assert wanted == 0
    else:
        assert wanted > 0
        assert num_free + wanted == math.ceil(marks.high * num_extents) <= num_extents


@given(_SHARES, _EXTENTS, st.data())
def test_having_made_room_it_does_not_make_more(
    shares: tuple[float, float], num_extents: int, data: st.DataObject
) -> None:
    marks = Watermarks(*shares)
    num_free = data.draw(st.integers(0, num_extents))
    after = num_free + marks.num_to_reclaim(num_free, num_extents)
    assert marks.num_to_reclaim(after, num_extents) == 0


@pytest.mark.parametrize(
    ("low", "high", "option"),
    [
        (-0.1, 0.1, "--low-watermark"),
        (0.1, 0.1, "--low-watermark"),
        (0.2, 0.1, "--low-watermark"),
        (math.nan, 0.1, "--low-watermark"),
        (0.1, 0.6, "--high-watermark"),
        (0.1, math.inf, "--high-watermark"),
    ],
)
def test_watermarks_that_cannot_be_meant_are_refused(low: float, high: float, option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Watermarks(low, high).check()
    assert refused.value.option == option


def test_pool_of_a_few_extents_keeps_one_free() -> None:
    assert Watermarks(0.02, 0.05).num_to_reclaim(0, 3) == 1
    assert Watermarks(0.02, 0.05).num_to_reclaim(1, 3) == 0
