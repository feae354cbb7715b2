"""Shares that cannot hold together are refused; those that can become entitlements."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.errors import SharesConflict
from kvext.tenancy.shares import Basis, Share, check_shares, entitlements


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (Share("a", floor=-1), ["'a'", "floor is -1"]),
        (Share("a", floor=101), ["'a'", "101", "100"]),
        (Share("a", floor=9, ceiling=8), ["'a'", "floor of 9", "ceiling of 8"]),
        (Share("a", ceiling=0), ["'a'", "ceiling is 0", "store = false"]),
        (Share("a", ceiling=-5), ["'a'", "ceiling is -5"]),
        (Share("a", weight=0.0), ["'a'", "weight is 0.0"]),
        (Share("a", weight=-1.0), ["'a'", "weight is -1.0"]),
        (Share("a", weight=math.nan), ["'a'", "weight is nan"]),
        (Share("a", weight=math.inf), ["'a'", "weight is inf"]),
        (Share(""), ["name is empty"]),
    ],
)
def test_impossible_share_is_refused_with_its_name_and_values(
    share: Share, words: list[str]
) -> None:
    with pytest.raises(SharesConflict) as caught:
        check_shares([share], 100)
    assert all(word in str(caught.value) for word in words)
    assert caught.value.tenants == (share.tenant,)


def test_floors_above_the_capacity_together_are_refused_and_name_all_that_have_one() -> None:
    shares = [Share("a", floor=60), Share("b"), Share("c", floor=50)]
    with pytest.raises(SharesConflict, match=r"'a', 'c'.*110.*100.*by 10") as caught:
        check_shares(shares, 100)
    assert caught.value.tenants == ("a", "c")


def test_floors_of_exactly_the_capacity_are_accepted() -> None:
    check_shares([Share("a", floor=60), Share("b", floor=40)], 100)


def test_two_entries_of_one_tenant_are_refused() -> None:
    with pytest.raises(SharesConflict, match=r"'a'.*two entries"):
        check_shares([Share("a"), Share("a")], 100)


def test_unknown_class_is_refused_with_the_known_ones() -> None:
    shares = [Share("a", service_class="goald")]
    check_shares(shares, 100)
    with pytest.raises(SharesConflict, match=r"'goald'.*gold"):
        check_shares(shares, 100, basis=Basis.CLASS, class_weights={"gold": 2.0})


def test_class_without_a_positive_weight_is_refused() -> None:
    with pytest.raises(SharesConflict, match=r"'gold' has the weight 0"):
        check_shares(
            [Share("a", service_class="gold")],
            100,
            basis=Basis.CLASS,
            class_weights={"gold": 0.0},
        )


def test_equal_basis_divides_the_capacity_evenly_whatever_the_weights() -> None:
    shares = [Share("a", weight=5.0), Share("b", floor=10), Share("c")]
    assert entitlements(shares, 9000) == {"a": 3000, "b": 3000, "c": 3000}


def test_floor_above_the_even_part_is_kept_and_the_others_divide_the_rest() -> None:
    shares = [Share("a", floor=60), Share("b"), Share("c")]
    assert entitlements(shares, 100) == {"a": 60, "b": 20, "c": 20}


def test_what_a_ceiling_keeps_from_one_goes_to_the_others() -> None:
    shares = [Share("a", ceiling=10), Share("b"), Share("c")]
    assert entitlements(shares, 100) == {"a": 10, "b": 45, "c": 45}


def test_weights_divide_what_is_above_the_floors() -> None:
    shares = [Share("a", floor=20, weight=1.0), Share("b", weight=3.0)]
    assert entitlements(shares, 100, basis=Basis.WEIGHT) == {"a": 40, "b": 60}


def test_classes_weigh_as_their_weights_say_and_no_class_as_one() -> None:
    shares = [Share("a", service_class="gold"), Share("b")]
    found = entitlements(shares, 100, basis=Basis.CLASS, class_weights={"gold": 4.0})
    assert found == {"a": 80, "b": 20}


def test_usage_divides_by_accesses_and_forgets_no_silent_tenant() -> None:
    shares = [Share("a"), Share("b"), Share("c")]
    found = entitlements(shares, 1000, basis=Basis.USAGE, usage={"a": 300.0, "b": 100.0})
    assert found["a"] == pytest.approx(3 * found["b"], abs=3)
    assert found["c"] > 0


def test_usage_without_any_access_divides_evenly() -> None:
    assert entitlements([Share("a"), Share("b")], 100, basis=Basis.USAGE) == {"a": 50, "b": 50}


@given(
    capacity=st.integers(1, 10**6),
    raw=st.lists(
        st.tuples(st.floats(0, 0.3), st.none() | st.floats(0.3, 1), st.floats(1e-3, 1e3)),
        min_size=1,
        max_size=6,
    ),
    basis=st.sampled_from(Basis),
)
def test_entitlements_keep_floors_ceilings_and_capacity(
    capacity: int, raw: list[tuple[float, float | None, float]], basis: Basis
) -> None:
    shares = [
        Share(
            str(at),
            floor=int(floor * capacity / len(raw)),
            ceiling=None if ceiling is None else max(1, math.ceil(ceiling * capacity)),
            weight=weight,
        )
        for at, (floor, ceiling, weight) in enumerate(raw)
    ]
    check_shares(shares, capacity, basis=basis)
    found = entitlements(shares, capacity, basis=basis)
    assert sum(found.values()) <= capacity
    for share in shares:
        assert share.floor <= found[share.tenant] <= (share.ceiling or capacity)
    if all(share.ceiling is None for share in shares):
        assert sum(found.values()) >= capacity - len(shares)
