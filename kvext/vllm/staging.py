# ruff: noqa: N803, N806 - tensor names carry shapes
"""Blocks of an accelerator's memory travel through a small buffer in host memory.

Saving gathers blocks on the device, copies them to the buffer and stores them from there;
loading goes the other way. The buffer bounds host memory and the batch of one native call.
The path is tested on the CPU by forcing it; it has not run on a GPU yet.

`kv_BHNC` is one layer's tensor (blocks, head slots, tokens, content). Whatever its strides, a
record holds each layer in the logical order H, N, C.
"""

import threading
from collections.abc import Sequence

import torch

from kvext.connector.mover import WholeMover
from kvext.pool import Pages
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import REF_BYTES, Tier
from kvext.protocol.transfer import StoreOutcome

__all__ = ["StagedMover"]

_STAGING_BYTES = 64 << 20


class StagedMover(WholeMover):
    """Moves blocks between a tier and tensors that the tier cannot address."""

    def __init__(
        self,
        tier: Tier[Pages],
        tensors: Sequence[torch.Tensor],
        shape: RecordShape,
        staging_bytes: int = _STAGING_BYTES,
    ) -> None:
        """Allocate the buffer.

        Args:
            tier: Where blocks are kept.
            tensors: One `kv_BHNC` a layer.
            shape: What one record holds.
            staging_bytes: About how much host memory to take; at least one block.
        """
        self._tier = tier
        self._shape = shape
        self._tensors = [_as_bytes(kv_BHNC) for kv_BHNC in tensors]
        self._device = tensors[0].device
        piece_bytes = [kv_BHNC[0].numel() for kv_BHNC in self._tensors]
        self.record_bytes = sum(piece_bytes)
        self._chunk = max(1, staging_bytes // self.record_bytes)
        on_device = self._device.type != "cpu"
        self._buffers = [
            torch.empty((self._chunk, *kv_BHNC.shape[1:]), dtype=torch.uint8, pin_memory=on_device)
            for kv_BHNC in self._tensors
        ]
        addresses = [buffer.data_ptr() for buffer in self._buffers]
        self._pages = Pages(addresses, piece_bytes, self._chunk)
        self._lock = threading.Lock()

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:
        """Offer blocks to the tier; one `StoreOutcome` byte each."""
        if self._tier.bypassed:  # spares the copies off the device
            return bytes([StoreOutcome.BYPASSED]) * len(block_ids)
        known = self._num_known(keys)
        outcomes = bytearray([StoreOutcome.EXISTS]) * known
        with self._lock:
            for start in range(known, len(block_ids), self._chunk):
                ids = block_ids[start : start + self._chunk]
                self._gather(ids)
                part = keys[start * KEY_BYTES : (start + len(ids)) * KEY_BYTES]
                outcomes += self._tier.store(
                    part, self._shape, namespace, self._pages, range(len(ids))
                )
        return bytes(outcomes)

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:
        """Bring leased blocks in; one `LoadOutcome` byte each."""
        outcomes = bytearray()
        with self._lock:
            for start in range(0, len(block_ids), self._chunk):
                ids = block_ids[start : start + self._chunk]
                part = refs[start * REF_BYTES : (start + len(ids)) * REF_BYTES]
                outcomes += self._tier.load(part, self._pages, range(len(ids)))
                self._scatter(ids)
        return bytes(outcomes)

    def _num_known(self, keys: bytes) -> int:
        """Leading blocks that need no trip through the buffer."""
        lease = self._tier.match(keys, self._shape)
        try:
            return lease.num_blocks
        finally:
            lease.release()

    def _gather(self, block_ids: Sequence[int]) -> None:
        index = torch.tensor(block_ids, device=self._device)
        for kv_BHNC, buffer in zip(self._tensors, self._buffers, strict=True):
            buffer[: len(block_ids)].copy_(kv_BHNC.index_select(0, index), non_blocking=True)
        self._synchronise()

    def _scatter(self, block_ids: Sequence[int]) -> None:
        index = torch.tensor(block_ids, device=self._device)
        for kv_BHNC, buffer in zip(self._tensors, self._buffers, strict=True):
            source = buffer[: len(block_ids)].to(self._device, non_blocking=True)
            kv_BHNC.index_copy_(0, index, source)
        self._synchronise()

    def _synchronise(self) -> None:
        """The buffer is read and written by the processor next."""
        if self._device.type != "cpu":
            torch.accelerator.current_stream(self._device).synchronize()


def _as_bytes(kv_BHNC: torch.Tensor) -> torch.Tensor:
    return kv_BHNC if kv_BHNC.dtype == torch.uint8 else kv_BHNC.view(torch.uint8)
