"""What counts as a call, and what a process holds: both decide who is taken for hung."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.pool import Pool, Reservation
from kvext.protocol.transfer import StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

_LEASE_S = 0.2
_WAIT_S = 30.0


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = tmp_path / "kvext-test.pool"
    create_region(path, 1 << 20, lambda new: Pool.initialise(new, _LEASE_S))
    return path


@pytest.fixture
def watcher(region: Path) -> Iterator[Pool]:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="watcher") as attached:
        yield attached


def fenced_within(watcher: Pool, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if watcher.reap().num_hung:
            return True
        time.sleep(_LEASE_S / 10)
    return False


def test_end_of_a_void_reservation_does_not_hide_the_pins_of_later(
    pool: Pool, watcher: Pool
) -> None:
    pool.store(key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [1])
    void = pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE)
    also_void = pool.reserve(key_of(3), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(void, Reservation)
    assert isinstance(also_void, Reservation)
    void.fill(b"x" * RECORD_BYTES)
    assert fenced_within(watcher, _WAIT_S)
    lease = pool.match(key_of(1), SHAPE)
    assert lease.num_blocks == 1
    assert void.commit() is StoreOutcome.FENCED
    assert not also_void.abort()
    assert fenced_within(watcher, _WAIT_S), "it holds a pin and does nothing"


@pytest.mark.parametrize("call", ["lookup", "record"])
def test_whoever_calls_is_not_silent(pool: Pool, watcher: Pool, call: str) -> None:
    pool.store(key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [1])
    lease = pool.match(key_of(1), SHAPE)
    deadline = time.monotonic() + 5 * _LEASE_S
    while time.monotonic() < deadline:
        if call == "lookup":
            pool.lookup(key_of(1), SHAPE)
        else:
            pool.record(lease.refs)
        assert watcher.reap().num_hung == 0
        time.sleep(_LEASE_S / 10)
