"""A replay counts what the policy decided, for whom, and nothing else."""

import itertools
from array import array

import pytest

from kvext.simulation.bound import find_bound
from kvext.simulation.generators import Chat, generate
from kvext.simulation.replay import OneCache, replay
from kvext.simulation.sizing import size_trace
from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.policy import Access, Admission
from kvext.tenancy.recompute import RecomputeCost

_TRACE = generate(
    Chat(sessions_per_second=1, mean_turns=5), duration_s=600, block_tokens=512, seed=1
)


def _access(now_ms: int, *keys: int) -> Access:
    cost = RecomputeCost()
    return Access(
        now_ms,
        array("Q", keys),
        512 * len(keys),
        first_cost_s=cost.first_block_s(512),
        cost_step_s=cost.block_step_s(512),
    )


def test_hits_written_blocks_and_victims_of_lru_are_those_counted_by_hand() -> None:
    accesses = [_access(0, 1, 2), _access(1, 1, 2, 3), _access(2, 4, 5), _access(3, 1, 2)]
    made = replay(OneCache(make_policy("lru", 4)), [(0, access) for access in accesses])
    (outcome,) = made.owners
    assert outcome == made.total
    assert (outcome.num_requests, outcome.num_blocks) == (4, 9)
    # 1 and 2 return once; 4 and 5 push 3, the least recent, out; then 1 and 2 return again.
    assert outcome.num_hits == 4
    assert outcome.hit_ratio == pytest.approx(4 / 9)
    assert outcome.num_written == 5
    assert outcome.num_victims == 1
    assert outcome.written_per_hit == pytest.approx(5 / 4)
    assert outcome.saved_s == pytest.approx(2 * RecomputeCost().prefix_s(2, 512))


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_written_blocks_are_those_that_a_model_of_the_cache_takes_in(name: str) -> None:
    policy, cached, num_written = make_policy(name, 150, seed=0), set[int](), 0
    for access in _TRACE.accesses:
        victims = set(policy.access(access).victims)
        kept = set(access.keys) - victims
        num_written += len(kept - cached)
        cached = (cached | kept) - victims
    outcome = replay(
        OneCache(make_policy(name, 150, seed=0)), ((0, access) for access in _TRACE.accesses)
    ).total
    assert outcome.num_written == num_written
    assert outcome.num_blocks == _TRACE.num_blocks


def test_owners_are_counted_apart_and_sum_up_to_the_total() -> None:
    arrivals = [
        (0, _access(0, 1, 2)),
        (1, _access(1, 7)),
        (0, _access(2, 1, 2)),
        (1, _access(3, 7)),
    ]
    made = replay(OneCache(make_policy("lru", 9)), arrivals, num_owners=3)
    assert [owner.num_hits for owner in made.owners] == [2, 1, 0]
    assert [owner.num_blocks for owner in made.owners] == [4, 2, 0]
    assert made.owners[2].hit_ratio == 0
    assert made.owners[2].written_per_hit is None
    assert made.total.num_hits == 3


class _KeepsNothing:
    size = 0

    def access(self, owner: int, access: Access) -> Admission:
        assert owner == 0
        return Admission(0, access.keys)


def test_blocks_that_are_turned_away_are_not_written() -> None:
    outcome = replay(_KeepsNothing(), [(0, _access(at, 1, 2)) for at in range(5)]).total
    assert (outcome.num_written, outcome.num_victims) == (0, 10)


def test_progress_adds_up_to_all_block_accesses() -> None:
    told: list[int] = []
    arrivals = ((0, access) for access in _TRACE.accesses)
    replay(OneCache(make_policy("lru", 100)), arrivals, on_progress=told.append)
    assert sum(told) == _TRACE.num_blocks
    assert len(told) > 1


def test_progress_of_a_sizing_counts_each_replay_and_the_optimum() -> None:
    told: list[int] = []
    size_trace(
        _TRACE,
        policies=["lru", "hazard-logit"],
        capacities=[50, 100],
        seeds=range(2),
        on_progress=told.append,
    )
    assert sum(told) == _TRACE.num_blocks * 2 * (1 + 2 + 1)


def test_bound_is_above_every_policy_and_reached_when_all_fits() -> None:
    for capacity, name in itertools.product((20, 100), POLICY_NAMES):
        (sizing,) = size_trace(_TRACE, policies=[name], capacities=[capacity])
        assert sizing.optimal is not None
        assert sizing.hit_ratio <= sizing.optimal.hit_ratio
    everything = find_bound(_TRACE.accesses, _TRACE.distinct_blocks())
    assert everything.num_hits == _TRACE.num_blocks - _TRACE.distinct_blocks()


def test_bound_of_a_small_case_is_that_found_by_hand() -> None:
    accesses = [_access(at, key) for at, key in enumerate([1, 2, 3, 1, 3, 1])]
    bound = find_bound(accesses, 2)
    assert bound.num_hits == 3
    assert bound.saved_s == pytest.approx(3 * RecomputeCost().first_block_s(512))


@pytest.mark.benchmark
def test_lru_is_replayed_at_a_million_block_accesses_a_second() -> None:
    trace = generate(
        Chat(sessions_per_second=4, mean_turns=6, first_blocks=8, blocks_per_turn=4),
        duration_s=1500,
        block_tokens=512,
        seed=0,
    )
    runs = size_trace(trace, policies=["lru"] * 3, capacities=[2000], with_optimum=False)
    assert trace.num_blocks > 300_000
    assert max(run.accesses_per_second for run in runs) > 1_000_000
