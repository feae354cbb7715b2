# ruff: noqa: N803 - tensor names carry shapes
"""What an engine's KV memory looks like to a copy: layers of blocks, blocks of runs of bytes.

Letters: B blocks, H head slots, N tokens, C content; R records, P bytes of one record.
`kv_B...` is one layer: its first dimension is the block, what follows has any strides. A record
holds one block's pieces, layer after layer, each in the logical order of its dimensions.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["LayerGroup", "PagedKV", "PieceShape", "piece_shape"]

VECTOR_BYTES = 16
"""Widest load or store of one thread."""


@dataclass(frozen=True, slots=True)
class PieceShape:
    """Where one layer's part of a block lies, relative to the block.

    Attributes:
        run_bytes: Bytes that lie together.
        run_offsets: Where each run begins, in bytes, in the order of the record.
    """

    run_bytes: int
    run_offsets: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the piece."""
        return self.run_bytes * len(self.run_offsets)

    @property
    def is_contiguous(self) -> bool:
        """Whether the piece is a single run."""
        return len(self.run_offsets) == 1


def piece_shape(kv_BHNC: torch.Tensor) -> PieceShape:
    """Find the longest runs of bytes inside a block.

    Args:
        kv_BHNC: One layer; any number of dimensions after the first, any strides.

    Returns:
        The runs, in the logical order of the block's elements.
    """
    run_bytes = kv_BHNC.element_size()
    dims = [
        (size, stride * kv_BHNC.element_size())
        for size, stride in zip(kv_BHNC.shape[1:], kv_BHNC.stride()[1:], strict=True)
        if size != 1
    ]
    while dims and dims[-1][1] == run_bytes:
        run_bytes *= dims.pop()[0]
    steps = [[index * stride for index in range(size)] for size, stride in dims]
    return PieceShape(run_bytes, tuple(sum(offsets) for offsets in itertools.product(*steps)))


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose pieces have one shape, so that one launch can copy them all.

    Attributes:
        shape: What a piece looks like in each of them.
        addresses: Where each layer's block 0 lies.
        block_strides: Bytes from one block to the next, for each layer.
        record_starts: Where each layer's piece begins in a record.
    """

    shape: PieceShape
    addresses: tuple[int, ...]
    block_strides: tuple[int, ...]
    record_starts: tuple[int, ...]

    def alignment(self, record_bytes: int, record_addresses: Sequence[int]) -> int:
        """Largest power of two, up to `VECTOR_BYTES`, that divides every place a run can begin.

        Args:
            record_bytes: P, which counts so that any part of a buffer of records is aligned alike.
            record_addresses: Where the records begin.
        """
        return math.gcd(
            VECTOR_BYTES,
            record_bytes,
            *record_addresses,
            self.shape.run_bytes,
            *self.shape.run_offsets,
            *self.addresses,
            *self.block_strides,
            *self.record_starts,
        )


class PagedKV:
    """One engine's KV memory; keeps its tensors alive."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Look at the layers.

        Args:
            tensors: One `kv_BHNC` a layer, all of one device and number of blocks; layers may
                differ in everything else.

        Raises:
            ValueError: There are no layers, or they differ in device or number of blocks.
        """
        if len({(kv_BHNC.device, kv_BHNC.shape[0]) for kv_BHNC in tensors}) != 1:
            msg = (
                f"{len(tensors)} KV tensors of several devices or numbers of blocks; "
                "give the layers of one cache"
            )
            raise ValueError(msg)
        if any(kv_BHNC.dim() == 1 for kv_BHNC in tensors):
            msg = "a KV tensor has only its blocks' dimension; give one with a block's inside"
            raise ValueError(msg)
        self.tensors = tuple(tensors)
        self.device = tensors[0].device
        self.num_blocks = tensors[0].shape[0]
        self.shapes = tuple(piece_shape(kv_BHNC) for kv_BHNC in tensors)
        ends = list(itertools.accumulate(shape.num_bytes for shape in self.shapes))
        self.record_bytes = ends[-1]
        self.record_starts = (0, *ends[:-1])

    @property
    def piece_bytes(self) -> tuple[int, ...]:
        """Bytes of one block in each layer."""
        return tuple(shape.num_bytes for shape in self.shapes)

    def groups(self) -> list[LayerGroup]:
        """The layers by the shape of their pieces, in the order of first appearance."""
        members: dict[PieceShape, list[int]] = {}
        for layer, shape in enumerate(self.shapes):
            members.setdefault(shape, []).append(layer)
        return [self._group(shape, layers) for shape, layers in members.items()]

    def check_blocks(self, block_ids: Sequence[int]) -> None:
        """Refuse what would address memory outside the tensors.

        Raises:
            ValueError: A block id is outside 0..B-1.
        """
        if block_ids and (min(block_ids) < 0 or max(block_ids) >= self.num_blocks):
            msg = (
                f"block ids {min(block_ids)}..{max(block_ids)} exceed 0..{self.num_blocks - 1}; "
                "give ids of this cache"
            )
            raise ValueError(msg)

    def _group(self, shape: PieceShape, layers: list[int]) -> LayerGroup:
        tensors = [self.tensors[layer] for layer in layers]
        return LayerGroup(
            shape,
            tuple(kv_BHNC.data_ptr() for kv_BHNC in tensors),
            tuple(kv_BHNC.stride(0) * kv_BHNC.element_size() for kv_BHNC in tensors),
            tuple(self.record_starts[layer] for layer in layers),
        )
