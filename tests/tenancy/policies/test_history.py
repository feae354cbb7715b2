"""What is remembered of evicted blocks is bounded, however long a scan goes on."""

import tracemalloc
from pathlib import Path

import pytest

from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.policies.oracles import make_oracle
from kvext.tenancy.policy import EvictionPolicy
from tests.tenancy.policies.traffic import prompt

_PAGE_BYTES = 4096
# A quarter and less of what the second scan's blocks would take if they were all remembered.
_NATIVE_SLACK_BYTES = 4 << 20
_ORACLE_SLACK_BYTES = 100 << 10


def scan(
    policy: EvictionPolicy,
    prompts: range,
    num_blocks: int,
    *,
    step_ms: int,
    block_size: int = 1,
) -> None:
    """Ask for new prompts alone."""
    for number in prompts:
        keys = range(number * num_blocks, (number + 1) * num_blocks)
        policy.access(prompt(keys, number * step_ms, block_size=block_size))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_native_memory_stops_growing_during_a_scan(name: str) -> None:
    policy = make_policy(name, 50)
    scan(policy, range(15_000), 16, step_ms=1000)
    before = resident_bytes()
    scan(policy, range(15_000, 30_000), 16, step_ms=1000)
    assert resident_bytes() - before < _NATIVE_SLACK_BYTES


def test_native_memory_stops_growing_when_time_stands_still() -> None:
    """No record ever grows old enough to have taught all that it can."""
    policy = make_policy("hazard-logit", 50)
    scan(policy, range(135_000), 1, step_ms=0)
    before = resident_bytes()
    scan(policy, range(135_000, 205_000), 1, step_ms=0)
    assert resident_bytes() - before < _NATIVE_SLACK_BYTES


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_oracle_memory_stops_growing_during_a_scan(name: str) -> None:
    """Large blocks, as the history of a small cache is bounded by their size together."""
    policy = make_oracle(name, 1600)
    scan(policy, range(66), 16, step_ms=60_000, block_size=16)
    tracemalloc.start()
    try:
        scan(policy, range(66, 140), 16, step_ms=60_000, block_size=16)
        before, _ = tracemalloc.get_traced_memory()
        scan(policy, range(140, 210), 16, step_ms=60_000, block_size=16)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < _ORACLE_SLACK_BYTES
