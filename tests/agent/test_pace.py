"""Steps keep their distance, and slow steps a longer one."""

from kvext.agent.pace import Pace
from tests.agent.clock import FakeClock


def test_step_is_due_at_once_and_then_after_its_distance() -> None:
    clock = FakeClock()
    pace = Pace(clock, every_s=2)
    assert pace.is_due()
    pace.done()
    assert not pace.is_due()
    clock.advance(2)
    assert pace.is_due()


def test_step_that_takes_long_is_taken_less_often() -> None:
    clock = FakeClock()
    pace = Pace(clock, every_s=2)
    assert pace.is_due()
    clock.advance(1)
    pace.done()
    clock.advance(19)
    assert not pace.is_due()
    clock.advance(1)
    assert pace.is_due()
