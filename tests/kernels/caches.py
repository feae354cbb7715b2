# ruff: noqa: N806 - tensor names carry shapes
"""KV memory as engines lay it out, of random bytes; letters as in `kvext.kernels.paged`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["CACHES", "Cache", "blocks_but", "copies_of"]


@dataclass(frozen=True, slots=True)
class Cache:
    """How one cache is laid out.

    Attributes:
        name: What it stands for.
        insides: (H, N, C) of each layer.
        dtype: Element type.
        gap_bytes: Bytes between two blocks.
        order: In which order H, N and C lie in memory.
    """

    name: str
    insides: tuple[tuple[int, int, int], ...]
    dtype: torch.dtype = torch.bfloat16
    gap_bytes: int = 0
    order: tuple[int, int, int] = (0, 1, 2)

    def tensors(self, num_blocks: int, seed: int) -> list[torch.Tensor]:
        """One `kv_BHNC` a layer."""
        torch.manual_seed(seed)
        return [self._layer(num_blocks, inside) for inside in self.insides]

    def _layer(self, num_blocks: int, inside: tuple[int, int, int]) -> torch.Tensor:
        laid = [inside[axis] for axis in self.order]
        element_bytes = torch.empty(0, dtype=self.dtype).element_size()
        block_bytes = laid[0] * laid[1] * laid[2] * element_bytes
        memory_BX = torch.randint(
            0, 256, (num_blocks, block_bytes + self.gap_bytes), dtype=torch.uint8
        )
        typed_BX = memory_BX.view(self.dtype)[:, : block_bytes // element_bytes]
        kv_B = typed_BX.unflatten(1, laid)
        back = [1 + self.order.index(axis) for axis in range(3)]
        return kv_B.permute(0, *back)


CACHES = (
    Cache("one run a block", ((2, 16, 8),) * 3),
    Cache("blocks of other layers between", ((2, 16, 8),) * 2, gap_bytes=1024),
    Cache("tokens before heads", ((4, 16, 8),) * 2, order=(1, 0, 2)),
    Cache("odd bytes", ((3, 7, 5),) * 2, torch.uint8, gap_bytes=13),
    Cache("odd two-byte elements", ((1, 3, 7),) * 3, torch.float16, gap_bytes=2),
    Cache("four-byte steps", ((1, 5, 3),) * 2, torch.float32, gap_bytes=4),
    Cache("fp8", ((2, 16, 32),), torch.float8_e4m3fn),
    Cache("latent attention", ((1, 16, 72),) * 2),
    Cache("layers of two shapes", ((2, 16, 8), (1, 16, 24), (2, 16, 8))),
    Cache("more than a tile", ((1, 64, 300),) * 2, torch.uint8),
    Cache("more than a tile of runs", ((9, 64, 32),), torch.uint8, order=(1, 0, 2)),
)


def copies_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values and strides in other memory."""
    clones = []
    for kv_BHNC in tensors:
        memory = kv_BHNC.untyped_storage().clone()
        clone_BHNC = torch.empty(0, dtype=kv_BHNC.dtype).set_(
            memory, kv_BHNC.storage_offset(), kv_BHNC.shape, kv_BHNC.stride()
        )
        clones.append(clone_BHNC)
    return clones


def blocks_but(tensors: Sequence[torch.Tensor], block_ids: Sequence[int]) -> list[bytes]:
    """The memory around the named blocks, gaps included, with those blocks blanked."""
    blanked = copies_of(tensors)
    for kv_BHNC in blanked:
        for block_id in block_ids:
            kv_BHNC[block_id].zero_()
    storages = [kv_BHNC.untyped_storage() for kv_BHNC in blanked]
    return [torch.empty(0, dtype=torch.uint8).set_(memory).numpy().tobytes() for memory in storages]
