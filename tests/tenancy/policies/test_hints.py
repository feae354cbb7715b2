"""What the application says of a session counts before anything is learnt."""

from dataclasses import replace

import pytest

from kvext.tenancy.policy import EvictionPolicy, Session
from tests.tenancy.policies.conftest import Form
from tests.tenancy.policies.traffic import prompt

FIRST, SECOND, THIRD = range(4), range(10, 14), range(20, 24)


@pytest.fixture(params=["hazard-logit", "duel"])
def policy(request: pytest.FixtureRequest, form: Form) -> EvictionPolicy:
    return form(request.param, 12)


def say(policy: EvictionPolicy, keys: range, session: Session, return_ms: int = -1) -> None:
    policy.access(replace(prompt(keys), session=session, return_ms=return_ms))


@pytest.mark.parametrize("closed", [FIRST, SECOND, THIRD])
def test_blocks_of_a_closed_session_go_first(policy: EvictionPolicy, closed: range) -> None:
    for keys in (FIRST, SECOND, THIRD):
        say(policy, keys, Session.CLOSED if keys is closed else Session.UNKNOWN)
    assert list(policy.evict(4)) == list(closed)[::-1]


@pytest.mark.parametrize("still_open", [FIRST, SECOND, THIRD])
def test_blocks_of_an_open_session_go_last(policy: EvictionPolicy, still_open: range) -> None:
    for keys in (FIRST, SECOND, THIRD):
        say(policy, keys, Session.OPEN if keys is still_open else Session.UNKNOWN)
    assert not set(policy.evict(8)) & set(still_open)


def test_who_is_expected_soon_stays_longer_than_who_is_expected_late(
    policy: EvictionPolicy,
) -> None:
    say(policy, FIRST, Session.OPEN, 600_000)
    say(policy, SECOND, Session.OPEN, 3_000)
    say(policy, THIRD, Session.OPEN, 600_000)
    assert not set(policy.evict(8)) & set(SECOND)


def test_the_closed_sessions_prefix_stays_while_others_use_it(policy: EvictionPolicy) -> None:
    say(policy, range(4), Session.CLOSED)
    policy.access(prompt([0, 1, 20, 21], 1))
    policy.access(prompt([0, 1, 30, 31], 2))
    assert list(policy.evict(2)) == [3, 2]


def test_hints_that_lie_are_found_out(form: Form) -> None:
    """Sessions that are said to be over and go on cost less as the model learns."""
    policy = form("hazard-logit", 48)
    hits = []
    for turn in range(240):
        keys = range(100 * (turn % 8), 100 * (turn % 8) + 4)
        now_ms = 4000 * turn
        admission = policy.access(replace(prompt(keys, now_ms), session=Session.CLOSED))
        policy.access(prompt(range(9000 + 10 * turn, 9004 + 10 * turn), now_ms))
        hits.append(admission.num_hits)
    assert sum(hits[-80:]) > sum(hits[:80])
    assert sum(hits[-80:]) > 0.9 * 4 * 80
