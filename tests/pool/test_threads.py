"""Threads of one handle: nobody waits for another one's look, and closing gets its turn."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.errors import PoolDetached, PoolLockTimeout
from kvext.pool import Pool
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

_WAIT_S = 30.0
_HELD_S = 3.0
_OTHER = """
import signal, sys
from pathlib import Path
from kvext.pool import Pool, _core
from tests.pool.engine_memory import RECORD_BYTES
other = Pool.attach(Path(sys.argv[1]), extent_bytes=RECORD_BYTES, label="other")
_core.arm_step("lock.marked", 1, int(sys.argv[2]))
other.reap()
"""


def run_into_the_lock(region: Path, number: signal.Signals) -> "subprocess.Popen[bytes]":
    """Start a process that gets that signal while it holds the allocation lock."""
    return subprocess.Popen([sys.executable, "-c", _OTHER, str(region), str(int(number))])


@contextmanager
def held_lock(region: Path) -> Iterator[None]:
    """Another process has stopped inside the allocation lock."""
    other = run_into_the_lock(region, signal.SIGSTOP)
    try:
        _, status = os.waitpid(other.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield
    finally:
        other.kill()
        other.wait(_WAIT_S)


@pytest.mark.parametrize(
    "look",
    [
        lambda pool: pool.namespaces(),
        lambda pool: pool.fence(b"m" * 32),
        lambda pool: pool.quarantine_namespace(b"q" * 32),
        lambda pool: pool.fsck(),
        lambda pool: pool.clear(),
    ],
    ids=["namespaces", "fence", "quarantine", "fsck", "clear"],
)
def test_match_does_not_wait_for_another_thread_that_waits_for_the_lock(
    region: Path, look: Callable[[Pool], object]
) -> None:
    with (
        Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=_HELD_S) as pool,
        ThreadPoolExecutor(1) as thread,
    ):
        pool.store(key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [1])
        with held_lock(region):
            looking = thread.submit(look, pool)
            slowest_s = 0.0
            while not looking.done():
                start = time.monotonic()
                pool.match(key_of(1), SHAPE).release()
                slowest_s = max(slowest_s, time.monotonic() - start)
            with pytest.raises(PoolLockTimeout):
                looking.result()
        assert slowest_s < _HELD_S / 2


_CLOSES = """
import sys, time
from pathlib import Path
from kvext.pool import Pool
from tests.pool.engine_memory import RECORD_BYTES
from tests.pool.test_threads import run_into_the_lock, signal
region = Path(sys.argv[1])
first = Pool.attach(region, extent_bytes=RECORD_BYTES, label="first")
second = Pool.attach(region, extent_bytes=RECORD_BYTES, label="second")
run_into_the_lock(region, signal.SIGKILL).wait(30)
first.close()
print([process.label for process in second.stat().processes])
"""


def test_who_closes_may_be_the_one_who_repairs_what_a_death_in_the_lock_left(region: Path) -> None:
    # Freed memory is overwritten, so that a use of it shows.
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    command = [sys.executable, "-c", _CLOSES, str(region)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_WAIT_S, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "['second']"), done.stderr
    with Pool.attach(region) as observer:
        assert observer.stat().counters["recoveries"] == 1
        assert observer.fsck().is_clean


def test_whoever_evicts_much_lets_others_have_the_lock_in_between(tmp_path: Path) -> None:
    path = tmp_path / "kvext-large.pool"
    create_region(path, 192 << 20, Pool.initialise)
    memory = EngineMemory(num_layers=1, piece_bytes=4096)
    with (
        Pool.attach(path, extent_bytes=4096) as evictor,
        Pool.attach(path, extent_bytes=4096) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        keys = b"".join(key_of(number) for number in range(evictor.num_extents))
        evictor.store(keys, SHAPE, NAMESPACE, memory.pages, [0] * evictor.num_extents)
        evicting = thread.submit(evictor.evict, evictor.records().refs)
        num_turns = 0
        while not evicting.done():
            other.name_namespace(NAMESPACE, "turn")  # takes the lock
            num_turns += 1
        assert evicting.result() == len(keys) // 32
    assert num_turns > 10, "the lock was never free for another"


def test_figures_of_a_handle_that_another_thread_closes_are_there_or_zero(region: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        for _ in range(300):
            pool = Pool.attach(region, extent_bytes=RECORD_BYTES)
            num_extents, extent_bytes = pool.num_extents, pool.extent_bytes
            closing = thread.submit(pool.close)
            while not closing.done():
                assert pool.num_free in (0, num_extents)
                assert pool.extent_bytes in (0, extent_bytes)
                assert pool.num_limbo == 0
            closing.result()
            assert (pool.num_extents, pool.num_free, pool.now_tenths) == (0, 0, 0)


def test_name_of_a_closed_pool_is_refused_like_every_call(pool: Pool) -> None:
    pool.close()
    with pytest.raises(PoolDetached):
        pool.uuid  # noqa: B018
