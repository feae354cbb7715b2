"""A shared cache against a dictionary of what its answers say that it holds."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvext.tenancy.policies import POLICY_NAMES
from kvext.tenancy.policy import Access
from kvext.tenancy.retention import Retention
from kvext.tenancy.shared_cache import SharedCache
from kvext.tenancy.shares import Share
from kvext.tenancy.tuning import Tuning
from tests.tenancy.prompts import prompt

CAPACITY = 24
SHARES = (
    Share("floored", floor=8),
    Share("bounded", ceiling=7),
    Share("plain", floor=2, weight=3.0),
)
TENANTS = [share.tenant for share in SHARES]
CEILINGS = {"floored": CAPACITY, "bounded": 7, "plain": CAPACITY}

paths = st.lists(st.integers(0, 1), min_size=1, max_size=9)
retentions = st.none() | st.builds(
    Retention,
    priority=st.sampled_from([0, 10, 35, 60, 100]),
    duration_s=st.none() | st.sampled_from([0.0, 2.0, 20.0]),
    ttl_s=st.none() | st.sampled_from([0.0, 3.0, 30.0]),
    store=st.booleans(),
)


class SharedCacheMachine(RuleBasedStateMachine):
    """Requests of three tenants, in time that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.held: dict[str, dict[int, float]] = {tenant: {} for tenant in TENANTS}

    @initialize(policy=st.sampled_from(POLICY_NAMES), seed=st.integers(0, 3))
    def begin(self, policy: str, seed: int) -> None:
        tuning = Tuning(rebalance_s=1.0, useless_after=math.inf, shadow_blocks=4)
        self.cache = SharedCache(
            CAPACITY, SHARES, policy=policy, seed=seed, block_tokens=16, tuning=tuning
        )

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    @rule(tenant=st.sampled_from(TENANTS), path=paths, retention=retentions)
    def access(self, tenant: str, path: list[int], retention: Retention | None) -> None:
        request = prompt(self.now_ms, path, tenant=TENANTS.index(tenant))
        sizes = {name: len(held) for name, held in self.held.items()}
        admission = self.cache.access(tenant, request, retention)
        expired = self._expire()
        held = self.held[tenant]
        num_hits = next(
            (at for at, key in enumerate(request.keys) if key not in held), len(request.keys)
        )
        assert admission.num_hits == num_hits
        victims = list(admission.victims)
        assert len(victims) == len(set(victims))
        assert expired <= set(victims)
        self._take_in(held, request, retention)
        self._let_go(victims)
        for share in SHARES:
            lost = sizes[share.tenant] - len(self.held[share.tenant])
            if share.tenant != tenant and lost > len(expired):
                assert len(self.held[share.tenant]) >= share.floor

    @rule()
    def expire(self) -> None:
        gone = list(self.cache.expire(self.now_ms))
        assert len(gone) == len(set(gone))
        assert self._expire() <= set(gone)
        self._let_go(gone)

    @rule(tenant=st.sampled_from(TENANTS), data=st.data())
    def remove(self, tenant: str, data: st.DataObject) -> None:
        held = self.held[tenant]
        if held:
            key = data.draw(st.sampled_from(sorted(held)))
            self.cache.remove(tenant, [key, 1 << 60])
            del held[key]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert self.cache.size == sum(map(len, self.held.values())) <= CAPACITY
        for tenant, held in self.held.items():
            assert self.cache.held(tenant) == len(held) <= CEILINGS[tenant]
            assert all(self.cache.contains(tenant, key) for key in held)

    def _let_go(self, victims: list[int]) -> None:
        for victim in victims:
            for held in self.held.values():
                held.pop(victim, None)

    def _take_in(
        self, held: dict[int, float], request: Access, retention: Retention | None
    ) -> None:
        ttl_s = None if retention is None else retention.ttl_s
        deadline = math.inf if ttl_s is None else self.now_ms + ttl_s * 1000
        for key in request.keys:
            if retention is None or retention.store:
                held[key] = max(held.get(key, 0.0), deadline)
            elif key not in held:
                break
            elif deadline < math.inf:
                held[key] = max(held[key], deadline)

    def _expire(self) -> set[int]:
        """What ought to be gone by now."""
        expired = set()
        for held in self.held.values():
            over = {key for key, deadline in held.items() if deadline <= self.now_ms}
            expired |= over
            for key in over:
                del held[key]
        return expired


TestSharedCache = SharedCacheMachine.TestCase
TestSharedCache.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestSharedCache = pytest.mark.timeout(120)(TestSharedCache)
