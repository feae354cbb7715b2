"""A policy's choices stay in step with what the pool holds, whatever happens behind its back."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvext.agent import AGENT_POLICIES, AgentSettings
from kvext.agent.insured import Insurance, InsuredRanking
from kvext.agent.observation import Watch
from kvext.agent.ranking import PolicyRanking
from kvext.tenancy.policies import make_policy
from tests.agent.rows import Row, extents, records

_NUM_EXTENTS = 12


class RankingMachine(RuleBasedStateMachine):
    """A pool whose records come and go; some are pinned when they are to be evicted."""

    @initialize(policy=st.sampled_from(AGENT_POLICIES))
    def begin(self, policy: str) -> None:
        self.ranking = AgentSettings(policy=policy).make_ranking(_NUM_EXTENTS)
        self.rows: dict[int, Row] = {}
        self.now = 1

    @rule(key=st.integers(0, 30))
    def access(self, key: int) -> None:
        self.now += 1
        row = self.rows.get(key)
        if row is not None:
            self.rows[key] = Row(key, row.extent, self.now, row.last, row.hits + 1)
            return
        free = set(range(_NUM_EXTENTS)) - {row.extent for row in self.rows.values()}
        if free:
            self.rows[key] = Row(key, min(free), self.now)

    @rule(data=st.data())
    def lose_one_to_a_writer(self, data: st.DataObject) -> None:
        if self.rows:
            del self.rows[data.draw(st.sampled_from(sorted(self.rows)))]

    @rule(count=st.integers(1, _NUM_EXTENTS + 2), pinned=st.sets(st.integers(0, _NUM_EXTENTS)))
    def reclaim(self, count: int, pinned: set[int]) -> None:
        now = records(self.rows.values())
        self.ranking.observe(now)
        chosen = extents(self.ranking.choose(now, count))
        present = {row.extent for row in self.rows.values()}
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= present
        # Nothing hides from it: asked for all, it names all.
        assert len(chosen) >= min(count, len(present))
        gone = set(chosen) - pinned
        self.rows = {key: row for key, row in self.rows.items() if row.extent not in gone}


TestRanking = RankingMachine.TestCase
TestRanking.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_lru2_keeps_what_came_back_and_gives_up_what_was_used_once() -> None:
    ranking = PolicyRanking(make_policy("lru2", 4))
    now = records([Row(1, 1, last=5, previous=2, hits=1), Row(2, 2, last=9), Row(3, 3, last=8)])
    ranking.observe(now)
    assert extents(ranking.choose(now, 2)) == [3, 2]


def test_evicted_block_that_comes_back_is_known() -> None:
    ranking = PolicyRanking(make_policy("lru2", 3))
    now = records([Row(1, 1, last=1), Row(2, 2, last=2), Row(3, 3, last=3)])
    ranking.observe(now)
    assert extents(ranking.choose(now, 1)) == [1]
    ranking.observe(records([Row(2, 2, last=2), Row(3, 3, last=3)]))
    # Its second store is its second access: it has come back, the later ones have not.
    now = records([Row(1, 7, last=4), Row(5, 2, last=5), Row(6, 3, last=6)])
    ranking.observe(now)
    assert extents(ranking.choose(now, 2)) == [2, 3]


@pytest.mark.parametrize("reuse_after", [30, 10_000])
def test_insurance_follows_whichever_hits_more(reuse_after: int) -> None:
    # Of recency alone: each block is used twice, soon, and never again.
    # Of LRU-2: a few blocks return again and again through a flood of others.
    num_extents = 64
    insurance, watch = Insurance(num_extents), Watch()
    recency = reuse_after < num_extents
    for now in range(1, 12_000):
        keys = [now * 1000, (now - reuse_after) * 1000] if recency else [now * 1000]
        if not recency and now % 3 == 0:
            keys = [now // 3 % 48]
        accesses, _ = watch.look(records(Row(key, key % 997, last=now) for key in keys if key >= 0))
        for seen in accesses:
            insurance.note(seen)
    assert insurance.recency_leads is recency


def test_insured_ranking_takes_the_oldest_while_recency_leads() -> None:
    insurance = Insurance(4)
    ranking = InsuredRanking(4, insurance)
    now = records([Row(1, 1, last=5, previous=2, hits=1), Row(2, 2, last=9), Row(3, 3, last=8)])
    ranking.observe(now)
    insurance.recency_leads = True
    assert extents(ranking.choose(now, 1)) == [1]
    insurance.recency_leads = False
    assert extents(ranking.choose(now, 1)) == [3]
