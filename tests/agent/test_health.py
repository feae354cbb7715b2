"""What fails is counted and told until it works again, and ends nothing."""

import pytest

from kvext.agent.health import Health
from tests.agent.clock import FakeClock


def _fail() -> None:
    raise OSError("no such thing")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock: FakeClock) -> Health:
    return Health(clock, longest_turn_s=30)


def test_step_that_raises_is_told_with_its_error_until_it_works(
    health: Health, clock: FakeClock
) -> None:
    assert health.attempt("look", lambda: 7) == (7, True)
    assert health.reasons() == []
    assert health.attempt("look", _fail) == (None, False)
    clock.advance(2)
    assert health.attempt("look", _fail) == (None, False)
    (reason,) = health.reasons()
    assert (reason.step, reason.error, reason.for_s) == ("look", "OSError: no such thing", 2)
    health.attempt("reap", lambda: None)
    assert len(health.reasons()) == 1
    health.attempt("look", lambda: None)
    assert health.reasons() == []
    assert health.failures() == {"look": 2}


def test_loop_that_does_not_come_round_is_unhealthy(health: Health, clock: FakeClock) -> None:
    clock.advance(31)
    assert [reason.step for reason in health.reasons()] == ["loop"]
    health.turned()
    assert health.reasons() == []


def test_failure_is_logged_once_and_not_each_time(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        health.attempt("look", _fail)
    assert len(caplog.records) == 1
