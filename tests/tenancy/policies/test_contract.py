"""What every form of every policy owes its caller."""

from array import array

import pytest

from kvext.tenancy.policy import Access, Session
from tests.tenancy.policies.conftest import Make
from tests.tenancy.policies.ledger import Ledger
from tests.tenancy.policies.traffic import prompt, workload

SHORT = workload(60)


@pytest.mark.parametrize("capacity", [0, 1, 7, 50, 10_000])
def test_answers_agree_with_a_dictionary_at_every_capacity(make: Make, capacity: int) -> None:
    ledger = Ledger(make(capacity))
    for access in SHORT:
        ledger.access(access)
    assert ledger.policy.capacity == capacity


def test_new_cache_is_empty(make: Make) -> None:
    policy = make(4)
    assert (policy.capacity, policy.size, 1 in policy) == (4, 0, False)
    assert list(policy.evict(3)) == []


def test_blocks_that_fit_are_all_kept(make: Make) -> None:
    policy = make(6)
    assert list(policy.access(prompt([1, 2, 3])).victims) == []
    assert list(policy.access(prompt([1, 2, 4, 5, 6], 1)).victims) == []
    assert policy.access(prompt([1, 2, 3, 9], 2)).num_hits == 3


def test_hits_end_where_the_prefix_does(make: Make) -> None:
    policy = make(10)
    policy.access(prompt([1, 2, 3, 4]))
    policy.remove([2])
    assert policy.access(prompt([1, 2, 3, 4], 1)).num_hits == 1


def test_capacity_zero_turns_every_block_away(make: Make) -> None:
    policy = make(0)
    for now_ms in range(3):
        admission = policy.access(prompt([5, 6, 7], now_ms))
        assert admission.num_hits == 0
        assert sorted(admission.victims) == [5, 6, 7]
        assert policy.size == 0


def test_evict_frees_at_least_what_was_asked_for(make: Make) -> None:
    ledger = Ledger(make(12))
    for start in (10, 20, 30):
        ledger.access(prompt([start, start + 1], start, block_size=2))
    assert len(ledger.evict(3)) == 2
    assert len(ledger.evict(0)) == 0
    assert len(ledger.evict(100)) == 4
    assert ledger.policy.size == 0


def test_shrinking_names_victims_and_growing_makes_room(make: Make) -> None:
    ledger = Ledger(make(8))
    ledger.access(prompt(range(8)))
    assert len(ledger.resize(3)) == 5
    assert len(ledger.resize(3)) == 0
    assert len(ledger.resize(20)) == 0
    ledger.access(prompt(range(100, 117), 1))
    assert ledger.policy.size == 20


def test_removed_blocks_are_gone_and_come_back_as_new(make: Make) -> None:
    ledger = Ledger(make(8))
    ledger.access(prompt([1, 2, 3, 4]))
    ledger.remove([3, 4])
    assert 3 not in ledger.policy
    assert ledger.access(prompt([1, 2, 3, 4], 1)).num_hits == 2
    assert ledger.access(prompt([1, 2, 3, 4], 2)).num_hits == 4


def test_unknown_and_evicted_blocks_may_be_removed(make: Make) -> None:
    ledger = Ledger(make(3))
    ledger.remove([7])
    ledger.access(prompt([1, 2, 3]))
    evicted = list(ledger.access(prompt([4, 5, 6], 1)).victims)
    ledger.remove([7, 7, *evicted, *evicted])
    for now_ms in range(2, 6):
        ledger.access(prompt([1, 2, 3], now_ms))


def test_blocks_may_be_removed_from_the_middle_of_a_prompt(make: Make) -> None:
    ledger = Ledger(make(6))
    ledger.access(prompt([1, 2, 3, 4, 5, 6]))
    ledger.remove([1, 3])
    for now_ms, start in enumerate((10, 20, 30, 1), start=1):
        ledger.access(prompt(range(start, start + 4), now_ms))
    ledger.evict(6)
    assert ledger.policy.size == 0


def test_sizes_are_in_the_unit_of_the_capacity(make: Make) -> None:
    ledger = Ledger(make(10))
    ledger.access(prompt([1, 2], block_size=3))
    assert ledger.policy.size == 6
    ledger.access(prompt([1, 2, 3, 4], 1, block_size=2))
    assert ledger.policy.size == 10
    ledger.access(prompt([1, 2, 8, 9], 2, block_size=5))


def test_block_larger_than_the_cache_is_turned_away(make: Make) -> None:
    ledger = Ledger(make(4))
    for now_ms in range(3):
        assert list(ledger.access(prompt([7], now_ms, block_size=5)).victims) == [7]


def test_empty_prompt_changes_nothing(make: Make) -> None:
    ledger = Ledger(make(2))
    ledger.access(prompt([1, 2]))
    admission = ledger.access(prompt([], 1))
    assert (admission.num_hits, list(admission.victims)) == (0, [])
    assert ledger.policy.size == 2


def test_key_that_stands_twice_in_a_prompt_is_one_block(make: Make) -> None:
    ledger = Ledger(make(10))
    ledger.access(prompt([1, 1]))
    ledger.access(prompt([1, 2, 1, 3, 2], 1))
    assert ledger.policy.size == 3
    assert ledger.access(prompt([1, 2, 1, 3, 2, 4], 2)).num_hits == 5


def test_all_keys_of_64_bits_are_keys(make: Make) -> None:
    ledger = Ledger(make(3))
    extremes = [0, 2**64 - 1, 2**63, 1]
    for now_ms in range(3):
        ledger.access(prompt(extremes, now_ms))


def test_keys_may_come_as_an_array(make: Make) -> None:
    ledger = Ledger(make(3))
    ledger.access(prompt(array("Q", [2**64 - 1, 3]), 0))
    assert ledger.access(prompt(array("Q", [2**64 - 1, 3]), 1)).num_hits == 2


@pytest.mark.parametrize("now_ms", [4, -1, 2**62 + 1])
def test_time_that_runs_backwards_is_refused_and_changes_nothing(make: Make, now_ms: int) -> None:
    ledger = Ledger(make(4))
    ledger.access(prompt([1, 2, 3], 5))
    with pytest.raises(ValueError, match=f"now_ms is {now_ms}"):
        ledger.policy.access(prompt([8, 9], now_ms))
    ledger.check()
    assert 8 not in ledger.policy
    assert ledger.access(prompt([1, 2, 3], 5)).num_hits == 3


def test_block_size_zero_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="block_size is 0"):
        make(4).access(prompt([1], block_size=0))


def test_time_may_jump_to_its_end(make: Make) -> None:
    ledger = Ledger(make(4))
    ledger.access(prompt([1, 2, 3], 0))
    for _ in range(3):
        ledger.access(prompt([1, 2, 3, 4, 5], 2**62))
    ledger.access(Access(2**62, [6, 7, 8], 48, return_ms=2**63 - 1, session=Session.OPEN))


@pytest.mark.parametrize("cost_s", [0.0, float("inf"), float("nan"), -1.0, 1e308])
def test_no_cost_makes_a_policy_hang(make: Make, cost_s: float) -> None:
    ledger = Ledger(make(4, by_seconds=True))
    for now_ms in range(5):
        keys = range(10 * now_ms, 10 * now_ms + 5)
        ledger.access(Access(now_ms, keys, 80, first_cost_s=cost_s, cost_step_s=cost_s))


def test_same_seed_gives_the_same_victims(make: Make) -> None:
    one, other = make(20, seed=5), make(20, seed=5)
    for access in SHORT:
        assert list(one.access(access).victims) == list(other.access(access).victims)
