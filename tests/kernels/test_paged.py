"""How a cache is read: runs inside a block, groups of like layers, and what addresses allow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvext.kernels import PagedKV, PieceShape, Route, choose_route, piece_shape
from tests.kernels.caches import CACHES, Cache


def test_a_contiguous_block_is_one_run() -> None:
    assert piece_shape(torch.zeros(3, 2, 16, 8, dtype=torch.bfloat16)) == PieceShape(512, (0,))


def test_tokens_before_heads_leave_a_run_for_each_head_and_token() -> None:
    layer = torch.zeros(3, 16, 2, 8, dtype=torch.bfloat16).transpose(1, 2)
    heads, tokens = range(2), range(16)
    expected = tuple(16 * head + 32 * token for head in heads for token in tokens)
    assert piece_shape(layer) == PieceShape(16, expected)


def test_dimensions_of_one_element_break_no_run() -> None:
    layer = torch.zeros(3, 16, 1, 8, dtype=torch.uint8).transpose(1, 2)
    assert piece_shape(layer) == PieceShape(128, (0,))


def test_layers_of_one_shape_form_a_group_wherever_they_stand() -> None:
    (mixed,) = (cache for cache in CACHES if cache.name == "layers of two shapes")
    kv = PagedKV(mixed.tensors(4, seed=0))
    assert kv.piece_bytes == (512, 768, 512)
    assert kv.record_starts == (0, 512, 1280)
    assert kv.record_bytes == 1792
    assert [group.record_starts for group in kv.groups()] == [(0, 1280), (512,)]


@given(
    cache=st.sampled_from(CACHES),
    record_address=st.integers(1, 1 << 40),
    num_records=st.integers(1, 4),
)
def test_alignment_divides_every_place_that_a_word_can_lie(
    cache: Cache, record_address: int, num_records: int
) -> None:
    kv = PagedKV(cache.tensors(4, seed=0))
    addresses = [record_address + index * kv.record_bytes for index in range(num_records)]
    for group in kv.groups():
        alignment = group.alignment(kv.record_bytes, addresses)
        assert alignment in {1, 2, 4, 8, 16}
        for begin, stride, start in zip(
            group.addresses, group.block_strides, group.record_starts, strict=True
        ):
            places = [begin + 3 * stride + run for run in group.shape.run_offsets]
            places += [address + start for address in addresses]
            assert not any(place % alignment for place in places)
        assert group.shape.run_bytes % alignment == 0


def test_alignment_is_the_widest_that_fits() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    start = -memory.data_ptr() % 16
    (group,) = PagedKV([memory[start : start + 1024].view(4, 2, 8, 16)]).groups()
    assert [group.alignment(256, [address]) for address in (32, 8, 4, 2, 1)] == [16, 8, 4, 2, 1]


@pytest.mark.parametrize(
    ("inside", "route"),
    [((2, 16, 256), Route.STAGED), ((2, 1024, 512), Route.PIECES)],
    ids=["small pieces", "large pieces"],
)
def test_the_size_of_a_piece_decides_the_route(inside: tuple[int, int, int], route: Route) -> None:
    assert choose_route(PagedKV([torch.zeros(2, *inside, dtype=torch.uint8)])) is route


def test_large_pieces_of_several_runs_are_packed() -> None:
    layer = torch.zeros(2, 1024, 2, 512, dtype=torch.uint8).transpose(1, 2)
    assert choose_route(PagedKV([layer])) is Route.STAGED


@pytest.mark.parametrize(
    "shapes", [[], [(4, 2), (5, 2)], [(4,)]], ids=["no layers", "other blocks", "no inside"]
)
def test_what_is_no_cache_is_refused(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="; give "):
        PagedKV([torch.zeros(shape) for shape in shapes])
