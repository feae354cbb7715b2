"""Tenants on the public traces fare as promised.

Runs where KVEXT_TRACES names the folder of `mooncake_conversation_trace.jsonl` and
`mooncake_synthetic_trace.jsonl` (kvcache-ai/Mooncake, FAST25-release/traces).
"""

import os
from array import array
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvext.tenancy.policies import DEFAULT_POLICY, make_policy
from kvext.tenancy.policy import Access
from kvext.tenancy.recompute import RecomputeCost
from kvext.tenancy.shared_cache import SharedCache
from kvext.tenancy.shares import Share
from kvext.tenancy.tuning import Tuning

pytestmark = pytest.mark.skipif(
    "KVEXT_TRACES" not in os.environ, reason="KVEXT_TRACES does not name the traces' folder"
)

BLOCK_TOKENS = 512
FIRST_S = RecomputeCost().first_block_s(BLOCK_TOKENS)
STEP_S = RecomputeCost().block_step_s(BLOCK_TOKENS)
CAPACITIES = (9000, 18_000, 36_000)
TENANTS = ("chat", "second", "scanner")


@cache
def requests_of(tenant: str) -> list[Access]:
    name = {"chat": "conversation", "second": "synthetic"}[tenant]
    path = Path(os.environ["KVEXT_TRACES"]) / f"mooncake_{name}_trace.jsonl"
    lines: list[dict[str, Any]] = [
        msgspec.json.decode(line) for line in path.read_bytes().splitlines()
    ]
    first_key = TENANTS.index(tenant) << 44
    return [
        access(
            line["timestamp"],
            [first_key + key for key in line["hash_ids"]],
            line["input_length"],
            line["output_length"],
        )
        for line in lines
    ]


@cache
def scans(per_second: float) -> list[Access]:
    first_key = TENANTS.index("scanner") << 44
    return [
        access(
            int(at * 1000 / per_second),
            range(first_key + at * 96, first_key + at * 96 + 96),
            96 * BLOCK_TOKENS,
            256,
        )
        for at in range(int(3600 * per_second))
    ]


def access(now_ms: int, keys: Any, input_tokens: int, output_tokens: int) -> Access:
    return Access(
        now_ms,
        array("Q", keys),
        input_tokens,
        output_tokens,
        partial_tail=input_tokens % BLOCK_TOKENS != 0,
        first_cost_s=FIRST_S,
        cost_step_s=STEP_S,
    )


@cache
def mix(scans_per_second: float) -> list[tuple[str, Access]]:
    arrivals = [(name, request) for name in TENANTS[:2] for request in requests_of(name)]
    arrivals += [("scanner", request) for request in scans(scans_per_second)]
    return sorted(arrivals, key=lambda arrival: arrival[1].now_ms)


@cache
def global_hits(policy: str, scans_per_second: float, capacity: int) -> int:
    one = make_policy(policy, capacity)
    return sum(one.access(request).num_hits for _, request in mix(scans_per_second))


@cache
def alone(tenant: str, capacity: int) -> int:
    own = make_policy(DEFAULT_POLICY, capacity)
    return sum(own.access(request).num_hits for request in requests_of(tenant))


def shared(
    scans_per_second: float, capacity: int, tuning: Tuning | None = None
) -> tuple[dict[str, int], SharedCache]:
    shares = [Share(tenant, floor=capacity // 12) for tenant in TENANTS]
    one = SharedCache(capacity, shares, tuning=tuning)
    hits = dict.fromkeys(TENANTS, 0)
    for tenant, request in mix(scans_per_second):
        hits[tenant] += one.access(tenant, request).num_hits
    return hits, one


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("scans_per_second", [0.5, 4.0])
def test_every_tenant_fares_as_alone_and_all_together_better_than_in_one_lru_cache(
    scans_per_second: float, capacity: int
) -> None:
    hits, _ = shared(scans_per_second, capacity)
    for tenant in ("chat", "second"):
        assert hits[tenant] >= 0.98 * alone(tenant, capacity // 3)
    assert sum(hits.values()) > global_hits("lru", scans_per_second, capacity)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_with_a_slow_scanner_fairness_costs_at_most_two_per_cent(capacity: int) -> None:
    hits, _ = shared(0.5, capacity)
    unfair = max(global_hits(policy, 0.5, capacity) for policy in ("hazard-logit", "lru2"))
    assert sum(hits.values()) >= 0.98 * unfair


@pytest.mark.parametrize(("shadow_blocks", "error"), [(16_384, 0.05), (2048, 0.15)])
def test_fairness_figure_is_close_to_the_exact_one(shadow_blocks: int, error: float) -> None:
    tuning = Tuning(shadow_blocks=shadow_blocks, fair_turnovers=1e9)
    hits, one = shared(0.5, 18_000, tuning)
    fairness = one.fairness()
    for tenant in ("chat", "second"):
        exact = hits[tenant] / alone(tenant, 6000)
        assert fairness.tenants[tenant].shared_over_alone == pytest.approx(exact, rel=error)
    assert fairness.tenants["scanner"].shared_over_alone is None
