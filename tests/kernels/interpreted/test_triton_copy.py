# ruff: noqa: N806 - tensor names carry shapes
"""The kernel in Triton's interpreter against its oracle, over layouts, sizes and orders."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.kernels import PagedKV, Route, open_engine
from kvext.kernels.reference import gather_reference, scatter_reference
from kvext.kernels.triton_copy import KernelPacker
from tests.kernels.caches import CACHES, Cache, blocks_but, copies_of

NUM_BLOCKS = 9


def empty_records(kv: PagedKV, num_records: int) -> torch.Tensor:
    return torch.zeros((num_records, kv.record_bytes), dtype=torch.uint8)


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.name)
@pytest.mark.parametrize("num_programs", [1, 3, 128])
def test_gathered_records_are_the_oracles(cache: Cache, num_programs: int) -> None:
    tensors = cache.tensors(NUM_BLOCKS, seed=1)
    kv = PagedKV(tensors)
    block_ids = [8, 0, 3, 3, 0]
    records_RP = empty_records(kv, 5)
    KernelPacker(kv, num_programs).pack(block_ids, records_RP)
    assert torch.equal(records_RP, gather_reference(tensors, block_ids))


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.name)
@pytest.mark.parametrize("num_programs", [1, 3, 128])
def test_scattered_blocks_are_the_oracles_and_nothing_else_moves(
    cache: Cache, num_programs: int
) -> None:
    tensors = cache.tensors(NUM_BLOCKS, seed=1)
    kv = PagedKV(tensors)
    records_RP = gather_reference(cache.tensors(NUM_BLOCKS, seed=2), range(3))
    expected, block_ids = copies_of(tensors), [7, 2, 5]
    around = blocks_but(tensors, block_ids)
    scatter_reference(expected, records_RP, block_ids)
    KernelPacker(kv, num_programs).unpack(records_RP, block_ids)
    assert torch.equal(gather_reference(tensors, block_ids), records_RP)
    assert blocks_but(tensors, block_ids) == around == blocks_but(expected, block_ids)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
def test_records_may_begin_at_any_byte(offset: int) -> None:
    tensors = CACHES[0].tensors(NUM_BLOCKS, seed=1)
    kv = PagedKV(tensors)
    memory = torch.zeros(3 * (kv.record_bytes + 32), dtype=torch.uint8)
    places = [offset + index * (kv.record_bytes + 32) for index in range(3)]
    records = [memory[place : place + kv.record_bytes] for place in places]
    KernelPacker(kv).pack([4, 1, 4], records)
    assert torch.equal(torch.stack(records), gather_reference(tensors, [4, 1, 4]))
    assert int(memory.count_nonzero()) == int(torch.stack(records).count_nonzero())


def test_a_warm_up_moves_nothing() -> None:
    tensors = CACHES[2].tensors(NUM_BLOCKS, seed=1)
    before = blocks_but(tensors, ())
    kv = PagedKV(tensors)
    records_RP = empty_records(kv, 4)
    KernelPacker(kv).warm_up(records_RP)
    assert blocks_but(tensors, ()) == before
    assert not records_RP.any()


@pytest.mark.parametrize("cache", CACHES[:3], ids=lambda cache: cache.name)
def test_zero_copies_bring_back_what_they_took(cache: Cache) -> None:
    source, target = cache.tensors(NUM_BLOCKS, seed=1), cache.tensors(NUM_BLOCKS, seed=2)
    taking = open_engine(source, 4, Route.ZERO_COPY)
    giving = open_engine(target, 4, Route.ZERO_COPY)
    records = list(empty_records(taking.kv, 4))
    assert taking.gather([1, 3, 5, 7], records).wait(1.0)
    assert giving.scatter(records, [0, 2, 4, 6]).wait(1.0)
    assert torch.equal(gather_reference(target, [0, 2, 4, 6]), torch.stack(records))
    assert torch.equal(gather_reference(source, [1, 3, 5, 7]), torch.stack(records))


@st.composite
def caches(draw: st.DrawFn) -> Cache:
    inside = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 19))
    dtype = draw(st.sampled_from([torch.uint8, torch.bfloat16, torch.float32]))
    width = torch.empty(0, dtype=dtype).element_size()
    return Cache(
        "drawn",
        tuple(draw(st.lists(inside, min_size=1, max_size=3))),
        dtype,
        gap_bytes=width * draw(st.integers(0, 3)),
        order=draw(st.sampled_from([(0, 1, 2), (1, 0, 2)])),
    )


@settings(max_examples=60)
@given(
    cache=caches(),
    taken=st.lists(st.integers(0, NUM_BLOCKS - 1), min_size=1, max_size=5),
    given_to=st.permutations(range(NUM_BLOCKS)),
)
def test_any_layout_survives_the_way_out_and_back(
    cache: Cache, taken: list[int], given_to: list[int]
) -> None:
    source, target = cache.tensors(NUM_BLOCKS, seed=1), cache.tensors(NUM_BLOCKS, seed=2)
    records_RP = empty_records(PagedKV(source), len(taken))
    KernelPacker(PagedKV(source), 2).pack(taken, records_RP)
    assert torch.equal(records_RP, gather_reference(source, taken))
    places = given_to[: len(taken)]
    around = blocks_but(target, places)
    KernelPacker(PagedKV(target), 2).unpack(records_RP, places)
    assert torch.equal(gather_reference(target, places), records_RP)
    assert blocks_but(target, places) == around
