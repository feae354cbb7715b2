"""A process that stops is fenced after the lease; what it does later changes nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.pool import Pool, ReapReport, Reservation
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

LEASE_S = 0.3
PATIENT_LEASE_S = 2.0
"""Long enough that a busy machine lets everybody show in time that it runs."""
_WAIT_S = 30.0

# Says what it has done, waits for a line, goes on.
_OTHER = """
import signal, sys
from pathlib import Path
from kvext.pool import Pool, _core
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

def say(*words):
    print(*words, flush=True)
    sys.stdin.readline()

pool = Pool.attach(Path(sys.argv[1]), extent_bytes=RECORD_BYTES, label="other")
memory = EngineMemory()
memory.write(1, seed=1)
"""


class Other:
    """Another process that runs `script` step by step."""

    def __init__(self, region: Path, script: str) -> None:
        command = [sys.executable, "-c", _OTHER + script, str(region)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hears(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(_WAIT_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = tmp_path / "kvext-test.pool"
    create_region(path, 1 << 20, lambda new: Pool.initialise(new, LEASE_S))
    return path


@pytest.fixture
def other(region: Path) -> Iterator[Callable[[str], Other]]:
    started: list[Other] = []

    def start(script: str) -> Other:
        started.append(Other(region, script))
        return started[-1]

    yield start
    for one in started:
        one.end()


def reap_until_hung(pool: Pool) -> ReapReport:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        report = pool.reap()
        if report.num_hung:
            return report
        time.sleep(LEASE_S / 10)
    raise AssertionError("nobody was fenced")


def test_stopped_process_loses_its_pins_and_its_reservation_stays_in_limbo(
    pool: Pool, other: Callable[[str], Other]
) -> None:
    stopped = other("""
pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])
lease = pool.match(key_of(1), SHAPE)
reservation = pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE)
say("ready")
reservation.fill(b"x" * RECORD_BYTES)
say(reservation.commit().name)
lease.release()
lease = pool.match(key_of(1), SHAPE)
say(lease.num_blocks, pool.num_limbo)
""")
    assert stopped.hears() == ["ready"]
    assert pool.reap() == ReapReport(0, 0, 0)
    stopped.send(signal.SIGSTOP)
    reap_until_hung(pool)
    assert (pool.stat().num_pinned, pool.num_limbo) == (0, 1)
    assert pool.stat().counters["fenced_processes"] == 1
    # Its key is free for others, its extent is not.
    assert isinstance(pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE), Reservation)
    assert pool.reap().num_freed == 0
    assert pool.fsck().is_clean
    stopped.send(signal.SIGCONT)
    stopped.go_on()
    assert stopped.hears() == [StoreOutcome.FENCED.name]
    stopped.go_on()
    assert stopped.hears() == ["1", "0"], "it is back, and what it may have written is free"
    assert pool.stat().num_pinned == 1
    assert pool.fsck().is_clean


def test_writer_that_wakes_in_the_middle_of_a_store_changes_no_other_record(
    pool: Pool, other: Callable[[str], Other]
) -> None:
    writer = other("""
_core.arm_step("store.copied", 1, signal.SIGSTOP)
print("ready", flush=True)
say(pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])[0])
""")
    assert writer.hears() == ["ready"]
    writer.wait_until_stopped()
    reap_until_hung(pool)
    assert pool.num_limbo == 1
    memory, read = EngineMemory(), EngineMemory()
    numbers = list(range(pool.num_free))
    for number in numbers:
        memory.write(0, seed=number + 50)
        assert (
            pool.store(key_of(number + 50), SHAPE, NAMESPACE, memory.pages, [0])[0]
            == StoreOutcome.STORED
        )
    assert pool.stat().counters["evictions"] == 0
    writer.send(signal.SIGCONT)
    assert writer.hears() == [str(int(StoreOutcome.FENCED))]
    for number in numbers:
        lease = pool.match(key_of(number + 50), SHAPE)
        assert set(pool.load(lease.refs, read.pages, [0])) == {LoadOutcome.LOADED}
        memory.write(0, seed=number + 50)
        assert read.read(0) == memory.read(0)
    writer.go_on()
    assert writer.process.wait(_WAIT_S) == 0
    assert (pool.reap().num_freed, pool.num_limbo) == (0, 0)
    assert pool.fsck(verify_data=True).is_clean


def test_limbo_of_a_process_that_dies_is_free(pool: Pool, other: Callable[[str], Other]) -> None:
    stopped = other('pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE); say("ready")')
    assert stopped.hears() == ["ready"]
    stopped.send(signal.SIGSTOP)
    reap_until_hung(pool)
    assert (pool.num_limbo, pool.num_free) == (1, pool.num_extents - 1)
    stopped.end()
    assert pool.reap().num_freed == 1
    assert (pool.num_limbo, pool.num_free) == (0, pool.num_extents)


def test_process_that_does_nothing_with_what_it_holds_is_fenced_but_an_idle_one_is_not(
    tmp_path: Path,
) -> None:
    region = tmp_path / "kvext-patient.pool"
    create_region(region, 1 << 20, lambda new: Pool.initialise(new, PATIENT_LEASE_S))
    idle = Other(region, 'say("ready")')
    holder = Other(
        region,
        """
pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])
lease = pool.match(key_of(1), SHAPE)
say("ready")
""",
    )
    try:
        assert (idle.hears(), holder.hears()) == (["ready"], ["ready"])
        with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
            assert (pool.stat().num_pinned, len(pool.stat().processes)) == (1, 3)
            assert reap_until_hung(pool).num_hung == 1
            assert (pool.stat().num_pinned, len(pool.stat().processes)) == (0, 2)
    finally:
        idle.end()
        holder.end()


def test_holder_of_the_lock_that_stops_costs_others_one_wait(
    region: Path, other: Callable[[str], Other]
) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=0.05) as pool:
        memory = EngineMemory()
        pool.store(key_of(7), SHAPE, NAMESPACE, memory.pages, [7])
        holder = other("""
_core.arm_step("lock.marked", 1, signal.SIGSTOP)
print("ready", flush=True)
say(pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])[0])
""")
        assert holder.hears() == ["ready"]
        holder.wait_until_stopped()
        waits = []
        for number in range(10, 30):
            begun = time.monotonic()
            outcome = pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [0])
            waits.append(time.monotonic() - begun)
            assert outcome[0] == StoreOutcome.LOCK_TIMEOUT
        assert sum(wait >= 0.05 for wait in waits) < 10, "only the first of them waits that long"
        assert pool.match(key_of(7), SHAPE).num_blocks == 1, "who reads needs no lock"
        holder.send(signal.SIGCONT)
        assert holder.hears() == [str(int(StoreOutcome.STORED))]
        assert pool.store(key_of(99), SHAPE, NAMESPACE, memory.pages, [0])[0] == StoreOutcome.STORED


def test_reservation_given_up_while_the_lock_is_stuck_is_paid_back_later(
    region: Path, other: Callable[[str], Other]
) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=0.05) as pool:
        reservation = pool.reserve(key_of(7), SHAPE, RECORD_BYTES, NAMESPACE)
        assert isinstance(reservation, Reservation)
        holder = other("""
_core.arm_step("lock.marked", 1, signal.SIGSTOP)
print("ready", flush=True)
say(pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])[0])
""")
        assert holder.hears() == ["ready"]
        holder.wait_until_stopped()
        assert reservation.abort()
        assert pool.stat().num_reserved == 1
        holder.send(signal.SIGCONT)
        assert holder.hears() == [str(int(StoreOutcome.STORED))]
        pool.reap()
        assert (pool.stat().num_reserved, pool.num_free) == (0, pool.num_extents - 1)
        assert not reservation.abort()


def test_role_of_the_agent_passes_on_from_the_dead_and_the_hung(
    pool: Pool, other: Callable[[str], Other]
) -> None:
    agent = other('print(pool.claim_agent_role(), flush=True); say("ready")')
    assert agent.hears() == ["True"]
    assert not pool.claim_agent_role()
    assert pool.stat().agent_label == "other"
    agent.send(signal.SIGSTOP)
    reap_until_hung(pool)
    assert pool.claim_agent_role()
    assert pool.holds_agent_role
    pool.release_agent_role()
    assert not pool.holds_agent_role
