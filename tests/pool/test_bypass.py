"""A pool that is switched off: every handle obeys at once and counts what it refuses."""

from pathlib import Path

from kvext.pool import Pool, Reservation
from kvext.protocol.transfer import StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of


def test_refusals_are_counted_apart_from_misses_and_other_rejections(pool: Pool) -> None:
    memory = EngineMemory()
    pool.set_bypass(True)
    pool.store(key_of(1) + key_of(2), SHAPE, NAMESPACE, memory.pages, [1, 2])
    assert pool.match(key_of(1) + key_of(2) + key_of(3), SHAPE).num_blocks == 0
    counters = pool.stat().counters
    assert (counters["rejected_bypassed"], counters["bypassed_lookups"]) == (2, 3)
    assert sum(counters.values()) == 5


def test_reservation_is_refused_but_one_made_before_can_be_committed(pool: Pool) -> None:
    made = pool.reserve(key_of(1), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(made, Reservation)
    made.fill(b"x" * RECORD_BYTES)
    pool.set_bypass(True)
    assert pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE) is StoreOutcome.BYPASSED
    assert made.commit() is StoreOutcome.STORED


def test_observer_switches_engines_off_and_a_later_engine_finds_it_so(
    pool: Pool, region: Path
) -> None:
    with Pool.attach(region) as observer:
        observer.set_bypass(True)
    assert pool.bypassed
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as later:
        assert later.bypassed
        later.set_bypass(False)
    assert not pool.bypassed


def test_closed_pool_is_not_bypassed(pool: Pool) -> None:
    pool.set_bypass(True)
    pool.close()
    assert not pool.bypassed
