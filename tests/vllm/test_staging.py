"""The accelerator's path, forced onto the CPU: same records, same bytes back, any strides."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvext.connector.mover import DirectMover
from kvext.cxl import create_region
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

torch = pytest.importorskip("torch", reason="needs the engine's tensor library")

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


@pytest.mark.parametrize("staging_bytes", [1, 2 * RECORD_BYTES, 1 << 20])
def test_staged_blocks_are_what_the_direct_path_reads(pool: Pool, staging_bytes: int) -> None:
    from kvext.vllm.staging import StagedMover  # noqa: PLC0415 - needs torch

    source, target = random_tensors(1), random_tensors(2)
    staged = StagedMover(pool, strided_like(source), SHAPE, staging_bytes)
    assert staged.record_bytes == RECORD_BYTES
    ids = [3, 0, 7, 5, 1]
    assert staged.store(keys_of(1, 2, 3, 4, 5), NAMESPACE, ids) == bytes([STORED] * 5)
    lease = pool.match(keys_of(1, 2, 3, 4, 5), SHAPE)
    assert direct(pool, target).load(lease.refs, [8, 2, 4, 6, 9]) == bytes([LOADED] * 5)
    lease.release()
    for old, new in zip(source, target, strict=True):
        assert torch.equal(old[ids], new[[8, 2, 4, 6, 9]])


@pytest.mark.parametrize("staging_bytes", [1, 1 << 20])
def test_a_staged_load_touches_only_its_blocks(pool: Pool, staging_bytes: int) -> None:
    from kvext.vllm.staging import StagedMover  # noqa: PLC0415 - needs torch

    source, before = random_tensors(1), random_tensors(2)
    direct(pool, source).store(keys_of(1, 2), NAMESPACE, [0, 1])
    target = strided_like(before)
    lease = pool.match(keys_of(1, 2), SHAPE)
    staged = StagedMover(pool, target, SHAPE, staging_bytes)
    assert staged.load(lease.refs, [9, 4]) == bytes([LOADED] * 2)
    lease.release()
    others = [index for index in range(NUM_BLOCKS) if index not in (9, 4)]
    for new, old, untouched in zip(target, source, before, strict=True):
        assert torch.equal(new[[9, 4]], old[[0, 1]])
        assert torch.equal(new[others], untouched[others])


def test_known_leading_blocks_make_no_trip_through_the_buffer(pool: Pool) -> None:
    from kvext.vllm.staging import StagedMover  # noqa: PLC0415 - needs torch

    staged = StagedMover(pool, random_tensors(1), SHAPE)
    staged.store(keys_of(1, 2), NAMESPACE, [0, 1])
    outcomes = staged.store(keys_of(1, 2, 3), NAMESPACE, [0, 1, 2])
    assert outcomes == bytes([EXISTS, EXISTS, STORED])
    assert pool.stat().num_pinned == 0
