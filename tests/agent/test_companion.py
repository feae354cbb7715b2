"""An agent that `kvext serve` started is there as long as there are engines, and then is not."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvext.agent.companion import LINGER_S, Companion, EngineProcess

_NOBODY = 2**22 + 1  # the kernel gives no such number


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def _why(
    companion: Companion,
    now_s: float,
    *,
    num_engines: int = 0,
    has_pool: bool = True,
    is_spare: bool = False,
) -> str:
    return companion.why_over(now_s, num_engines=num_engines, has_pool=has_pool, is_spare=is_spare)


def test_it_stays_while_its_engine_loads_and_has_no_pool_yet(
    engine: subprocess.Popen[bytes],
) -> None:
    companion = Companion(EngineProcess(engine.pid), 0)
    assert not _why(companion, 1e4, has_pool=False)


def test_it_stays_with_other_engines_and_a_while_longer() -> None:
    companion = Companion(EngineProcess(_NOBODY), 0)
    assert not _why(companion, 1e4, num_engines=1)
    assert not _why(companion, 1e4 + LINGER_S - 1)
    assert not _why(companion, 1e4 + LINGER_S, num_engines=2)
    assert not _why(companion, 1e4 + 2 * LINGER_S - 1)
    assert _why(companion, 1e4 + 2 * LINGER_S) == "no engine is left"


def test_it_ends_at_once_without_engine_and_pool_or_beside_another_agent(
    engine: subprocess.Popen[bytes],
) -> None:
    assert "neither" in _why(Companion(EngineProcess(_NOBODY), 0), 0, has_pool=False)
    assert "another" in _why(Companion(EngineProcess(engine.pid), 0), 0, is_spare=True)


def test_the_end_of_a_process_is_seen() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    engine = EngineProcess(process.pid)
    assert engine.is_alive()
    process.communicate(b"\n", timeout=30)
    assert not engine.is_alive()
    engine.close()
    assert not engine.is_alive()


def test_a_process_that_never_was_is_not_alive() -> None:
    assert not EngineProcess(_NOBODY).is_alive()
