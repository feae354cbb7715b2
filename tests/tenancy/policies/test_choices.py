"""Whom each policy chooses, in small cases worked out by hand."""

from dataclasses import replace

import pytest

from kvext.tenancy.policy import EvictionPolicy
from tests.tenancy.policies.conftest import Form
from tests.tenancy.policies.traffic import prompt


def ask_one_by_one(policy: EvictionPolicy, *keys: int) -> list[int]:
    """The victims of these single-block prompts."""
    victims: list[int] = []
    for key in keys:
        victims += policy.access(prompt([key], 0)).victims
    return victims


def test_lru_evicts_what_was_not_asked_for_the_longest(form: Form) -> None:
    assert ask_one_by_one(form("lru", 3), 1, 2, 3, 1, 4, 5) == [2, 3]


def test_lru_evicts_a_prompts_tail_before_its_head(form: Form) -> None:
    policy = form("lru", 4)
    policy.access(prompt([1, 2, 3]))
    assert list(policy.access(prompt([8, 9])).victims) == [3]


def test_lru2_evicts_what_was_asked_for_once(form: Form) -> None:
    assert ask_one_by_one(form("lru2", 3), 1, 1, 2, 3, 4, 5) == [2, 3]


def test_lru2_evicts_the_oldest_last_access_but_one(form: Form) -> None:
    assert ask_one_by_one(form("lru2", 2), 1, 2, 2, 1, 3) == [1]


def test_lru2_remembers_an_access_before_the_eviction(form: Form) -> None:
    assert ask_one_by_one(form("lru2", 2), 1, 2, 3, 1, 4, 5) == [1, 2, 3, 4]


def test_lru2_forgets_that_access_when_the_block_is_removed(form: Form) -> None:
    policy = form("lru2", 2)
    ask_one_by_one(policy, 1, 2, 3)
    policy.remove([1])
    assert ask_one_by_one(policy, 1, 4, 5) == [2, 3, 1]


@pytest.mark.parametrize(("num_keys", "goes"), [(17, 100), (18, 1)])
def test_lru2_remembers_eight_times_its_capacity(form: Form, num_keys: int, goes: int) -> None:
    """Its return makes room first, and so another ghost: 16 beside it are one too many."""
    policy = form("lru2", 2)
    ask_one_by_one(policy, *range(1, num_keys + 1), 1, 100)
    assert ask_one_by_one(policy, 101) == [goes]


@pytest.mark.parametrize("name", ["arc", "s3fifo", "lru2", "hazard-logit", "duel"])
def test_scan_does_not_evict_what_was_asked_for_twice(form: Form, name: str) -> None:
    policy = form(name, 20)
    ask_one_by_one(policy, 1, 1, *range(100, 200))
    assert 1 in policy


@pytest.mark.parametrize("name", ["s3fifo", "lru2"])
def test_what_returns_soon_after_its_eviction_survives_the_next_scan(form: Form, name: str) -> None:
    policy = form(name, 20)
    ask_one_by_one(policy, 1, *range(100, 125))
    assert 1 not in policy
    ask_one_by_one(policy, 1, *range(200, 300))
    assert 1 in policy


def test_arc_gives_recent_blocks_room_when_their_ghosts_are_asked_for(form: Form) -> None:
    policy = form("arc", 4)
    # 1 and 2 become frequent, 3 and 4 recent; 3 leaves, comes back and becomes frequent.
    assert ask_one_by_one(policy, 1, 2, 1, 2, 3, 4, 5, 3) == [3, 4]
    # The target is one recent block, which 5 is: the oldest frequent one goes.
    assert ask_one_by_one(policy, 6) == [1]


def test_s3fifo_evicts_from_the_small_queue_what_nobody_asked_for_again(form: Form) -> None:
    policy = form("s3fifo", 10)
    assert ask_one_by_one(policy, *range(10), 0, 2, 20, 21) == [1, 3]


@pytest.mark.parametrize("name", ["hazard-logit", "duel"])
def test_partial_tail_goes_before_a_full_one(form: Form, name: str) -> None:
    policy = form(name, 8)
    policy.access(prompt([1, 2]))
    policy.access(replace(prompt([11, 12]), partial_tail=True))
    policy.access(prompt([21, 22]))
    assert list(policy.evict(1)) == [12]


@pytest.mark.parametrize("name", ["hazard-table", "hazard-logit", "duel"])
def test_block_that_costs_more_stays_longer_where_seconds_count(form: Form, name: str) -> None:
    policy = form(name, 8, by_seconds=True)
    for start, cost_s in ((10, 0.5), (20, 0.2), (30, 0.9)):
        policy.access(replace(prompt([start, start + 1]), first_cost_s=cost_s))
    assert list(policy.evict(4)) == [21, 20, 11, 10]


@pytest.mark.parametrize("name", ["hazard-table", "hazard-logit", "duel"])
def test_large_block_goes_before_small_ones_of_the_same_promise(form: Form, name: str) -> None:
    policy = form(name, 8)
    policy.access(prompt([1]))
    policy.access(prompt([2], block_size=3))
    policy.access(prompt([3]))
    assert list(policy.evict(1)) == [2]


def test_table_learns_who_comes_back(form: Form) -> None:
    policy = form("hazard-table", 40)
    for turn in range(60):
        policy.access(prompt([1, 2, 3], 3000 * turn))
        policy.access(prompt([100 + turn], 3000 * turn))
    policy.evict(37)
    assert [key for key in (1, 2, 3) if key in policy] == [1, 2, 3]
