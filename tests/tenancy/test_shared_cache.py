"""What tenants of one cache get of it."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from kvext.errors import SharesConflict, UnknownPolicy
from kvext.tenancy.policies import make_policy
from kvext.tenancy.policy import Access
from kvext.tenancy.retention import Retention
from kvext.tenancy.shared_cache import SharedCache
from kvext.tenancy.shares import DEFAULT_TENANT, Basis, Share
from kvext.tenancy.tuning import Tuning
from tests.tenancy.prompts import fresh, prompt

Arrival = tuple[str, Access]


def documents(
    tenant: int, *, every_ms: int, until_ms: int, number: int, seed: int = 0, start_ms: int = 0
) -> list[Access]:
    """Requests for documents of four blocks, some more popular than others."""
    draw = random.Random(seed)  # noqa: S311 - made-up traffic
    return [
        fresh(now_ms, int(number * draw.random() ** 2), tenant=tenant)
        for now_ms in range(start_ms, until_ms, every_ms)
    ]


def scans(tenant: int, *, every_ms: int, until_ms: int) -> list[Access]:
    return [
        fresh(now_ms, at, tenant=tenant, num_blocks=8)
        for at, now_ms in enumerate(range(0, until_ms, every_ms))
    ]


def merged(**tenants: Sequence[Access]) -> Iterator[Arrival]:
    arrivals = [(name, access) for name, requests in tenants.items() for access in requests]
    return iter(sorted(arrivals, key=lambda arrival: arrival[1].now_ms))


def hits_of(cache: SharedCache, arrivals: Iterator[Arrival]) -> dict[str, int]:
    hits: dict[str, int] = {}
    for name, access in arrivals:
        hits[name] = hits.get(name, 0) + cache.access(name, access).num_hits
    return hits


def alone(requests: Sequence[Access], capacity: int, policy: str = "lru") -> int:
    cache = make_policy(policy, capacity)
    return sum(cache.access(access).num_hits for access in requests)


def test_scanner_takes_nothing_from_who_makes_use_of_its_space() -> None:
    reader = documents(0, every_ms=100, until_ms=600_000, number=200)
    scanner = scans(1, every_ms=50, until_ms=600_000)
    cache = SharedCache(400, [Share("reader"), Share("scanner", floor=40)], policy="lru")
    hits = hits_of(cache, merged(reader=reader, scanner=scanner))
    assert hits["reader"] > 1.2 * alone(reader, 200)
    assert cache.held("scanner") == 0


def test_floor_of_a_scanner_stays_its_own_where_the_operator_says_so() -> None:
    reader = documents(0, every_ms=100, until_ms=300_000, number=200)
    scanner = scans(1, every_ms=50, until_ms=300_000)
    shares = [Share("reader"), Share("scanner", floor=40)]
    cache = SharedCache(400, shares, policy="lru", tuning=Tuning(useless_after=float("inf")))
    hits_of(cache, merged(reader=reader, scanner=scanner))
    assert cache.held("scanner") == 40


def test_what_a_tenant_holds_within_its_floor_survives_any_flood() -> None:
    cache = SharedCache(400, [Share("small", floor=40), Share("greedy")], policy="lru")
    small = [fresh(0, number, tenant=0) for number in range(10)]
    for request in small:
        cache.access("small", request)
    hits_of(cache, merged(greedy=documents(1, every_ms=10, until_ms=300_000, number=2000)))
    assert cache.held("small") == 40
    later = [fresh(300_000, number, tenant=0) for number in range(10)]
    assert sum(cache.access("small", request).num_hits for request in later) == 40


def test_each_of_two_tenants_fares_as_alone_however_busy_the_other_is() -> None:
    calm = documents(0, every_ms=400, until_ms=900_000, number=300, seed=1)
    busy = documents(1, every_ms=20, until_ms=900_000, number=1000, seed=2)
    cache = SharedCache(800, [Share("calm"), Share("busy")], policy="lru")
    hits = hits_of(cache, merged(calm=calm, busy=busy))
    assert hits["calm"] >= 0.98 * alone(calm, 400)
    assert hits["busy"] >= 0.98 * alone(busy, 400)


def test_space_of_a_tenant_that_has_not_come_yet_is_lent_and_comes_back() -> None:
    first = documents(0, every_ms=50, until_ms=900_000, number=1000, seed=1)
    late = documents(1, every_ms=50, start_ms=450_000, until_ms=900_000, number=1000, seed=2)
    cache = SharedCache(800, [Share("first"), Share("late")], policy="lru")
    before = merged(first=[access for access in first if access.now_ms < 450_000])
    hits_of(cache, before)
    assert cache.held("first") > 780
    rest = merged(first=[access for access in first if access.now_ms >= 450_000], late=late)
    hits = hits_of(cache, rest)
    assert hits["late"] >= 0.98 * alone(late, 400)


def test_space_of_a_tenant_that_has_gone_goes_to_who_is_left() -> None:
    gone = documents(0, every_ms=50, until_ms=200_000, number=1000, seed=1)
    left = documents(1, every_ms=50, until_ms=330_000, number=1000, seed=2)
    cache = SharedCache(800, [Share("gone", floor=100), Share("left")], policy="lru")
    hits_of(cache, merged(gone=gone, left=left))
    assert cache.held("left") == pytest.approx(700, abs=10)
    assert cache.held("gone") == pytest.approx(100, abs=10)


def test_floor_is_kept_for_a_tenant_however_long_it_is_away() -> None:
    away = documents(0, every_ms=50, until_ms=100_000, number=1000, seed=1)
    left = documents(1, every_ms=50, until_ms=800_000, number=1000, seed=2)
    cache = SharedCache(800, [Share("away", floor=100), Share("left")], policy="lru")
    hits_of(cache, merged(away=away, left=left))
    assert cache.held("away") == pytest.approx(100, abs=10)


def test_ceiling_binds_even_in_an_empty_cache() -> None:
    cache = SharedCache(400, [Share("bounded", ceiling=50), Share("other")])
    for number in range(100):
        cache.access("bounded", fresh(number, number))
        assert cache.held("bounded") <= 50


def test_ceiling_below_one_request_is_kept() -> None:
    cache = SharedCache(400, [Share("bounded", ceiling=3)], policy="lru")
    cache.access("bounded", fresh(0, 0, num_blocks=9))
    assert cache.held("bounded") == 3


def test_weights_decide_between_tenants_of_equal_wants() -> None:
    shares = [Share("one", weight=1.0), Share("three", weight=3.0)]
    cache = SharedCache(400, shares, policy="lru", basis=Basis.WEIGHT)
    one = documents(0, every_ms=50, until_ms=600_000, number=1000, seed=1)
    three = documents(1, every_ms=50, until_ms=600_000, number=1000, seed=1)
    hits = hits_of(cache, merged(one=one, three=three))
    assert hits["three"] >= 0.98 * alone(three, 300)
    assert hits["one"] >= 0.98 * alone(one, 100)
    assert hits["three"] > 1.5 * hits["one"]


def test_basis_of_usage_entitles_the_busier_tenant_to_more() -> None:
    cache = SharedCache(400, [Share("calm"), Share("busy")], policy="lru", basis=Basis.USAGE)
    calm = documents(0, every_ms=900, until_ms=600_000, number=1000, seed=1)
    busy = documents(1, every_ms=100, until_ms=600_000, number=1000, seed=2)
    hits = hits_of(cache, merged(calm=calm, busy=busy))
    assert hits["busy"] >= 0.98 * alone(busy, 350)


def test_tenants_without_a_share_are_one_default_tenant_with_a_quota() -> None:
    cache = SharedCache(400, [Share("listed")], policy="lru")
    cache.access("stranger", fresh(0, 0, tenant=1))
    cache.access("other stranger", fresh(1, 1, tenant=1))
    assert cache.held(DEFAULT_TENANT) == 8
    assert cache.access("stranger", fresh(2, 0, tenant=1)).num_hits == 4


def test_time_to_live_is_kept_at_the_next_access_of_anybody() -> None:
    cache = SharedCache(400, [Share("private"), Share("other")])
    request = fresh(0, 0, tenant=0)
    cache.access("private", request, Retention(ttl_s=10.0))
    assert not cache.access("other", fresh(9_999, 0, tenant=1)).victims
    assert set(cache.access("other", fresh(10_000, 1, tenant=1)).victims) == set(request.keys)
    assert cache.held("private") == 0


def test_time_to_live_is_kept_without_any_access_by_expire() -> None:
    cache = SharedCache(400, [Share("private")])
    request = fresh(0, 0)
    cache.access("private", request, Retention(ttl_s=10.0))
    assert set(cache.expire(10_000)) == set(request.keys)
    assert cache.size == 0


def test_time_that_runs_backwards_is_refused() -> None:
    cache = SharedCache(400, [Share("a"), Share("b")])
    cache.access("a", fresh(10, 0))
    with pytest.raises(ValueError, match="backwards"):
        cache.access("b", fresh(9, 0, tenant=1))


def test_shares_that_cannot_hold_and_unknown_policies_are_refused() -> None:
    with pytest.raises(SharesConflict):
        SharedCache(10, [Share("a", floor=11)])
    with pytest.raises(UnknownPolicy):
        SharedCache(10, [Share("a")], policy="lruu")


def test_removed_blocks_are_forgotten() -> None:
    cache = SharedCache(400, [Share("a")])
    request = prompt(0, [1, 2, 3])
    cache.access("a", request)
    cache.remove("a", request.keys[1:])
    assert cache.size == 1
    assert cache.access("a", prompt(1, [1, 2, 3])).num_hits == 1


def test_targets_stay_while_others_would_hardly_be_better() -> None:
    def num_moves(least_gain: float) -> int:
        shares = [Share("a"), Share("b")]
        cache = SharedCache(800, shares, policy="lru", tuning=Tuning(least_gain=least_gain))
        a = documents(0, every_ms=50, until_ms=600_000, number=1000, seed=1)
        b = documents(1, every_ms=50, until_ms=600_000, number=1000, seed=2)
        targets = []
        for name, access in merged(a=a, b=b):
            cache.access(name, access)
            targets.append(cache.target("a"))
        return sum(before != after for before, after in pairwise(targets[len(targets) // 2 :]))

    assert num_moves(0.005) < 0.5 * num_moves(0.0)


def test_space_is_taken_back_in_batches() -> None:
    cache = SharedCache(5120, [Share("first"), Share("late")], policy="lru")
    first = documents(0, every_ms=10, until_ms=60_000, number=20_000, seed=1)
    hits_of(cache, merged(first=first))
    assert cache.size > 5080
    late = documents(1, every_ms=10, start_ms=60_000, until_ms=64_000, number=20_000, seed=2)
    num_reclaims = sum(len(cache.access("late", request).victims) > 0 for request in late)
    assert num_reclaims < 0.5 * len(late)


def test_requests_that_may_not_be_stored_say_nothing_of_fairness() -> None:
    cache = SharedCache(400, [Share("private")], policy="lru")
    for now_ms in range(100):
        cache.access("private", fresh(now_ms, now_ms % 5), Retention(store=False))
    assert cache.fairness().min_shared_over_alone is None


def test_fairness_of_a_shared_cache_is_close_to_that_of_replaying_each_alone() -> None:
    calm = documents(0, every_ms=200, until_ms=900_000, number=300, seed=1)
    busy = documents(1, every_ms=40, until_ms=900_000, number=1000, seed=2)
    cache = SharedCache(800, [Share("calm"), Share("busy")], policy="lru")
    hits = hits_of(cache, merged(calm=calm, busy=busy))
    fairness = cache.fairness()
    for name, requests in (("calm", calm), ("busy", busy)):
        exact = hits[name] / alone(requests, 400)
        assert fairness.tenants[name].shared_over_alone == pytest.approx(exact, abs=0.03)


def test_tenant_that_hits_nothing_alone_does_not_count_as_unfairly_treated() -> None:
    cache = SharedCache(400, [Share("reader"), Share("scanner")], policy="lru")
    reader = documents(0, every_ms=100, until_ms=100_000, number=20)
    hits_of(cache, merged(reader=reader, scanner=scans(1, every_ms=100, until_ms=100_000)))
    fairness = cache.fairness()
    assert fairness.tenants["scanner"].shared_over_alone is None
    assert fairness.min_shared_over_alone == pytest.approx(1.0, abs=0.02)
