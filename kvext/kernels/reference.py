# ruff: noqa: N803, N806 - tensor names carry shapes
"""What each kernel must do, said as plainly as torch can; slow, and the tests' oracle.

Letters as in `kvext.kernels.paged`: `kv_BHNC` is one layer, `records_RP` one row of bytes a record.
"""

from collections.abc import Sequence

import torch

__all__ = ["gather_reference", "scatter_reference"]


def gather_reference(tensors: Sequence[torch.Tensor], block_ids: Sequence[int]) -> torch.Tensor:
    """Pack blocks into records.

    Args:
        tensors: One `kv_BHNC` a layer.
        block_ids: R blocks, any of them several times.

    Returns:
        `records_RP`, uint8, in the memory of the processor.
    """
    rows = [
        torch.cat([_bytes_of(kv_BHNC[block_id].cpu()) for kv_BHNC in tensors])
        for block_id in block_ids
    ]
    return torch.stack(rows)


def scatter_reference(
    tensors: Sequence[torch.Tensor], records_RP: torch.Tensor, block_ids: Sequence[int]
) -> None:
    """Unpack records into blocks, in place; every other block stays as it is.

    Args:
        tensors: One `kv_BHNC` a layer.
        records_RP: uint8, in the memory of the processor.
        block_ids: R different blocks.
    """
    for record_P, block_id in zip(records_RP, block_ids, strict=True):
        start = 0
        for kv_BHNC in tensors:
            block_HNC = kv_BHNC[block_id]
            stop = start + block_HNC.numel() * block_HNC.element_size()
            piece_HNC = record_P[start:stop].clone().view(kv_BHNC.dtype).reshape(block_HNC.shape)
            block_HNC.copy_(piece_HNC)
            start = stop


def _bytes_of(block_HNC: torch.Tensor) -> torch.Tensor:
    return block_HNC.contiguous().reshape(-1).view(torch.uint8)
