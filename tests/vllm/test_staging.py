"""The accelerator's path, forced onto the CPU: same records, same bytes back, any strides.

A device that is as late as it may be shows whether anything is touched before its copy has ended.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvext.connector.mover import DirectMover
from kvext.cxl import create_region
from kvext.errors import CopyStalled
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

pytest.importorskip("torch", reason="needs the engine's tensor library")

import torch

from kvext.vllm.staging import StagedMover, open_beside_vllm
from tests.kernels.late_device import LateDevice

NUM_BLOCKS, NUM_LAYERS = 12, 3
SHAPE = RecordShape(32)
NAMESPACE = b"n" * 32
RECORD_BYTES = NUM_LAYERS * 2 * 32 * 16 * 2
STORED, EXISTS = int(StoreOutcome.STORED), int(StoreOutcome.EXISTS)
LOADED = int(LoadOutcome.LOADED)

Tensors = list[Any]


def keys_of(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(32, "big") for number in numbers)


def random_tensors(seed: int) -> Tensors:
    torch.manual_seed(seed)
    return [torch.randn(NUM_BLOCKS, 2, 32, 16).to(torch.bfloat16) for _ in range(NUM_LAYERS)]


def strided_like(tensors: Tensors) -> Tensors:
    """The same values with tokens before heads in memory, and blocks of other layers between."""
    packed = torch.zeros(NUM_BLOCKS, NUM_LAYERS, 32, 2, 16, dtype=torch.bfloat16)
    views = [packed[:, layer].transpose(1, 2) for layer in range(NUM_LAYERS)]
    for view, tensor in zip(views, tensors, strict=True):
        view.copy_(tensor)
    return views


def direct(pool: Pool, tensors: Tensors) -> DirectMover[Pages]:
    addresses = [tensor.data_ptr() for tensor in tensors]
    pages = Pages(addresses, [RECORD_BYTES // NUM_LAYERS] * NUM_LAYERS, NUM_BLOCKS)
    return DirectMover(pool, pages, SHAPE, RECORD_BYTES)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    path = tmp_path / "kvext-staging.pool"
    create_region(path, 1 << 20, Pool.initialise)
    with Pool.attach(path, extent_bytes=RECORD_BYTES, label="staging") as attached:
        yield attached


MakeEngine = Callable[..., Any]


def in_order() -> MakeEngine:
    return open_beside_vllm


def late() -> MakeEngine:
    return LateDevice().make_engine


@pytest.mark.parametrize("device", [in_order, late])
@pytest.mark.parametrize("staging_bytes", [1, 4 * RECORD_BYTES, 1 << 20])
def test_staged_blocks_are_what_the_direct_path_reads(
    pool: Pool, staging_bytes: int, device: Callable[[], MakeEngine]
) -> None:
    source, target = random_tensors(1), random_tensors(2)
    staged = StagedMover(pool, strided_like(source), SHAPE, staging_bytes, device())
    assert staged.record_bytes == RECORD_BYTES
    ids = [3, 0, 7, 5, 1]
    assert staged.store(keys_of(1, 2, 3, 4, 5), NAMESPACE, ids) == bytes([STORED] * 5)
    lease = pool.match(keys_of(1, 2, 3, 4, 5), SHAPE)
    assert direct(pool, target).load(lease.refs, [8, 2, 4, 6, 9]) == bytes([LOADED] * 5)
    lease.release()
    for old, new in zip(source, target, strict=True):
        assert torch.equal(old[ids], new[[8, 2, 4, 6, 9]])


@pytest.mark.parametrize("device", [in_order, late])
@pytest.mark.parametrize("staging_bytes", [1, 4 * RECORD_BYTES, 1 << 20])
def test_a_staged_load_touches_only_its_blocks(
    pool: Pool, staging_bytes: int, device: Callable[[], MakeEngine]
) -> None:
    source, before = random_tensors(1), random_tensors(2)
    direct(pool, source).store(keys_of(1, 2, 3, 4, 5), NAMESPACE, [0, 1, 2, 3, 4])
    target = strided_like(before)
    lease = pool.match(keys_of(1, 2, 3, 4, 5), SHAPE)
    staged = StagedMover(pool, target, SHAPE, staging_bytes, device())
    loaded = [9, 4, 0, 11, 6]
    assert staged.load(lease.refs, loaded) == bytes([LOADED] * 5)
    lease.release()
    others = [index for index in range(NUM_BLOCKS) if index not in loaded]
    for new, old, untouched in zip(target, source, before, strict=True):
        assert torch.equal(new[loaded], old[:5])
        assert torch.equal(new[others], untouched[others])


def test_known_leading_blocks_make_no_trip_through_the_buffer(pool: Pool) -> None:
    device = LateDevice()
    staged = StagedMover(pool, random_tensors(1), SHAPE, 1, device.make_engine)
    staged.store(keys_of(1, 2), NAMESPACE, [0, 1])
    assert device.num_enqueued == 2
    outcomes = staged.store(keys_of(1, 2, 3), NAMESPACE, [0, 1, 2])
    assert outcomes == bytes([EXISTS, EXISTS, STORED])
    assert device.num_enqueued == 3
    assert pool.stat().num_pinned == 0


def test_a_batch_is_verified_and_stored_while_another_travels(pool: Pool) -> None:
    device = LateDevice()
    travelling: list[bool] = []

    class WatchedPool:
        """The pool, noting whether copies are under way when it is called."""

        bypassed = False
        match = pool.match
        lookup = pool.lookup
        begin_load = pool.begin_load

        def store(self, *args: Any) -> bytes:
            travelling.append(not device.is_done_before(device.num_enqueued))
            return pool.store(*args)

        def load(self, refs: bytes, pages: Pages, block_ids: Sequence[int]) -> bytes:
            travelling.append(not device.is_done_before(device.num_enqueued))
            return pool.load(refs, pages, block_ids)

    staged = StagedMover(WatchedPool(), random_tensors(1), SHAPE, 1, device.make_engine)
    staged.store(keys_of(1, 2, 3, 4), NAMESPACE, [0, 1, 2, 3])
    assert travelling == [True, True, True, False]
    lease = pool.match(keys_of(1, 2, 3, 4), SHAPE)
    travelling.clear()
    staged.load(lease.refs, [0, 1, 2, 3])
    assert travelling == [False, True, True, True]
    lease.release()


def test_a_hung_device_fails_the_load_and_its_late_copy_comes_before_what_follows(
    pool: Pool,
) -> None:
    source, device = random_tensors(1), LateDevice()
    direct(pool, source).store(keys_of(1), NAMESPACE, [0])
    lease = pool.match(keys_of(1), SHAPE)
    target = random_tensors(2)
    staged = StagedMover(pool, target, SHAPE, 1, device.make_engine)
    device.is_hung = True
    with pytest.raises(CopyStalled, match=r"30\.0 s; look for a hung kernel"):
        staged.load(lease.refs, [5])
    assert device.held_back == [1]
    with pytest.raises(CopyStalled):
        staged.load(lease.refs, [6])
    assert device.num_enqueued == 1
    assert device.given_up_after_s == [30.0, 0.0]
    device.is_hung = False
    assert staged.load(lease.refs, [7]) == bytes([LOADED])
    lease.release()
    for new, old in zip(target, source, strict=True):
        assert torch.equal(new[7], old[0])
