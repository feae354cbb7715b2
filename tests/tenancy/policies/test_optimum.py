"""Belady's optimum with bypass: no strategy has more hits, if no prompt repeats a key."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.tenancy.optimal import optimal_hits
from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.policies.belady import belady_hits
from kvext.tenancy.policy import Access
from tests.tenancy.policies.traffic import prompt, workload

CAPACITIES = st.integers(0, 3)
# Few keys and short lists: the search looks at every set that could be kept.
SINGLE_BLOCKS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=1), max_size=9)
# In a tree of two branches at each block, a block's key says how one came there.
PREFIXES = st.lists(
    st.lists(st.integers(1, 2), max_size=3).map(
        lambda turns: [
            int("1" + "".join(map(str, turns[:end])), 3) for end in range(len(turns) + 1)
        ]
    ),
    max_size=6,
)
ANY_PROMPTS = st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=12)
# A key that stands twice in a prompt would be worth two.
WITHOUT_REPEATS = st.lists(st.lists(st.integers(0, 6), max_size=5, unique=True), max_size=12)


def trace(prompts: Sequence[Sequence[int]]) -> list[Access]:
    return [prompt(keys, number) for number, keys in enumerate(prompts)]


def most_hits(prompts: Sequence[Sequence[int]], capacity: int) -> int:
    """By exhaustive search: after each request any set of what is at hand may be kept."""

    @cache
    def most_from(number: int, held: frozenset[int]) -> int:
        if number == len(prompts):
            return 0
        keys = prompts[number]
        num_hits = 0
        while num_hits < len(keys) and keys[num_hits] in held:
            num_hits += 1
        at_hand = held | set(keys)
        choices = combinations(sorted(at_hand), min(capacity, len(at_hand)))
        return num_hits + max(most_from(number + 1, frozenset(kept)) for kept in choices)

    return most_from(0, frozenset())


@given(SINGLE_BLOCKS, CAPACITIES)
@settings(max_examples=60, deadline=None)
def test_no_strategy_has_more_hits_on_independent_blocks(
    prompts: list[list[int]], capacity: int
) -> None:
    assert sum(belady_hits(trace(prompts), capacity)) == most_hits(prompts, capacity)


@given(PREFIXES, CAPACITIES)
@settings(max_examples=60, deadline=None)
def test_no_strategy_has_more_hits_on_prefixes(prompts: list[list[int]], capacity: int) -> None:
    assert sum(belady_hits(trace(prompts), capacity)) == most_hits(prompts, capacity)


def test_where_keys_name_no_prefixes_a_kept_block_behind_a_gap_counts() -> None:
    """Block 2 comes back soonest, but behind a new block, where no cache could use it."""
    prompts = [[2, 4, 5], [3, 2], [4]]
    assert belady_hits(trace(prompts), 1) == [0, 1, 0]
    assert most_hits(prompts, 1) == 1


@given(WITHOUT_REPEATS, CAPACITIES)
@settings(max_examples=60, deadline=None)
def test_no_strategy_has_more_hits_without_an_order_of_keys(
    prompts: list[list[int]], capacity: int
) -> None:
    assert sum(belady_hits(trace(prompts), capacity)) >= most_hits(prompts, capacity)


@given(ANY_PROMPTS, st.integers(0, 7))
@settings(max_examples=200, deadline=None)
def test_native_optimum_counts_as_the_oracle(prompts: list[list[int]], capacity: int) -> None:
    accesses = trace(prompts)
    assert list(optimal_hits(accesses, capacity)) == belady_hits(accesses, capacity)


def test_no_policy_beats_the_optimum() -> None:
    accesses = workload(2000)
    for capacity in (20, 100, 500):
        bound = sum(optimal_hits(accesses, capacity))
        for name in POLICY_NAMES:
            policy = make_policy(name, capacity)
            assert sum(policy.access(access).num_hits for access in accesses) <= bound


def test_optimum_of_nothing_is_nothing() -> None:
    assert list(optimal_hits([], 5)) == belady_hits([], 5) == []
    assert list(optimal_hits([prompt([])], 5)) == belady_hits([prompt([])], 5) == [0]
