"""An agent that `kvext serve` started is there as long as there are engines, and then is not."""

import subprocess
import sys

from kvext.agent.companion import LINGER_S, Companion, EngineProcess


def test_it_stays_while_its_engine_loads_and_while_any_engine_is_attached() -> None:
    companion = Companion(needed_at_s=0)
    assert not companion.is_over(1e4, engine_lives=True, num_engines=0)
    assert not companion.is_over(2e4, engine_lives=False, num_engines=1)
    assert not companion.is_over(2e4 + LINGER_S - 1, engine_lives=False, num_engines=0)
    assert companion.is_over(2e4 + LINGER_S, engine_lives=False, num_engines=0)


def test_an_engine_that_comes_back_in_time_keeps_it() -> None:
    companion = Companion(needed_at_s=0)
    assert not companion.is_over(LINGER_S - 1, engine_lives=False, num_engines=2)
    assert not companion.is_over(LINGER_S + 1, engine_lives=False, num_engines=0)


def test_the_end_of_a_process_is_seen() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    engine = EngineProcess(process.pid)
    assert engine.is_alive()
    process.communicate(b"\n", timeout=30)
    assert not engine.is_alive()
    engine.close()
    assert not engine.is_alive()


def test_a_process_that_never_was_is_not_alive() -> None:
    assert not EngineProcess(2**22 + 1).is_alive()
