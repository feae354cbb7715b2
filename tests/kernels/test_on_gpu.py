# ruff: noqa: N806 - tensor names carry shapes
"""What only a GPU can show: order between streams, real pinning, every route on device memory.

Alone, on a machine without kvext's other dependencies:
`PYTHONPATH=. python3 -m pytest -c /dev/null --rootdir=. tests/kernels/test_on_gpu.py`
"""

import mmap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kvext.errors import PinningRefused
from kvext.kernels import CopyEngine, PinnedRegion, Route, open_engine
from kvext.kernels.reference import gather_reference
from tests.kernels.caches import CACHES, Cache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

NUM_BLOCKS = 9
A_WHILE_CYCLES = 200_000_000
"""About a tenth of a second of an H200."""

Tensors = Sequence[torch.Tensor]


def on_gpu(cache: Cache, seed: int) -> list[torch.Tensor]:
    """The cache's layers with their strides and gaps, in the memory of the GPU."""
    layers = []
    for kv_BHNC in cache.tensors(NUM_BLOCKS, seed):
        memory = torch.empty(0, dtype=torch.uint8).set_(kv_BHNC.untyped_storage()).cuda()
        layer_BHNC = torch.empty(0, dtype=kv_BHNC.dtype, device="cuda").set_(
            memory.untyped_storage(), kv_BHNC.storage_offset(), kv_BHNC.shape, kv_BHNC.stride()
        )
        layers.append(layer_BHNC)
    return layers


def pinned_records(engine: CopyEngine, num_records: int) -> torch.Tensor:
    return torch.zeros((num_records, engine.kv.record_bytes), dtype=torch.uint8, pin_memory=True)


@pytest.mark.parametrize("route", list(Route))
@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.name)
def test_blocks_travel_out_and_back_by_every_route(cache: Cache, route: Route) -> None:
    source, target = on_gpu(cache, 1), on_gpu(cache, 2)
    if route is Route.PIECES and cache.order != (0, 1, 2):
        return
    taking, giving = open_engine(source, 4, route), open_engine(target, 4, route)
    records_RP = pinned_records(taking, 4)
    assert taking.gather([8, 0, 0, 3], records_RP).wait(10.0)
    assert torch.equal(records_RP, gather_reference(source, [8, 0, 0, 3]))
    untouched = gather_reference(target, [0, 2, 3, 4, 8])
    assert giving.scatter(records_RP, [5, 6, 7, 1]).wait(10.0)
    assert torch.equal(records_RP, gather_reference(target, [5, 6, 7, 1]))
    assert torch.equal(untouched, gather_reference(target, [0, 2, 3, 4, 8]))


@pytest.mark.parametrize("route", list(Route))
@pytest.mark.parametrize("in_thread", [False, True], ids=["same thread", "another thread"])
def test_a_gather_takes_what_the_engine_has_computed_before(route: Route, in_thread: bool) -> None:  # noqa: FBT001 - a parameter
    (kv_BHNC, *_) = layers = on_gpu(CACHES[0], 1)
    engine = open_engine(layers, 1, route)
    records_RP = pinned_records(engine, 1)
    torch.cuda._sleep(A_WHILE_CYCLES)  # noqa: SLF001 - the only way to keep a stream busy
    kv_BHNC[4].fill_(1.5)
    with ThreadPoolExecutor(1) as executor:
        mark = (
            executor.submit(engine.gather, [4], records_RP).result(10.0)
            if in_thread
            else engine.gather([4], records_RP)
        )
    assert not mark.is_reached
    assert mark.wait(10.0)
    assert torch.equal(records_RP, gather_reference(layers, [4]))


@pytest.mark.parametrize("route", list(Route))
def test_a_scatter_comes_after_what_still_reads_the_block(route: Route) -> None:
    (kv_BHNC, *_) = layers = on_gpu(CACHES[0], 1)
    engine = open_engine(layers, 1, route)
    before = kv_BHNC[4].view(torch.uint8).clone()  # as bytes: some random elements are no numbers
    torch.cuda._sleep(A_WHILE_CYCLES)  # noqa: SLF001 - as above
    seen = kv_BHNC[4].view(torch.uint8).clone()
    engine.scatter(pinned_records(engine, 1), [4])
    torch.cuda.synchronize()
    assert torch.equal(seen, before)
    assert not kv_BHNC[4].any()


def test_what_is_held_back_comes_after_a_late_copy() -> None:
    (kv_BHNC, *_) = layers = on_gpu(CACHES[0], 1)
    engine = open_engine(layers, 1)
    records_RP = pinned_records(engine, 1)
    torch.cuda._sleep(A_WHILE_CYCLES)  # noqa: SLF001 - as above
    mark = engine.scatter(records_RP, [4])
    assert not mark.wait(0.001)
    mark.hold_back()
    kv_BHNC[4].fill_(2.5)
    torch.cuda.synchronize()
    assert bool((kv_BHNC[4] == 2.5).all())


def test_a_mapping_is_pinned_once_and_a_refusal_spoils_no_later_kernel(tmp_path: Path) -> None:
    path = tmp_path / "region"
    path.write_bytes(bytes(1 << 20))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 1 << 20)
    memory = torch.frombuffer(mapping, dtype=torch.uint8)
    with PinnedRegion.register(memory.data_ptr(), 1 << 20):
        assert memory.is_pinned()
        with pytest.raises(PinningRefused):
            PinnedRegion.register(memory.data_ptr(), 1 << 20)
        assert int(torch.ones(8, device="cuda").sum()) == 8
        layers = on_gpu(CACHES[0], 1)
        engine = open_engine(layers, 2, Route.ZERO_COPY)
        records_RP = memory[: 2 * engine.kv.record_bytes].view(2, -1)
        assert engine.gather([1, 2], records_RP).wait(10.0)
        assert torch.equal(records_RP, gather_reference(layers, [1, 2]))
    assert not memory.is_pinned()
