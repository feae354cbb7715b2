"""Who gets how much, from what their curves say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.tenancy.shadows import Point
from kvext.tenancy.targets import Demand, find_targets, needed_size, saved_at

FLAT = (Point(0, 0.0), Point(50, 0.0), Point(100, 0.0))
STEADY = (Point(0, 0.0), Point(25, 1.0), Point(50, 1.6), Point(100, 2.2))
LATE = (Point(0, 0.0), Point(25, 0.0), Point(50, 0.0), Point(100, 50.0))


def demand(
    tenant: str, curve: tuple[Point, ...], *, guaranteed: int = 0, ceiling: int = 100
) -> Demand:
    return Demand(tenant, guaranteed, ceiling, 1.0, curve)


def test_space_goes_where_it_saves_something() -> None:
    targets = find_targets([demand("flat", FLAT), demand("steady", STEADY)], 100)
    assert targets["steady"] == 100


def test_guarantees_are_kept_whatever_others_would_save() -> None:
    demands = [demand("flat", FLAT, guaranteed=30), demand("steady", STEADY)]
    assert find_targets(demands, 100) == {"flat": 30, "steady": 70}


def test_gain_that_comes_late_is_seen_from_afar() -> None:
    targets = find_targets([demand("late", LATE), demand("steady", STEADY)], 100)
    assert targets["late"] == 100


def test_equal_curves_get_about_equal_parts() -> None:
    targets = find_targets([demand("a", STEADY), demand("b", STEADY)], 100)
    assert targets["a"] == pytest.approx(50, abs=3)


def test_what_saves_nothing_anywhere_is_divided_by_weight() -> None:
    demands = [Demand("one", 0, 100, 1.0, FLAT), Demand("three", 0, 100, 3.0, FLAT)]
    assert find_targets(demands, 100) == {"one": 25, "three": 75}


def test_needed_size_is_where_the_curve_reaches_the_saving() -> None:
    for saved in (0.3, 1.0, 1.3, 2.0):
        assert saved_at(STEADY, needed_size(STEADY, saved)) == pytest.approx(saved)
    assert needed_size(STEADY, 99.0) == 100


@given(
    capacity=st.integers(0, 5000),
    raw=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.floats(0, 2),
            st.lists(st.floats(0, 100), min_size=4, max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_targets_keep_guarantees_ceilings_and_the_capacity(
    capacity: int, raw: list[tuple[float, float, list[float]]]
) -> None:
    demands = []
    for at, (guaranteed, above, saved) in enumerate(raw):
        least = int(guaranteed * capacity / len(raw))
        curve = [Point(0, 0.0)]
        for size, value in zip((10, 100, 1000, 5000), sorted(saved), strict=True):
            curve.append(Point(size, value))
        demands.append(Demand(str(at), least, least + int(above * capacity), 1.0 + at, curve))
    targets = find_targets(demands, capacity)
    assert all(each.guaranteed <= targets[each.tenant] <= each.ceiling for each in demands)
    assert sum(targets.values()) == min(capacity, sum(each.ceiling for each in demands))
