"""What one process sees of a pool."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.errors import PoolDetached
from kvext.pool import Pages, Pool, Reservation
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import (
    NAMESPACE,
    OTHER_SHAPE,
    RECORD_BYTES,
    SHAPE,
    EngineMemory,
    key_of,
)


def store(pool: Pool, memory: EngineMemory, numbers: list[int]) -> list[StoreOutcome]:
    """Store block i under key i, its bytes seeded with i."""
    outcomes = []
    for number in numbers:
        memory.write(number % memory.num_blocks, seed=number)
        outcome = pool.store(
            key_of(number), SHAPE, NAMESPACE, memory.pages, [number % memory.num_blocks]
        )
        outcomes.append(StoreOutcome(outcome[0]))
    return outcomes


def num_extents(pool: Pool) -> int:
    return pool.stat().num_extents


def test_stored_blocks_come_back_byte_for_byte(pool: Pool) -> None:
    memory = EngineMemory()
    assert store(pool, memory, [1, 2, 3]) == [StoreOutcome.STORED] * 3
    expected = [memory.read(block) for block in (1, 2, 3)]
    lease = pool.match(key_of(1) + key_of(2) + key_of(3), SHAPE)
    assert lease.num_blocks == 3
    assert set(pool.load(lease.refs, memory.pages, [10, 11, 12])) == {LoadOutcome.LOADED}
    assert [memory.read(block) for block in (10, 11, 12)] == expected


def test_match_ends_at_the_first_missing_block(pool: Pool) -> None:
    store(pool, EngineMemory(), [1, 2, 4])
    keys = b"".join(key_of(number) for number in (1, 2, 3, 4))
    assert pool.match(keys, SHAPE).num_blocks == 2
    assert list(pool.lookup(keys, SHAPE)) == [1, 1, 0, 1]


def test_a_second_writer_finds_the_block_there(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [7])
    assert store(pool, memory, [7]) == [StoreOutcome.EXISTS]
    assert pool.stat().num_committed == 1


def test_one_key_may_hold_records_of_several_shapes(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [7])
    assert pool.match(key_of(7), OTHER_SHAPE).num_blocks == 0
    outcome = pool.store(key_of(7), OTHER_SHAPE, NAMESPACE, memory.pages, [0])
    assert outcome[0] == StoreOutcome.STORED
    assert pool.match(key_of(7), OTHER_SHAPE).num_blocks == 1


def test_full_pool_evicts_what_nobody_used_before_what_was_used(pool: Pool) -> None:
    memory = EngineMemory()
    capacity = num_extents(pool)
    store(pool, memory, list(range(capacity)))
    pool.match(key_of(0), SHAPE).release()
    assert store(pool, memory, [capacity]) == [StoreOutcome.STORED]
    assert pool.lookup(key_of(0) + key_of(1) + key_of(capacity), SHAPE) == b"\1\0\1"


def test_pinned_blocks_survive_any_pressure(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0, 1])
    lease = pool.match(key_of(0) + key_of(1), SHAPE)
    store(pool, memory, list(range(10, 10 + 3 * num_extents(pool))))
    assert pool.lookup(key_of(0) + key_of(1), SHAPE) == b"\1\1"
    lease.release()
    store(pool, memory, list(range(1000, 1000 + 5 * num_extents(pool))))
    assert pool.lookup(key_of(0) + key_of(1), SHAPE) == b"\0\0"


def test_pool_full_of_pins_refuses_and_says_so(pool: Pool) -> None:
    memory = EngineMemory()
    capacity = num_extents(pool)
    store(pool, memory, list(range(capacity)))
    lease = pool.match(b"".join(map(key_of, range(capacity))), SHAPE)
    assert lease.num_blocks == capacity
    assert store(pool, memory, [capacity]) == [StoreOutcome.NO_SPACE]
    assert pool.stat().counters["rejected_no_space"] == 1


def test_lease_gives_back_the_tail_then_the_rest(pool: Pool) -> None:
    store(pool, EngineMemory(), [0, 1, 2])
    lease = pool.match(b"".join(map(key_of, range(3))), SHAPE)
    assert pool.stat().num_pinned == 3
    lease.keep(1)
    assert (lease.num_blocks, pool.stat().num_pinned) == (1, 1)
    lease.release()
    lease.release()
    assert pool.stat().num_pinned == 0


def test_two_leases_pin_twice(pool: Pool) -> None:
    store(pool, EngineMemory(), [0])
    first, second = pool.match(key_of(0), SHAPE), pool.match(key_of(0), SHAPE)
    first.release()
    assert pool.stat().num_pinned == 1
    second.release()
    assert pool.stat().num_pinned == 0


@pytest.mark.parametrize("byte", [0, RECORD_BYTES // 2, RECORD_BYTES - 1])
def test_corrupt_block_is_quarantined_and_can_be_stored_anew(pool: Pool, byte: int) -> None:
    memory = EngineMemory()
    store(pool, memory, [0])
    lease = pool.match(key_of(0), SHAPE)
    pool.record(lease.refs)[byte] ^= 1
    assert pool.load(lease.refs, memory.pages, [5])[0] == LoadOutcome.CORRUPT
    lease.release()
    assert pool.match(key_of(0), SHAPE).num_blocks == 0
    assert pool.stat().num_quarantined == 1
    assert pool.stat().counters["corrupt_loads"] == 1
    assert store(pool, memory, [0]) == [StoreOutcome.STORED]
    assert pool.clear().num_dropped == 2
    assert pool.stat().num_free == num_extents(pool)


def test_a_record_swapped_for_another_valid_one_does_not_verify(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0, 1])
    lease = pool.match(key_of(0) + key_of(1), SHAPE)
    first, second = pool.record(lease.refs[:16]), pool.record(lease.refs[16:])
    first[:], second[:] = bytes(second), bytes(first)
    assert set(pool.load(lease.refs, memory.pages, [5, 6])) == {LoadOutcome.CORRUPT}


def test_reference_to_an_evicted_block_is_stale(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0])
    lease = pool.match(key_of(0), SHAPE)
    refs = lease.refs
    lease.release()
    pool.clear()
    assert pool.load(refs, memory.pages, [5])[0] == LoadOutcome.STALE
    store(pool, memory, [0])
    assert pool.load(refs, memory.pages, [5])[0] == LoadOutcome.STALE


def test_nothing_is_visible_before_commit(pool: Pool) -> None:
    reservation = pool.reserve(key_of(0), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(reservation, Reservation)
    reservation.fill(os.urandom(RECORD_BYTES))
    assert pool.match(key_of(0), SHAPE).num_blocks == 0
    assert pool.reserve(key_of(0), SHAPE, RECORD_BYTES, NAMESPACE) is StoreOutcome.EXISTS
    assert reservation.commit() is StoreOutcome.STORED
    assert pool.match(key_of(0), SHAPE).num_blocks == 1


def test_aborted_reservation_gives_its_extent_back(pool: Pool) -> None:
    reservation = pool.reserve(key_of(0), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(reservation, Reservation)
    assert pool.stat().num_reserved == 1
    assert reservation.abort()
    assert not reservation.abort()
    assert pool.stat().num_free == num_extents(pool)
    reservation.fill(os.urandom(RECORD_BYTES))
    assert reservation.commit() is StoreOutcome.FENCED
    assert pool.match(key_of(0), SHAPE).num_blocks == 0


def test_record_larger_than_an_extent_is_refused(pool: Pool) -> None:
    large = EngineMemory(piece_bytes=7000)
    assert pool.store(key_of(0), SHAPE, NAMESPACE, large.pages, [0])[0] == StoreOutcome.TOO_LARGE
    assert pool.reserve(key_of(0), SHAPE, 21000, NAMESPACE) is StoreOutcome.TOO_LARGE


def test_record_of_another_length_is_not_loaded(pool: Pool) -> None:
    store(pool, EngineMemory(), [0])
    smaller = EngineMemory(piece_bytes=4000)
    lease = pool.match(key_of(0), SHAPE)
    assert pool.load(lease.refs, smaller.pages, [0])[0] == LoadOutcome.STALE


@pytest.mark.parametrize("block", [16, 2**63])
def test_block_outside_the_engines_memory_is_refused(pool: Pool, block: int) -> None:
    with pytest.raises(ValueError, match="outside the engine's 16 blocks"):
        pool.store(key_of(0), SHAPE, NAMESPACE, EngineMemory().pages, [block])


@pytest.mark.parametrize("refs", [b"\xff" * 16, os.urandom(16)])
def test_invented_references_load_nothing(pool: Pool, refs: bytes) -> None:
    assert pool.load(refs, EngineMemory().pages, [0])[0] == LoadOutcome.STALE


def test_batches_of_uneven_lengths_are_refused(pool: Pool) -> None:
    with pytest.raises(ValueError, match="1 block ids for 2 blocks"):
        pool.store(key_of(0) + key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [0])
    with pytest.raises(ValueError, match="no multiple of 32"):
        pool.match(key_of(0)[:31], SHAPE)


def test_pages_need_a_size_for_each_layer() -> None:
    with pytest.raises(ValueError, match="one address and one piece size a layer"):
        Pages([1, 2], [10], 1)


def test_closed_pool_says_so(pool: Pool) -> None:
    lease = pool.match(key_of(0), SHAPE)
    pool.close()
    pool.close()
    lease.release()
    with pytest.raises(PoolDetached):
        pool.match(key_of(0), SHAPE)


def test_namespaces_are_named_and_counted(pool: Pool) -> None:
    pool.name_namespace(NAMESPACE, "tiny")
    memory = EngineMemory()
    store(pool, memory, [0, 1])
    pool.store(key_of(2), SHAPE, b"o" * 32, memory.pages, [0])
    uses = {use.digest: use for use in pool.namespaces()}
    assert (uses[NAMESPACE.hex()].label, uses[NAMESPACE.hex()].num_blocks) == ("tiny", 2)
    assert pool.clear(b"o" * 32).num_dropped == 1
    assert pool.stat().num_committed == 2


def test_more_namespaces_than_the_table_holds_still_store(pool: Pool) -> None:
    memory = EngineMemory()
    for number in range(300):
        namespace = number.to_bytes(32, "little")
        assert pool.store(key_of(number), SHAPE, namespace, memory.pages, [0])[0] == 0
    assert pool.stat().num_committed == num_extents(pool)


def test_batch_longer_than_one_hold_of_the_lock_keeps_blocks_apart(pool: Pool) -> None:
    memory = EngineMemory(50)
    for block in range(50):
        memory.write(block, seed=block)
    keys = b"".join(map(key_of, range(50)))
    pool.store(keys, SHAPE, NAMESPACE, memory.pages, range(50))
    out = EngineMemory(50)
    lease = pool.match(keys, SHAPE)
    pool.load(lease.refs, out.pages, range(50))
    assert [out.read(block) for block in range(50)] == [memory.read(block) for block in range(50)]


@pytest.mark.parametrize("verify", [True, False])
def test_records_of_many_checksum_chunks_come_back(tmp_path: Path, verify: bool) -> None:  # noqa: FBT001
    path = tmp_path / "kvext-large.pool"
    create_region(path, 4 << 20, Pool.initialise)
    memory = EngineMemory(3, piece_bytes=70_001)
    memory.write(0, seed=1)
    with Pool.attach(path, extent_bytes=memory.pages.record_bytes) as pool:
        pool.store(key_of(0), SHAPE, NAMESPACE, memory.pages, [0])
        lease = pool.match(key_of(0), SHAPE)
        assert pool.load(lease.refs, memory.pages, [2], verify=verify)[0] == LoadOutcome.LOADED
        assert memory.read(2) == memory.read(0)
        for at in (0, 32_768, 65_536, memory.pages.record_bytes - 1):
            pool.record(lease.refs)[at] ^= 1
            outcome = pool.load(lease.refs, memory.pages, [2], verify=verify)[0]
            assert outcome == (LoadOutcome.CORRUPT if verify else LoadOutcome.LOADED)
            if verify:
                break


def test_late_writer_does_not_touch_the_extents_next_owner(pool: Pool) -> None:
    memory = EngineMemory()
    late = pool.reserve(key_of(0), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(late, Reservation)
    late.fill(bytes(RECORD_BYTES))
    late.abort()
    store(pool, memory, [1])
    late.fill(b"x" * RECORD_BYTES)
    assert late.commit() is StoreOutcome.FENCED
    lease = pool.match(key_of(1), SHAPE)
    assert pool.load(lease.refs, memory.pages, [5])[0] == LoadOutcome.LOADED
    assert memory.read(5) == memory.read(1)


def test_reservation_is_filled_with_exactly_what_was_reserved(pool: Pool) -> None:
    reservation = pool.reserve(key_of(0), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(reservation, Reservation)
    with pytest.raises(ValueError, match="15000 were reserved"):
        reservation.fill(bytes(RECORD_BYTES - 1))
    assert reservation.commit() is StoreOutcome.FENCED


def test_forgotten_lease_is_given_back_when_it_is_collected(pool: Pool) -> None:
    store(pool, EngineMemory(), [0])
    lease = pool.match(key_of(0), SHAPE)
    assert pool.stat().num_pinned == 1
    del lease
    gc.collect()
    assert pool.stat().num_pinned == 0


def test_quarantined_block_in_use_is_kept(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0])
    lease = pool.match(key_of(0), SHAPE)
    pool.record(lease.refs)[7] ^= 1
    pool.load(lease.refs, memory.pages, [5])
    assert (pool.clear().num_kept, pool.stat().num_quarantined) == (1, 1)
    lease.release()
    assert pool.clear().num_dropped == 1


def test_reference_with_another_extent_is_stale(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0, 1])
    lease = pool.match(key_of(0) + key_of(1), SHAPE)
    forged = lease.refs[:4] + lease.refs[20:24] + lease.refs[8:16]
    assert pool.load(forged, memory.pages, [5])[0] == LoadOutcome.STALE
    with pytest.raises(ValueError, match="names no record"):
        pool.record(forged)


def test_many_threads_may_use_one_handle(pool: Pool) -> None:
    def work(seed: int) -> None:
        memory, out = EngineMemory(1), EngineMemory(1)
        for step in range(200):
            number = (seed * 31 + step) % 90
            memory.write(0, seed=number)
            pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [0])
            lease = pool.match(key_of(number), SHAPE)
            if lease.num_blocks:
                assert pool.load(lease.refs, out.pages, [0])[0] == LoadOutcome.LOADED
                assert out.read(0) == memory.read(0)
            lease.release()
            if step % 50 == 0:
                pool.clear()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    stat = pool.stat()
    assert (stat.num_pinned, stat.num_reserved, stat.num_quarantined) == (0, 0, 0)
    assert stat.num_free + stat.num_committed == stat.num_extents


def test_namespace_entries_in_use_are_never_given_to_others(pool: Pool) -> None:
    memory = EngineMemory()
    store(pool, memory, [0])
    lease = pool.match(key_of(0), SHAPE)
    for number in range(1, 600):
        namespace = number.to_bytes(32, "little")
        pool.store(key_of(number), SHAPE, namespace, memory.pages, [0])
    held = {use.digest: use.num_blocks for use in pool.namespaces()}
    assert held[NAMESPACE.hex()] == 1
    assert held[(599).to_bytes(32, "little").hex()] == 1
    assert sum(held.values()) == pool.stat().num_committed
    lease.release()


def test_heartbeat_follows_use(pool: Pool) -> None:
    pool.match(key_of(0), SHAPE).release()
    assert 0 <= pool.stat().processes[0].heartbeat_age_ms < 60_000


def test_observer_looks_but_does_not_enter(pool: Pool, region: Path) -> None:
    store(pool, EngineMemory(), [0])
    with Pool.attach(region) as observer:
        assert observer.stat().num_committed == 1
        assert [process.label for process in observer.stat().processes] == ["test"]


def test_observer_of_an_unused_region_sees_an_empty_pool(region: Path) -> None:
    with Pool.attach(region) as observer:
        assert (observer.stat().num_extents, observer.namespaces()) == (0, [])
        assert observer.clear().num_dropped == 0


@pytest.mark.parametrize("num_missing", [0, 1, 60, 61, 200])
def test_long_and_short_matches_find_the_same(pool: Pool, num_missing: int) -> None:
    memory = EngineMemory()
    store(pool, memory, [1, 2, 3])
    keys = [*map(key_of, [1, 2, 3]), *(key_of(1000 + number) for number in range(num_missing))]
    lease = pool.match(b"".join(keys), SHAPE)
    assert lease.num_blocks == 3
    assert set(pool.load(lease.refs, memory.pages, [4, 5, 6])) == {LoadOutcome.LOADED}
    assert pool.stat().num_pinned == 3
    lease.release()
    assert pool.stat().num_pinned == 0


def test_release_of_a_miss_changes_no_other_lease(pool: Pool) -> None:
    store(pool, EngineMemory(), [1])
    held = pool.match(key_of(1), SHAPE)
    misses = [pool.match(key_of(2), SHAPE) for _ in range(3)]
    for miss in misses:
        miss.release()
        assert (miss.num_blocks, miss.refs) == (0, b"")
    assert held.num_blocks == 1
    assert pool.stat().num_pinned == 1


def test_store_into_a_pool_whose_records_are_all_pinned_looks_for_room_once(tmp_path: Path) -> None:
    path = tmp_path / "kvext-large.pool"
    create_region(path, 64 << 20, Pool.initialise)
    memory = EngineMemory(num_layers=1, piece_bytes=4096)
    with Pool.attach(path, extent_bytes=4096) as pool:
        numbers = range(pool.num_extents)
        pool.store(
            b"".join(map(key_of, numbers)), SHAPE, NAMESPACE, memory.pages, [0] * len(numbers)
        )
        leases = [pool.match(key_of(number), SHAPE) for number in numbers]
        assert all(lease.num_blocks for lease in leases)

        def fastest_s(num_blocks: int) -> float:
            def once(first: int) -> float:
                keys = b"".join(key_of(first + number) for number in range(num_blocks))
                start = time.perf_counter()
                outcomes = pool.store(keys, SHAPE, NAMESPACE, memory.pages, [0] * num_blocks)
                spent_s = time.perf_counter() - start
                assert set(outcomes) == {StoreOutcome.NO_SPACE}
                return spent_s

            return min(once(1_000_000 + 1000 * round_) for round_ in range(5))

        assert fastest_s(256) < 8 * fastest_s(1)
