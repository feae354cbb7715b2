"""Hits on a fixed workload, pinned: a decision that changes, changes them."""

import pytest

from kvext.tenancy.optimal import optimal_hits
from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.policies.oracles import make_oracle
from tests.tenancy.policies.traffic import workload

CAPACITIES = (30, 100, 300)
LONG = workload(4000)
SHORT = LONG[:250]
HITS = {
    "lru": (6080, 12996, 23208),
    "lru2": (8063, 14927, 19835),
    "arc": (7983, 14253, 22987),
    "s3fifo": (7651, 14839, 20706),
    "hazard-table": (9729, 14904, 24730),
    "hazard-logit": (10695, 15250, 25155),
    "duel": (10695, 15250, 25155),
}
OPTIMUM = (14424, 23188, 26268)
SHORT_HITS = {
    "lru": 1051,
    "lru2": 1160,
    "arc": 1124,
    "s3fifo": 1130,
    "hazard-table": 1096,
    "hazard-logit": 1138,
    "duel": 1138,
}


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_native_hits_are_as_they_were(name: str) -> None:
    hits = []
    for capacity in CAPACITIES:
        policy = make_policy(name, capacity, seed=7)
        hits.append(sum(policy.access(access).num_hits for access in LONG))
    assert tuple(hits) == HITS[name]


def test_optimum_is_as_it_was() -> None:
    assert tuple(sum(optimal_hits(LONG, capacity)) for capacity in CAPACITIES) == OPTIMUM


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_oracle_hits_are_as_they_were(name: str) -> None:
    policy = make_oracle(name, 120, seed=7)
    assert sum(policy.access(access).num_hits for access in SHORT) == SHORT_HITS[name]
