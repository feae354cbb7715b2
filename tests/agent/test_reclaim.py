"""Making room in a real pool: for whom, at whose cost, and with a policy that does not work."""

from collections.abc import Callable, Sequence

import pytest

from kvext.agent import AgentSettings, Watermarks
from kvext.agent.duties import Duties
from kvext.agent.health import Health
from kvext.agent.observation import Seen
from kvext.agent.ranking import Ranking
from kvext.agent.reclaim import RETRY_RANKING_S
from kvext.agent.records import Records, Refs
from kvext.agent.role import RoleState
from kvext.pool import Pool
from tests.agent.clock import FakeClock
from tests.pool.engine_memory import NAMESPACE, SHAPE, EngineMemory, key_of

_MARKS = Watermarks(0.1, 0.3)


class Poison:
    """A ranking that fails where it is told to."""

    def __init__(self, *, observing: bool = False, choosing: bool = False) -> None:
        self._observing = observing
        self._choosing = choosing

    def observe(self, records: Records) -> Sequence[Seen]:
        del records
        if self._observing:
            raise ValueError("poisoned")
        return ()

    def choose(self, records: Records, num_records: int) -> Refs:
        if self._choosing:
            raise MemoryError
        return records.refs[:num_records]


class Keeper:
    """The agent's duties on the clock of a test."""

    def __init__(self, make_ranking: Callable[[int], Ranking] | None = None) -> None:
        self.clock = FakeClock()
        self.health = Health(self.clock, 30)
        settings = AgentSettings(watermarks=_MARKS)
        self.duties = Duties(settings, self.health, self.clock, make_ranking)

    def perform(self, pool: Pool) -> None:
        assert self.duties.role.keep(pool) is RoleState.HOLDER
        self.duties.perform(pool)


def _store(pool: Pool, first: int, count: int) -> None:
    memory = EngineMemory()
    keys = b"".join(key_of(number) for number in range(first, first + count))
    pool.store(keys, SHAPE, NAMESPACE, memory.pages, [0] * count)


def _held(pool: Pool, count: int) -> list[int]:
    keys = b"".join(key_of(number) for number in range(count))
    return [number for number, found in enumerate(pool.lookup(keys, SHAPE)) if found]


@pytest.mark.parametrize("policy", ["insured", "lru2", "arc", "duel"])
def test_burst_finds_room_that_its_writer_need_not_make(pool: Pool, policy: str) -> None:
    keeper = Keeper(AgentSettings(policy=policy).make_ranking)
    _store(pool, 0, pool.num_extents)
    assert pool.num_free == 0
    keeper.perform(pool)
    high = pool.num_free
    assert high >= 0.3 * pool.num_extents
    _store(pool, 1000, high)
    counters = pool.stat().counters
    assert (counters["evictions"], counters["reclaims"]) == (0, high)
    assert keeper.health.reasons() == []


def test_without_an_agent_the_writer_makes_room_itself(pool: Pool) -> None:
    _store(pool, 0, pool.num_extents)
    _store(pool, 1000, 5)
    assert pool.stat().counters["evictions"] == 5
    assert len(_held(pool, 2000)) == pool.num_extents


def test_pinned_records_stay_and_others_go_in_their_place(pool: Pool) -> None:
    keeper = Keeper()
    count = pool.num_extents
    _store(pool, 0, count)
    # The oldest, which any order would name first.
    leases = [pool.match(key_of(number), SHAPE) for number in range(count // 2)]
    keeper.perform(pool)
    keeper.clock.advance(1)
    keeper.perform(pool)
    assert pool.num_free >= 0.3 * count
    assert _held(pool, count // 2) == list(range(count // 2))
    for lease in leases:
        lease.release()


def test_ranking_that_insists_on_pinned_records_is_asked_for_more(pool: Pool) -> None:
    keeper = Keeper(lambda _: Poison())  # always the first ones
    count = pool.num_extents
    _store(pool, 0, count)
    first = set(Records.of(pool.records()).keys[: count // 2].tolist())
    leases = [pool.match(key_of(number), SHAPE) for number in first]
    for _ in range(4):
        keeper.perform(pool)
        keeper.clock.advance(1)
    assert pool.num_free >= 0.1 * count
    assert first <= set(_held(pool, count))
    for lease in leases:
        lease.release()


def test_pool_that_is_pinned_as_a_whole_is_looked_at_once_an_interval(pool: Pool) -> None:
    keeper = Keeper()
    count = pool.num_extents
    _store(pool, 0, count)
    leases = [pool.match(key_of(number), SHAPE) for number in range(count)]
    for _ in range(5):
        keeper.perform(pool)
    assert keeper.duties.counters.reclaims == 1
    assert len(_held(pool, count)) == count
    for lease in leases:
        lease.release()
    keeper.clock.advance(1)
    keeper.perform(pool)
    assert pool.num_free >= 0.3 * count


@pytest.mark.parametrize("where", ["made", "observing", "choosing"])
def test_poisoned_policy_costs_its_order_and_nothing_else(pool: Pool, where: str) -> None:
    def poisoned(_: int) -> Ranking:
        if where == "made":
            raise RuntimeError("no such policy")
        return Poison(observing=where == "observing", choosing=where == "choosing")

    keeper = Keeper(poisoned)
    _store(pool, 0, pool.num_extents)
    keeper.perform(pool)
    assert pool.num_free >= 0.3 * pool.num_extents
    assert [reason.step for reason in keeper.health.reasons()] == ["policy"]
    assert keeper.health.failures() == {"policy": 1}
    counters = keeper.duties.counters
    assert counters.reclaimed_without_policy == counters.reclaimed_records > 0


def test_policy_that_works_again_is_used_again(pool: Pool) -> None:
    rankings: list[Ranking] = [Poison(choosing=True), Poison()]
    keeper = Keeper(lambda _: rankings.pop(0))
    _store(pool, 0, pool.num_extents)
    keeper.perform(pool)
    without = keeper.duties.counters.reclaimed_without_policy
    keeper.clock.advance(RETRY_RANKING_S)
    _store(pool, 1000, pool.num_free)
    keeper.perform(pool)
    assert keeper.health.reasons() == []
    assert keeper.duties.counters.reclaimed_without_policy == without
    assert keeper.duties.counters.reclaimed_records > without


def test_agent_on_standby_touches_nothing(pool: Pool) -> None:
    keeper = Keeper()
    _store(pool, 0, pool.num_extents)
    keeper.duties.role.state = RoleState.STANDBY
    keeper.duties.perform(pool)
    assert pool.num_free == 0
