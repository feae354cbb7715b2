"""A load whose layers come in one after another, as one process sees it."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kvext.cxl import create_region
from kvext.pool import Lease, Pages, Pool, roam
from kvext.protocol.transfer import LoadOutcome
from tests.pool.engine_memory import NAMESPACE, SHAPE, key_of

WAIT_S = 30.0
NUM_BLOCKS = 8
TINY, LARGE = 1, 100_000
"""Bytes of a first and a second layer: at a pace of one byte in a hundredth of a second, the
second one is not there before everybody has gone home."""
SLOW_BYTES_A_S = 100.0


class Memory:
    """Blocks 0 to 3 hold something; 4 to 7 are where it shall be loaded to."""

    def __init__(self, piece_bytes: Sequence[int]) -> None:
        random = np.random.default_rng(1)
        self.layers = [
            random.integers(0, 256, (NUM_BLOCKS, size), dtype=np.uint8) for size in piece_bytes
        ]
        self.pages = Pages(
            [layer.ctypes.data for layer in self.layers], list(piece_bytes), NUM_BLOCKS
        )

    def is_loaded(self, layer: int) -> bool:
        return bool((self.layers[layer][4:] == self.layers[layer][:4]).all())


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    path = tmp_path / "kvext-layered.pool"
    create_region(path, 4 << 20, Pool.initialise)
    with Pool.attach(path, extent_bytes=400_000, label="layered") as attached:
        yield attached


def stored(pool: Pool, memory: Memory) -> Lease:
    keys = b"".join(map(key_of, range(4)))
    pool.store(keys, SHAPE, NAMESPACE, memory.pages, range(4))
    lease = pool.match(keys, SHAPE)
    assert lease.num_blocks == 4
    return lease


@pytest.mark.parametrize(
    "piece_bytes",
    [
        [1],
        [32 << 10],
        [64 << 10, 64 << 10],
        [5000, 5000, 5000],
        [40_000, 7, 70_000, 1, 32_760, 1],
        [32 << 10, 1, (32 << 10) - 1],
    ],
)
def test_checksums_of_records_hold_wherever_their_pieces_end(
    pool: Pool, piece_bytes: list[int]
) -> None:
    memory = Memory(piece_bytes)
    lease = stored(pool, memory)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert load.finish(WAIT_S)
    assert load.outcomes == bytes([LoadOutcome.LOADED] * 4)
    assert all(memory.is_loaded(layer) for layer in range(len(piece_bytes)))


def test_a_layer_can_be_used_while_the_next_one_is_not_there(pool: Pool) -> None:
    memory = Memory([TINY, LARGE])
    lease = stored(pool, memory)
    pool.pace_loads(SLOW_BYTES_A_S)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert load.wait(1, WAIT_S)
    assert memory.is_loaded(0)
    assert not load.wait(2, 0.0)
    load.cancel()


def test_a_wait_ends_at_its_deadline(pool: Pool) -> None:
    memory = Memory([LARGE])
    lease = stored(pool, memory)
    pool.pace_loads(SLOW_BYTES_A_S)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert not load.wait(1, 0.01)
    assert not load.finish(0.01)
    load.cancel()


def test_a_cancelled_load_ends_at_once_and_says_nothing_of_its_blocks(pool: Pool) -> None:
    memory = Memory([TINY, LARGE])
    lease = stored(pool, memory)
    pool.pace_loads(SLOW_BYTES_A_S)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    load.cancel()
    assert load.finish(0.0)
    assert load.outcomes == b""
    assert not load.wait(2, 0.0)


def test_a_load_that_nobody_wants_any_more_ends_by_itself(pool: Pool) -> None:
    memory = Memory([TINY, LARGE])
    lease = stored(pool, memory)
    pool.pace_loads(SLOW_BYTES_A_S)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    del load  # as an engine that ends would; this returns
    pool.pace_loads(0.0)
    again = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert again.wait(2, WAIT_S)


def test_a_flipped_bit_in_the_last_layer_is_found_at_the_end(pool: Pool) -> None:
    memory = Memory([5000, 5000, 5000])
    lease = stored(pool, memory)
    pool.record(lease.refs[16:32])[14_000] ^= 1
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert load.wait(2, WAIT_S)
    assert load.finish(WAIT_S)
    assert list(load.outcomes) == [
        LoadOutcome.LOADED,
        LoadOutcome.CORRUPT,
        LoadOutcome.LOADED,
        LoadOutcome.LOADED,
    ]
    stat = pool.stat()
    assert (stat.num_quarantined, stat.counters["loads"]) == (1, 3)


def test_closing_the_pool_waits_for_the_copy_and_later_loads_have_no_outcomes(
    pool: Pool,
) -> None:
    memory = Memory([5000, 5000, 5000])
    refs = stored(pool, memory).refs
    load = pool.begin_load(refs, memory.pages, [4, 5, 6, 7])
    pool.close()
    assert load.finish(WAIT_S)
    late = pool.begin_load(refs, memory.pages, [4, 5, 6, 7])
    assert late.finish(WAIT_S)
    assert late.outcomes == b""
    assert not late.wait(1, WAIT_S), "it will never be in place, and the wait need not be"


def test_blocks_outside_the_memory_are_refused(pool: Pool) -> None:
    memory = Memory([5000])
    lease = stored(pool, memory)
    with pytest.raises(ValueError, match="block id 8 is outside"):
        pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 8])


def test_a_paced_load_takes_as_long_as_the_modelled_memory(pool: Pool) -> None:
    memory = Memory([10_000])
    lease = stored(pool, memory)
    pool.pace_loads(bytes_per_s=4e6, latency_s=0.02)
    load = pool.begin_load(lease.refs, memory.pages, [4, 5, 6, 7])
    assert load.finish(WAIT_S)
    assert load.seconds >= 0.03


def test_a_copying_thread_leaves_the_core_that_its_beginner_is_bound_to() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        pytest.skip("one core")

    def bound_then_roaming() -> tuple[set[int], set[int]]:
        os.sched_setaffinity(0, {min(allowed)})  # of this thread alone
        bound = os.sched_getaffinity(0)
        roam()
        return bound, os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as threads:
        bound, roaming = threads.submit(bound_then_roaming).result()
    assert (len(bound), roaming) == (1, allowed)
