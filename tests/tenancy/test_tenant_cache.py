"""One tenant's blocks under retention: who leaves first, who last, and who has to."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.retention import DEFAULT_PRIORITY, Retention, RetentionRange
from kvext.tenancy.tenant_cache import TenantCache
from tests.tenancy.prompts import fresh, prompt


def cache_of(capacity: int, policy: str = "lru") -> TenantCache:
    return TenantCache(make_policy(policy, capacity), block_tokens=16)


def held(cache: TenantCache, keys: Sequence[int]) -> int:
    return sum(key in cache for key in keys)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_protected_blocks_outlive_a_flood_of_others(policy: str) -> None:
    cache = cache_of(20, policy)
    system = fresh(0, 0, num_blocks=8)
    cache.access(system, Retention(priority=90))
    for number in range(1, 30):
        cache.access(fresh(number, number))
    assert held(cache, system.keys) == 8
    assert cache.access(fresh(31, 0, num_blocks=8)).num_hits == 8


def test_protection_ends_with_its_duration() -> None:
    cache = cache_of(20)
    system = fresh(0, 0, num_blocks=8)
    cache.access(system, Retention(priority=90, duration_s=10.0))
    for number in range(1, 30):
        cache.access(fresh(9_999, number))
    assert held(cache, system.keys) == 8
    for number in range(30, 60):
        cache.access(fresh(10_000, number))
    assert held(cache, system.keys) == 0


def test_protected_blocks_that_nobody_needs_room_of_stay_after_their_duration() -> None:
    cache = cache_of(20)
    system = fresh(0, 0, num_blocks=8)
    cache.access(system, Retention(priority=90, duration_s=1.0))
    cache.access(fresh(5000, 1))
    assert held(cache, system.keys) == 8


def test_among_protected_blocks_the_lower_priority_leaves_first() -> None:
    cache = cache_of(10)
    high, low = fresh(0, 0, num_blocks=5), fresh(1, 1, num_blocks=5)
    cache.access(high, Retention(priority=90))
    cache.access(low, Retention(priority=60))
    cache.access(fresh(2, 2, num_blocks=5), Retention(priority=70))
    assert held(cache, high.keys) == 5
    assert held(cache, low.keys) == 0


def test_protected_block_of_which_a_claim_is_over_has_the_priority_of_the_next() -> None:
    cache = cache_of(10)
    falling, steady = fresh(0, 0, num_blocks=5), fresh(0, 1, num_blocks=5)
    cache.access(falling, Retention(priority=90, duration_s=1.0))
    cache.access(falling, Retention(priority=60))
    cache.access(steady, Retention(priority=70))
    for number in range(2, 5):
        cache.access(fresh(500, number, num_blocks=5), Retention(priority=50))
    assert held(cache, falling.keys) == 5
    cache.access(fresh(1000, 9, num_blocks=5), Retention(priority=65))
    assert held(cache, falling.keys) == 0
    assert held(cache, steady.keys) == 5


def test_low_blocks_leave_before_older_ones_of_the_default() -> None:
    cache = cache_of(10)
    old, low = fresh(0, 0, num_blocks=5), fresh(1, 1, num_blocks=5)
    cache.access(old)
    cache.access(low, Retention(priority=10))
    admission = cache.access(fresh(2, 2, num_blocks=3))
    assert set(admission.victims) == set(low.keys[2:])
    assert held(cache, old.keys) == 5


def test_low_blocks_do_not_displace_others_even_when_they_come() -> None:
    cache = cache_of(10)
    old, low = fresh(0, 0, num_blocks=8), fresh(1, 1, num_blocks=5)
    cache.access(old)
    admission = cache.access(low, Retention(priority=10))
    assert set(admission.victims) == set(low.keys[2:])
    assert held(cache, old.keys) == 8


def test_low_block_that_an_ordinary_request_uses_is_low_no_more() -> None:
    cache = cache_of(10)
    cache.access(prompt(0, [1, 2, 3]), Retention(priority=0))
    cache.access(prompt(1, [1, 2]))
    keys = prompt(0, [1, 2, 3]).keys
    assert [cache.priority(key, 2) for key in keys] == [35, 35, 0]


def test_range_protects_the_beginning_alone() -> None:
    cache = cache_of(12)
    first = fresh(0, 0, num_blocks=8)
    cache.access(first, Retention(ranges=(RetentionRange(0, 48, priority=80),)))
    for number in range(1, 20):
        cache.access(fresh(number, number))
    assert [key in cache for key in first.keys] == [True] * 3 + [False] * 5


def test_blocks_leave_when_their_time_to_live_is_over_whatever_their_priority() -> None:
    cache = cache_of(20)
    request = fresh(0, 0)
    cache.access(request, Retention(priority=100, ttl_s=5.0))
    assert not cache.expire(4999)
    assert set(cache.expire(5000)) == set(request.keys)
    assert cache.size == 0


def test_time_to_live_counts_from_the_last_access() -> None:
    cache = cache_of(20)
    keep = Retention(ttl_s=5.0)
    cache.access(prompt(0, [1, 2]), keep)
    cache.access(prompt(4000, [1]), keep)
    assert set(cache.expire(5000)) == {prompt(0, [1, 2]).keys[1]}
    assert set(cache.expire(9000)) == {prompt(0, [1]).keys[0]}


def test_request_without_time_to_live_keeps_the_blocks_that_it_shares() -> None:
    cache = cache_of(20)
    cache.access(prompt(0, [1, 2]), Retention(ttl_s=5.0))
    cache.access(prompt(1000, [1]))
    assert set(cache.expire(60_000)) == {prompt(0, [1, 2]).keys[1]}


def test_request_for_blocks_whose_time_is_over_finds_nothing() -> None:
    cache = cache_of(20)
    cache.access(fresh(0, 0), Retention(ttl_s=5.0))
    admission = cache.access(fresh(5000, 0))
    assert admission.num_hits == 0
    assert set(admission.victims) == set(fresh(0, 0).keys)
    assert cache.size == 0


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_request_that_may_not_be_stored_hits_but_leaves_nothing(policy: str) -> None:
    cache = cache_of(20, policy)
    cache.access(prompt(0, [1, 2]))
    admission = cache.access(prompt(1, [1, 2, 3, 4]), Retention(store=False))
    assert admission.num_hits == 2
    assert not admission.victims
    assert cache.size == 2
    assert cache.access(prompt(2, [1, 2, 3, 4])).num_hits == 2


def test_request_that_may_not_be_stored_counts_as_a_use_of_what_it_hits() -> None:
    cache = cache_of(4)
    cache.access(prompt(0, [1, 2]))
    cache.access(prompt(1, [7, 8]))
    cache.access(prompt(2, [1, 2]), Retention(store=False))
    cache.access(prompt(3, [5, 6]))
    assert held(cache, prompt(0, [1, 2]).keys) == 2


def test_shrinking_names_blocks_of_high_priority_last() -> None:
    cache = cache_of(20)
    system, other = fresh(0, 0, num_blocks=6), fresh(1, 1, num_blocks=6)
    cache.access(system, Retention(priority=80))
    cache.access(other)
    assert set(cache.resize(6, 2)) == set(other.keys)
    assert len(cache.resize(4, 2)) == 2
    assert cache.size == 4


class TenantCacheMachine(RuleBasedStateMachine):
    """Any retention at any time: nothing low survives what is high, no child its parent."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.parents: dict[int, int | None] = {}

    @initialize(policy=st.sampled_from(POLICY_NAMES), capacity=st.integers(0, 20))
    def begin(self, policy: str, capacity: int) -> None:
        self.cache = cache_of(capacity, policy)

    @rule(seconds=st.sampled_from([0.5, 1.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    @rule(
        path=st.lists(st.integers(0, 1), min_size=1, max_size=8),
        retention=st.none()
        | st.builds(
            Retention,
            priority=st.sampled_from([0, 20, 35, 50, 90]),
            duration_s=st.none() | st.just(2.0),
            ttl_s=st.none() | st.just(3.0),
            store=st.sampled_from([True, True, False]),
            ranges=st.lists(
                st.builds(
                    RetentionRange,
                    st.just(0),
                    st.integers(1, 100),
                    st.sampled_from([10, 60]),
                    st.just(5.0),
                ),
                max_size=1,
            ),
        ),
    )
    def access(self, path: list[int], retention: Retention | None) -> None:
        request = prompt(self.now_ms, path)
        for key, parent in zip(request.keys, [None, *request.keys], strict=False):
            self.parents[key] = parent
        before = {key: self.cache.priority(key, self.now_ms) for key in self._held()}
        due = set(TenantCache.expire(self.cache, self.now_ms))
        victims = set(self.cache.access(request, retention).victims)
        assert not any(victim in self.cache for victim in victims)
        evicted = [before[key] for key in victims & before.keys() - due - set(request.keys)]
        left = self._held() - set(request.keys)
        if any(priority > DEFAULT_PRIORITY for priority in evicted):
            lowest = min((self.cache.priority(key, self.now_ms) for key in left), default=100)
            assert lowest > DEFAULT_PRIORITY

    @rule(capacity=st.integers(0, 20))
    def resize(self, capacity: int) -> None:
        before = self._held()
        victims = self.cache.resize(capacity, self.now_ms)
        assert set(victims) == before - self._held()
        assert len(victims) == len(set(victims))

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "cache"):
            return
        held = self._held()
        assert self.cache.size == len(held) <= self.cache.capacity
        for key in held:
            parent = self.parents[key]
            if parent in held:
                assert self.cache.priority(parent, self.now_ms) >= self.cache.priority(
                    key, self.now_ms
                )

    def _held(self) -> set[int]:
        return {key for key in self.parents if key in self.cache}


TestTenantCache = TenantCacheMachine.TestCase
TestTenantCache.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
