"""The native form of each policy decides as its Python form does, whatever comes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.tenancy.policies import POLICY_NAMES, _native, make_policy
from kvext.tenancy.policies.bounded import BoundedCache
from kvext.tenancy.policies.duel import Duel
from kvext.tenancy.policies.native import NativePolicy
from kvext.tenancy.policies.oracles import make_oracle
from kvext.tenancy.policy import Access, EvictionPolicy, Session
from tests.tenancy.policies.ledger import Ledger
from tests.tenancy.policies.traffic import (
    OPERATIONS,
    Ask,
    Conversations,
    Evict,
    Operation,
    Remove,
    Resize,
    long_operations,
    prompt,
    workload,
)


def carry_out(ledger: Ledger, operation: Operation, conversations: Conversations) -> list[int]:
    """What the policy answered."""
    match operation:
        case Ask():
            admission = ledger.access(conversations.access(operation))
            return [admission.num_hits, *admission.victims]
        case Evict(size):
            return list(ledger.evict(size))
        case Resize(capacity):
            return list(ledger.resize(capacity))
        case Remove():
            ledger.remove(conversations.removed(operation))
            return []


def agree(native: EvictionPolicy, oracle: EvictionPolicy, operations: list[Operation]) -> None:
    sides = [(Ledger(policy), Conversations()) for policy in (native, oracle)]
    for operation in operations:
        one, other = (carry_out(ledger, operation, prompts) for ledger, prompts in sides)
        assert one == other


def agree_on(native: EvictionPolicy, oracle: EvictionPolicy, accesses: list[Access]) -> int:
    """Their hits."""
    num_hits = 0
    for access in accesses:
        one, other = native.access(access), oracle.access(access)
        assert (one.num_hits, list(one.victims)) == (other.num_hits, list(other.victims))
        num_hits += one.num_hits
    return num_hits


def duels(capacity: int, largest_shadow: int) -> tuple[EvictionPolicy, EvictionPolicy]:
    """Both forms; a cache that is larger than the shadows may be lets them see a sample."""
    by_seconds = False
    native = NativePolicy(_native.make("duel", capacity, 3, by_seconds, largest_shadow))
    oracle = Duel(capacity, seed=3, by_seconds=by_seconds, largest_shadow=largest_shadow)
    return native, BoundedCache(oracle, capacity)


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(
    operations=OPERATIONS,
    capacity=st.sampled_from((0, 1, 5, 12, 30)),
    seed=st.integers(0, 2**64 - 1),
    by_seconds=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_both_forms_answer_alike_and_as_a_dictionary_would(
    name: str, *, operations: list[Operation], capacity: int, seed: int, by_seconds: bool
) -> None:
    native = make_policy(name, capacity, seed=seed, by_seconds=by_seconds)
    oracle = make_oracle(name, capacity, seed=seed, by_seconds=by_seconds)
    agree(native, oracle, operations)


@given(OPERATIONS, st.sampled_from((1, 3, 7)))
@settings(max_examples=30, deadline=None)
def test_both_duels_see_the_same_sample(operations: list[Operation], largest_shadow: int) -> None:
    agree(*duels(24, largest_shadow), operations)


@pytest.mark.parametrize(
    ("name", "by_seconds"),
    [*((name, False) for name in POLICY_NAMES), ("hazard-table", True), ("hazard-logit", True)],
)
def test_both_forms_learn_alike(name: str, *, by_seconds: bool) -> None:
    """Long enough for the model to have learnt from all ages."""
    native = make_policy(name, 80, seed=1, by_seconds=by_seconds)
    oracle = make_oracle(name, 80, seed=1, by_seconds=by_seconds)
    agree(native, oracle, long_operations(220, 80, seed=int(by_seconds)))


@pytest.mark.parametrize("capacity", [3, 20, 60])
@pytest.mark.parametrize("name", ["lru", "lru2", "arc", "s3fifo"])
def test_both_forms_of_fixed_policies_agree_for_long(name: str, capacity: int) -> None:
    operations = long_operations(1000, capacity, seed=capacity)
    agree(make_policy(name, capacity), make_oracle(name, capacity), operations)


@pytest.mark.parametrize("name", ["hazard-table", "hazard-logit"])
def test_both_forms_renew_an_index_after_the_same_time(name: str) -> None:
    """Old blocks, in the last bin of age, while the model learns from new ones twice a 5 s."""
    accesses = workload(240, seed=3)
    accesses[60:] = [
        replace(access, now_ms=10_000_000 + 2500 * number)
        for number, access in enumerate(accesses[60:])
    ]
    agree_on(make_policy(name, 250), make_oracle(name, 250), accesses)


@pytest.mark.parametrize("largest_shadow", [1 << 16, 33, 17])
def test_both_duels_change_their_leader_at_the_same_request(largest_shadow: int) -> None:
    """Where the application says of each session that it is over, which is not so, and of each
    scan that it is not; and all is over before the model can learn.
    """
    accesses = []
    for turn in range(400):
        keys = range(100 * (turn % 10), 100 * (turn % 10) + 4)
        accesses.append(replace(prompt(keys, 2 * turn), session=Session.CLOSED))
        scanned = range(9000 + 10 * turn, 9002 + 10 * turn)
        accesses.append(replace(prompt(scanned, 2 * turn), session=Session.OPEN))
    hits = agree_on(*duels(66, largest_shadow), accesses)
    learner = make_policy("hazard-logit", 66)
    assert hits > 1.5 * sum(learner.access(access).num_hits for access in accesses)
