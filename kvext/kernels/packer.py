# ruff: noqa: N803, N806 - tensor names carry shapes
"""Moving pieces between blocks and records in memory that the device addresses itself."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch

from kvext.kernels.paged import PagedKV

__all__ = ["IndexPacker", "Packer"]


class Packer(Protocol):
    """Packs blocks into records and unpacks them; enqueues, and does not wait."""

    def warm_up(self, records_RP: torch.Tensor) -> None:
        """Do beforehand what only the first copy pays for."""
        ...

    def pack(self, block_ids: Sequence[int], records_RP: torch.Tensor) -> None:
        """Copy blocks into records."""
        ...

    def unpack(self, records_RP: torch.Tensor, block_ids: Sequence[int]) -> None:
        """Copy records into blocks, each block at most once."""
        ...


class IndexPacker:
    """By torch's own indexing: for the processor, and where Triton is not installed."""

    def __init__(self, kv: PagedKV) -> None:
        """Serve one KV memory."""
        self._kv = kv
        self._layers = [kv_BHNC.view(torch.uint8) for kv_BHNC in kv.tensors]

    def warm_up(self, records_RP: torch.Tensor) -> None:
        """Do nothing: torch has nothing to compile."""

    def pack(self, block_ids: Sequence[int], records_RP: torch.Tensor) -> None:
        """Copy blocks into records."""
        index_R = torch.tensor(block_ids, device=self._kv.device)
        for kv_BHNC, piece_RHNC in self._pieces(records_RP):
            piece_RHNC.copy_(kv_BHNC.index_select(0, index_R))

    def unpack(self, records_RP: torch.Tensor, block_ids: Sequence[int]) -> None:
        """Copy records into blocks."""
        index_R = torch.tensor(block_ids, device=self._kv.device)
        for kv_BHNC, piece_RHNC in self._pieces(records_RP):
            kv_BHNC.index_copy_(0, index_R, piece_RHNC)

    def _pieces(self, records_RP: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        sizes = zip(self._layers, self._kv.record_starts, self._kv.piece_bytes, strict=True)
        for kv_BHNC, start, num_bytes in sizes:
            piece_RX = records_RP[:, start : start + num_bytes]
            yield kv_BHNC, piece_RX.view(-1, *kv_BHNC.shape[1:])
