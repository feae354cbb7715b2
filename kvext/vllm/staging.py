# ruff: noqa: N806 - tensor names carry shapes
"""Blocks of an accelerator's memory travel through two small buffers in host memory.

The tier verifies or stores one buffer while the accelerator fills or empties the other. Invariant:
a buffer is touched by the processor only after the mark of its last copy is reached, and a block
whose copy did not end is overwritten by nothing but what the engine enqueues afterwards.

`records_RP`: R records of P bytes each, a block's pieces layer after layer.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from kvext.connector.mover import WholeMover
from kvext.errors import CopyStalled
from kvext.kernels import CopyEngine, Mark, open_engine
from kvext.pool import Pages
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import REF_BYTES, Tier
from kvext.protocol.transfer import StoreOutcome

__all__ = ["StagedMover", "open_beside_vllm"]

_STAGING_BYTES = 32 << 20
_NUM_BUFFERS = 2
_DEADLINE_S = 30.0
"""A copy takes a millisecond: whatever lasts this long is a device that hangs."""


def open_beside_vllm(tensors: Sequence[torch.Tensor], max_records: int) -> CopyEngine:
    """An engine whose copies come after what vLLM's worker has enqueued; see `open_engine`.

    Call it in the thread that runs the model.
    """
    if tensors[0].device.type == "cuda":
        from vllm.utils.torch_utils import current_stream  # noqa: PLC0415 - only with a GPU

        # vLLM computes on a stream that it makes at first need. A thread that loads cannot see
        # it, so it has to be there and known before.
        current_stream()
    return open_engine(tensors, max_records)


@dataclass(slots=True)
class _Buffer:
    """Host memory for one batch.

    Attributes:
        records_RP: The memory, pinned if there is a device.
        pages: The same in the tier's terms.
        mark: After its last copy.
    """

    records_RP: torch.Tensor  # noqa: N815 - tensor names carry shapes
    pages: Pages
    mark: Mark | None = None


class StagedMover(WholeMover):
    """Moves blocks between a tier and tensors that the tier cannot address."""

    def __init__(
        self,
        tier: Tier[Pages],
        tensors: Sequence[torch.Tensor],
        shape: RecordShape,
        staging_bytes: int = _STAGING_BYTES,
        make_engine: Callable[[Sequence[torch.Tensor], int], CopyEngine] = open_beside_vllm,
    ) -> None:
        """Take the buffers.

        Args:
            tier: Where blocks are kept.
            tensors: One `kv_BHNC` a layer.
            shape: What one record holds.
            staging_bytes: About how much host memory to take; at least two blocks. The device
                gives up to half as much.
            make_engine: Makes what copies, for tensors and a number of records at once.
        """
        self._tier = tier
        self._shape = shape
        self.record_bytes = sum(kv[0].numel() * kv.element_size() for kv in tensors)
        self._chunk = max(1, staging_bytes // _NUM_BUFFERS // self.record_bytes)
        self._engine = make_engine(tensors, self._chunk)
        on_device = tensors[0].device.type != "cpu"
        self._buffers = [self._make_buffer(pinned=on_device) for _ in range(_NUM_BUFFERS)]
        self._patience_s = _DEADLINE_S
        self._lock = threading.Lock()

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:
        """Offer blocks to the tier; one `StoreOutcome` byte each."""
        if self._tier.bypassed:  # spares the copies off the device
            return bytes([StoreOutcome.BYPASSED]) * len(block_ids)
        known = self._num_known(keys)
        outcomes = bytearray([StoreOutcome.EXISTS]) * known
        waiting: tuple[_Buffer, bytes] | None = None
        with self._lock, self._in_turns():
            for buffer, start, ids in self._batches(known, block_ids):
                buffer.mark = self._engine.gather(ids, buffer.records_RP[: len(ids)])
                if waiting:
                    outcomes += self._put(*waiting, namespace)
                waiting = buffer, keys[start * KEY_BYTES : (start + len(ids)) * KEY_BYTES]
            if waiting:
                outcomes += self._put(*waiting, namespace)
        return bytes(outcomes)

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:
        """Bring leased blocks in; one `LoadOutcome` byte each."""
        outcomes = bytearray()
        with self._lock, self._in_turns():
            for buffer, start, ids in self._batches(0, block_ids):
                self._await(buffer)
                part = refs[start * REF_BYTES : (start + len(ids)) * REF_BYTES]
                outcomes += self._tier.load(part, buffer.pages, range(len(ids)))
                buffer.mark = self._engine.scatter(buffer.records_RP[: len(ids)], ids)
        return bytes(outcomes)

    def _num_known(self, keys: bytes) -> int:
        """Leading blocks that need no trip through the buffer."""
        lease = self._tier.match(keys, self._shape)
        try:
            return lease.num_blocks
        finally:
            lease.release()

    def _batches(
        self, start: int, block_ids: Sequence[int]
    ) -> Iterator[tuple[_Buffer, int, Sequence[int]]]:
        """Buffers in turn, each with the place and the ids of its blocks."""
        for turn, first in enumerate(range(start, len(block_ids), self._chunk)):
            yield self._buffers[turn % _NUM_BUFFERS], first, block_ids[first : first + self._chunk]

    def _put(self, buffer: _Buffer, keys: bytes, namespace: bytes) -> bytes:
        """Store what has been gathered."""
        self._await(buffer)
        num_blocks = len(keys) // KEY_BYTES
        return self._tier.store(keys, self._shape, namespace, buffer.pages, range(num_blocks))

    @contextlib.contextmanager
    def _in_turns(self) -> Iterator[None]:
        """Begin with both buffers free and end with every copy done, or held before what follows.

        Raises:
            CopyStalled: A copy, perhaps of an earlier call, does not end.
        """
        try:
            for buffer in self._buffers:
                self._await(buffer)
            yield
            for buffer in self._buffers:
                self._await(buffer)
        finally:
            # What failed is computed anew: a copy that still runs must not come after that.
            for buffer in self._buffers:
                if buffer.mark is not None and not buffer.mark.is_reached:
                    buffer.mark.hold_back()

    def _await(self, buffer: _Buffer) -> None:
        if buffer.mark is None:
            return
        if not buffer.mark.wait(self._patience_s):
            self._patience_s = 0.0  # an engine waits for a hung device once, not at every step
            raise CopyStalled(_DEADLINE_S)
        self._patience_s = _DEADLINE_S

    def _make_buffer(self, *, pinned: bool) -> _Buffer:
        records_RP = torch.empty(
            (self._chunk, self.record_bytes), dtype=torch.uint8, pin_memory=pinned
        )
        pages = Pages([records_RP.data_ptr()], [self.record_bytes], self._chunk)
        return _Buffer(records_RP, pages)
