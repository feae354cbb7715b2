"""A block is of no use without those before it: what is kept must be whole prefixes."""

import pytest

from kvext.tenancy.policy import EvictionPolicy
from tests.tenancy.policies.conftest import Form, Make
from tests.tenancy.policies.ledger import Ledger
from tests.tenancy.policies.traffic import prompt, workload

# ARC and S3-FIFO know no order among blocks: one that is asked for rarely may stay behind another.
KEEP_PREFIXES = ("lru", "lru2", "hazard-table", "hazard-logit", "duel")


def kept(policy: EvictionPolicy, keys: range) -> list[int]:
    return [key for key in keys if key in policy]


def test_prompt_larger_than_the_cache_keeps_a_prefix(make: Make) -> None:
    ledger = Ledger(make(8))
    prompt_keys = range(20)
    admission = ledger.access(prompt(prompt_keys))
    assert kept(ledger.policy, prompt_keys) == list(range(8))
    assert list(admission.victims) == list(range(19, 7, -1))


@pytest.mark.parametrize("known", [2, 5, 8])
def test_it_keeps_a_prefix_if_its_head_was_known(make: Make, known: int) -> None:
    ledger = Ledger(make(8))
    ledger.access(prompt(range(known), 0))
    ledger.access(prompt(range(known), 1))
    ledger.access(prompt(range(100, 108), 2))
    ledger.access(prompt(range(known), 3))
    ledger.access(prompt(range(20), 4))
    rest = kept(ledger.policy, range(20))
    assert rest == list(range(len(rest)))


def test_it_keeps_a_prefix_if_its_tail_was_evicted_before(make: Make) -> None:
    ledger = Ledger(make(8))
    for now_ms in range(0, 60, 3):
        ledger.access(prompt(range(20), now_ms))
        rest = kept(ledger.policy, range(20))
        assert rest == list(range(len(rest)))
        ledger.access(prompt(range(100 + now_ms, 104 + now_ms), now_ms + 1))
        ledger.evict(2)


def test_it_keeps_a_prefix_of_large_blocks(make: Make) -> None:
    ledger = Ledger(make(10))
    ledger.access(prompt(range(2), 0, block_size=1))
    ledger.access(prompt(range(9), 1, block_size=3))
    assert kept(ledger.policy, range(9)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", KEEP_PREFIXES)
def test_no_block_stays_without_the_one_before_it(form: Form, name: str) -> None:
    ledger = Ledger(form(name, 30))
    parents: dict[int, int] = {}
    for access in workload(150):
        ledger.access(access)
        parents.update(zip(access.keys[1:], access.keys[:-1], strict=True))
        ledger.evict(access.now_ms % 3)
        for key in ledger.sizes:
            assert key not in parents or parents[key] in ledger.sizes
