"""The native policies reach on the public traces what is said of them.

Runs where KVEXT_TRACES names the folder of `mooncake_conversation_trace.jsonl` and
`mooncake_synthetic_trace.jsonl` (kvcache-ai/Mooncake, FAST25-release/traces).
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvext.tenancy.optimal import optimal_hits
from kvext.tenancy.policies import DEFAULT_POLICY, POLICIES, make_policy
from kvext.tenancy.policy import Access

pytestmark = pytest.mark.skipif(
    "KVEXT_TRACES" not in os.environ, reason="KVEXT_TRACES does not name the traces' folder"
)

BLOCK_TOKENS = 512
CAPACITIES = (1000, 2500, 5000, 10_000, 20_000)
# Per cent of the blocks, at those capacities.
CONVERSATION = {
    "lru": (4.5, 5.9, 11.2, 21.2, 28.8),
    "lru2": (7.3, 12.1, 16.4, 21.5, 25.1),
    "s3fifo": (5.6, 8.3, 14.1, 20.0, 25.1),
    "arc": (5.3, 7.6, 11.5, 22.3, 28.9),
    "optimum": (19.1, 27.7, 34.1, 36.6, 36.6),
}
SYNTHETIC = {
    "lru": (8.4, 17.1, 27.9, 42.4, 57.2),
    "lru2": (8.9, 17.5, 29.7, 44.3, 59.4),
    "s3fifo": (9.4, 17.1, 29.1, 43.0, 59.4),
    "arc": (9.3, 17.9, 28.8, 43.5, 59.3),
    "optimum": (27.7, 41.7, 52.6, 61.8, 64.0),
}
FIXED = {"conversation": CONVERSATION, "synthetic": SYNTHETIC}
LEARNER = {
    "conversation": (8.8, 13.0, 17.7, 24.5, 30.7),
    "synthetic": (9.0, 18.3, 32.3, 48.3, 62.1),
}
TRACES = tuple(FIXED)


@cache
def trace(name: str) -> list[Access]:
    path = Path(os.environ["KVEXT_TRACES"]) / f"mooncake_{name}_trace.jsonl"
    return [access(msgspec.json.decode(line)) for line in path.read_bytes().splitlines()]


def access(line: dict[str, Any]) -> Access:
    return Access(
        now_ms=line["timestamp"],
        keys=line["hash_ids"],
        input_tokens=line["input_length"],
        output_tokens=line["output_length"],
        partial_tail=line["input_length"] % BLOCK_TOKENS != 0,
    )


@cache
def hit_percentages(trace_name: str, policy_name: str) -> tuple[float, ...]:
    """Means of the seeds 0, 1 and 2 where a policy has one."""
    seeds = (0, 1, 2) if POLICIES[policy_name].seeded else (0,)
    out = []
    for capacity in CAPACITIES:
        policies = [make_policy(policy_name, capacity, seed=seed) for seed in seeds]
        hits = sum(one.access(told).num_hits for one in policies for told in trace(trace_name))
        out.append(100 * hits / num_blocks(trace_name) / len(seeds))
    return tuple(out)


def num_blocks(trace_name: str) -> int:
    return sum(len(told.keys) for told in trace(trace_name))


@pytest.mark.parametrize("trace_name", TRACES)
@pytest.mark.parametrize("policy_name", ["lru", "lru2", "s3fifo", "arc"])
def test_fixed_policies_reproduce_their_rows(trace_name: str, policy_name: str) -> None:
    expected = FIXED[trace_name][policy_name]
    assert hit_percentages(trace_name, policy_name) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("trace_name", TRACES)
def test_optimum_reproduces_its_row(trace_name: str) -> None:
    hits = [sum(optimal_hits(trace(trace_name), capacity)) for capacity in CAPACITIES]
    percentages = [100 * number / num_blocks(trace_name) for number in hits]
    assert percentages == pytest.approx(FIXED[trace_name]["optimum"], abs=0.1)


@pytest.mark.parametrize("trace_name", TRACES)
@pytest.mark.parametrize("policy_name", ["hazard-logit", DEFAULT_POLICY])
def test_learners_reach_their_row(trace_name: str, policy_name: str) -> None:
    reached = hit_percentages(trace_name, policy_name)
    for capacity, has, wanted in zip(CAPACITIES, reached, LEARNER[trace_name], strict=True):
        assert has >= wanted - 0.3, f"at {capacity} blocks"


@pytest.mark.parametrize("trace_name", TRACES)
def test_default_is_never_far_below_the_better_fixed_one(trace_name: str) -> None:
    reached = hit_percentages(trace_name, DEFAULT_POLICY)
    fixed = zip(
        hit_percentages(trace_name, "lru"), hit_percentages(trace_name, "lru2"), strict=True
    )
    for capacity, has, (lru, lru2) in zip(CAPACITIES, reached, fixed, strict=True):
        assert has >= max(lru, lru2) - 0.3, f"at {capacity} blocks"
