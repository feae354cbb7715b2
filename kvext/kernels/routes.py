# ruff: noqa: N803, N806 - tensor names carry shapes
"""The three ways between paged KV memory and records in pinned host memory.

`StagedCopies` packs on the device and sends records whole; `ZeroCopies` lets the kernel itself
reach over the bus; `PieceCopies` needs no kernel. Each enqueues on the current stream and
returns; records must stay alive and untouched until a mark after it is reached.
"""

import importlib.util
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import torch

from kvext.kernels.packer import Packer
from kvext.kernels.paged import PagedKV

__all__ = [
    "PIECE_COPY_BYTES",
    "Copies",
    "PieceCopies",
    "Records",
    "Route",
    "StagedCopies",
    "ZeroCopies",
    "choose_route",
    "has_triton",
]

PIECE_COPY_BYTES = 1 << 20
"""From here on a piece is copied by itself: the bus then needs longer (19 us at 55 GB/s) than the
call. By arithmetic; `benchmarks/gpu_copy.py` measures where the lines cross."""

Records: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
"""`records_RP`, or one `record_P` of bytes each wherever they lie."""


class Route(StrEnum):
    """How pieces travel."""

    STAGED = "staged"
    """Packed on the device, one large copy a record or a batch."""
    ZERO_COPY = "zero_copy"
    """The kernel reads and writes pinned host memory."""
    PIECES = "pieces"
    """One asynchronous memcpy a piece."""


def choose_route(kv: PagedKV) -> Route:
    """Small or scattered pieces are packed, large ones copied one by one.

    Args:
        kv: The memory; a piece of several runs always needs packing.
    """
    is_large = min(kv.piece_bytes) >= PIECE_COPY_BYTES
    return Route.PIECES if is_large and _is_contiguous(kv) else Route.STAGED


def has_triton() -> bool:
    """Whether kernels can be compiled here."""
    return importlib.util.find_spec("triton") is not None


class Copies(Protocol):
    """One route."""

    def gather(self, block_ids: Sequence[int], records: Records) -> None:
        """Enqueue the copy of blocks into records."""
        ...

    def scatter(self, records: Records, block_ids: Sequence[int]) -> None:
        """Enqueue the copy of records into blocks."""
        ...


class StagedCopies:
    """Through a buffer on the device."""

    def __init__(self, kv: PagedKV, packer: Packer, max_records: int) -> None:
        """Take the buffer.

        Args:
            kv: The engine's KV memory.
            packer: Moves pieces on the device.
            max_records: Most records of one call.
        """
        self._packer = packer
        # One is enough: a lane is in order, so a batch packs after the one before has left.
        self._buffer_RP = torch.empty(
            (max_records, kv.record_bytes), dtype=torch.uint8, device=kv.device
        )
        packer.warm_up(self._buffer_RP)

    def gather(self, block_ids: Sequence[int], records: Records) -> None:
        """Enqueue the copy of blocks into records."""
        packed_RP = self._buffer_RP[: len(block_ids)]
        self._packer.pack(block_ids, packed_RP)
        _copy(records, packed_RP)

    def scatter(self, records: Records, block_ids: Sequence[int]) -> None:
        """Enqueue the copy of records into blocks."""
        packed_RP = self._buffer_RP[: len(block_ids)]
        _copy(packed_RP, records)
        self._packer.unpack(packed_RP, block_ids)


class ZeroCopies:
    """By a kernel that addresses the host's memory; records must be pinned."""

    def __init__(self, packer: "ZeroCopyPacker") -> None:
        """Use a packer that takes records anywhere."""
        self._packer = packer

    def gather(self, block_ids: Sequence[int], records: Records) -> None:
        """Enqueue the copy of blocks into records."""
        self._packer.pack(block_ids, records)

    def scatter(self, records: Records, block_ids: Sequence[int]) -> None:
        """Enqueue the copy of records into blocks."""
        self._packer.unpack(records, block_ids)


class ZeroCopyPacker(Protocol):
    """A packer that takes records anywhere."""

    def pack(self, block_ids: Sequence[int], records: Records) -> None:
        """Copy blocks into records."""
        ...

    def unpack(self, records: Records, block_ids: Sequence[int]) -> None:
        """Copy records into blocks."""
        ...


class PieceCopies:
    """One memcpy a piece, both ends of it contiguous: a strided end would make torch wait."""

    def __init__(self, kv: PagedKV) -> None:
        """Serve one KV memory.

        Raises:
            ValueError: A block's bytes do not lie together in some layer.
        """
        if not _is_contiguous(kv):
            msg = "a block's bytes do not lie together in every layer; use another route"
            raise ValueError(msg)
        self._kv = kv

    def gather(self, block_ids: Sequence[int], records: Records) -> None:
        """Enqueue the copy of blocks into records."""
        for block_id, record_P in zip(block_ids, records, strict=True):
            for block_X, piece_X in self._pieces(block_id, record_P):
                piece_X.copy_(block_X, non_blocking=True)

    def scatter(self, records: Records, block_ids: Sequence[int]) -> None:
        """Enqueue the copy of records into blocks."""
        for block_id, record_P in zip(block_ids, records, strict=True):
            for block_X, piece_X in self._pieces(block_id, record_P):
                block_X.copy_(piece_X, non_blocking=True)

    def _pieces(
        self, block_id: int, record_P: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        kv = self._kv
        return [
            (kv_BHNC[block_id].view(-1).view(torch.uint8), record_P[start : start + num_bytes])
            for kv_BHNC, start, num_bytes in zip(
                kv.tensors, kv.record_starts, kv.piece_bytes, strict=True
            )
        ]


def _is_contiguous(kv: PagedKV) -> bool:
    return all(shape.is_contiguous for shape in kv.shapes)


def _copy(target: Records, source: Records) -> None:
    """Whole records; in one call if both sides are one tensor."""
    if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor):
        target.copy_(source, non_blocking=True)
        return
    for target_P, source_P in zip(target, source, strict=True):
        target_P.copy_(source_P, non_blocking=True)
