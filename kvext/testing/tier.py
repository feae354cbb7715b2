"""A tier in plain memory that keeps every promise of `kvext.protocol.tier`.

Use it wherever a connector needs a tier and no shared memory is wanted. `tests/contracts`
runs the same suite over it and over the real pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import REF_BYTES
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

__all__ = ["FakeLayeredLoad", "FakeLease", "FakePages", "FakeTier"]

_GARBAGE = b"\xee"
"""What a failed load leaves: a tier promises nothing about it."""


@dataclass(frozen=True, slots=True)
class FakePages:
    """An engine's KV memory.

    Attributes:
        layers: One array a layer, (blocks, bytes of a block's piece).
    """

    layers: tuple[npt.NDArray[np.uint8], ...]

    @property
    def record_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return sum(layer.shape[1] for layer in self.layers)

    def read(self, block_id: int) -> bytes:
        """One block's bytes, layer after layer."""
        return b"".join(layer[block_id].tobytes() for layer in self.layers)

    def write(self, block_id: int, record: bytes) -> None:
        """Replace one block's bytes."""
        start = 0
        for layer in self.layers:
            stop = start + layer.shape[1]
            layer[block_id] = np.frombuffer(record[start:stop], np.uint8)
            start = stop


@dataclass(slots=True)
class _Record:
    data: bytes
    generation: int
    num_pins: int = 0
    is_corrupt: bool = False


class FakeLease:
    """Pinned records of a `FakeTier`."""

    def __init__(self, records: Sequence[_Record]) -> None:
        """Pin the records."""
        self._records = list(records)
        for record in self._records:
            record.num_pins += 1

    @property
    def num_blocks(self) -> int:
        """Blocks held."""
        return len(self._records)

    @property
    def refs(self) -> bytes:
        """`REF_BYTES` a block."""
        return b"".join(record.generation.to_bytes(REF_BYTES, "little") for record in self._records)

    def release(self) -> None:
        """Give the blocks back; a second call does nothing."""
        for record in self._records:
            record.num_pins -= 1
        self._records = []


class FakeLayeredLoad:
    """A load of a `FakeTier` of which a layer comes in when it is waited for, and not before."""

    def __init__(
        self, outcomes: bytes, source: FakePages, target: FakePages, block_ids: Sequence[int]
    ) -> None:
        """Take what is to be copied.

        Args:
            outcomes: What is to be told at the end.
            source: The blocks, in their order.
            target: The engine's memory.
            block_ids: Where they go.
        """
        self.seconds = 0.0
        self._outcomes = outcomes
        self._source = source
        self._target = target
        self._block_ids = list(block_ids)
        self._num_ready = 0
        self._is_cancelled = False

    @property
    def outcomes(self) -> bytes:
        """One `LoadOutcome` byte a block; empty if it was cut short."""
        return b"" if self._is_cancelled else self._outcomes

    def wait(self, num_layers: int, wait_s: float) -> bool:  # noqa: ARG002 - it is instant
        """Bring layers in."""
        if self._is_cancelled:
            return False
        for layer in range(self._num_ready, num_layers):
            self._target.layers[layer][self._block_ids] = self._source.layers[layer]
        self._num_ready = max(self._num_ready, num_layers)
        return True

    def finish(self, wait_s: float) -> bool:
        """Bring all layers in."""
        self.wait(len(self._target.layers), wait_s)
        return True

    def cancel(self) -> None:
        """Bring nothing more in."""
        self._is_cancelled = True


class FakeTier:
    """Keeps at most `capacity` records and evicts the one stored first that nobody pins."""

    def __init__(self, capacity: int = 1024) -> None:
        """Begin empty.

        Args:
            capacity: Records that it can hold.
        """
        self._capacity = capacity
        self._records: dict[tuple[bytes, int], _Record] = {}
        self._last_generation = 0
        self._is_bypassed = False

    @property
    def bypassed(self) -> bool:
        """Whether it is switched off."""
        return self._is_bypassed

    def set_bypass(self, on: bool) -> None:  # noqa: FBT001 - as the pool has it
        """Switch it off or on again."""
        self._is_bypassed = on

    @property
    def num_pins(self) -> int:
        """Pins over all records."""
        return sum(record.num_pins for record in self._records.values())

    @property
    def num_records(self) -> int:
        """Records that can be found."""
        return len(self._records)

    def records(self, shape: RecordShape | None = None) -> dict[bytes, bytes]:
        """Every record's bytes by key, of one shape or of all, corrupt ones left out."""
        return {
            key: record.data
            for (key, packed), record in self._records.items()
            if not record.is_corrupt and (shape is None or shape.packed == packed)
        }

    def corrupt(self, key: bytes, shape: RecordShape) -> None:
        """Let the record's checksum be wrong from now on."""
        self._records[key, shape.packed].is_corrupt = True

    def drop(self, key: bytes, shape: RecordShape) -> None:
        """Let the record be gone, as if it had been evicted."""
        del self._records[key, shape.packed]

    def rewrite(self, key: bytes, shape: RecordShape, data: bytes) -> None:
        """Let the record hold other bytes from now on, with the right checksum of them."""
        self._records[key, shape.packed].data = data

    def match(self, keys: bytes, shape: RecordShape) -> FakeLease:
        """Pin the longest prefix of `keys` that is stored in this shape."""
        found: list[_Record] = []
        for key in _split(keys):
            record = self._records.get((key, shape.packed))
            if record is None or self._is_bypassed:
                break
            found.append(record)
        return FakeLease(found)

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
        """One byte a key: 1 if it is stored in this shape."""
        if self._is_bypassed:
            return bytes(len(keys) // KEY_BYTES)
        return bytes((key, shape.packed) in self._records for key in _split(keys))

    def store(
        self,
        keys: bytes,
        shape: RecordShape,
        namespace: bytes,  # noqa: ARG002 - this tier accounts for nothing
        pages: FakePages,
        block_ids: Sequence[int],
    ) -> bytes:
        """Copy blocks out of the pages; one `StoreOutcome` byte each."""
        if self._is_bypassed:
            return bytes([StoreOutcome.BYPASSED]) * len(block_ids)
        return bytes(
            self._store(key, shape, pages.read(block_id))
            for key, block_id in zip(_split(keys), block_ids, strict=True)
        )

    def load(self, refs: bytes, pages: FakePages, block_ids: Sequence[int]) -> bytes:
        """Copy leased blocks into the pages; one `LoadOutcome` byte each."""
        generations = [
            int.from_bytes(refs[at : at + REF_BYTES], "little")
            for at in range(0, len(refs), REF_BYTES)
        ]
        return bytes(
            self._load(generation, pages, block_id)
            for generation, block_id in zip(generations, block_ids, strict=True)
        )

    def begin_load(
        self, refs: bytes, pages: FakePages, block_ids: Sequence[int]
    ) -> FakeLayeredLoad:
        """Begin a load whose layers come in one by one."""
        num_blocks = len(block_ids)
        layers = tuple(
            np.zeros((num_blocks, layer.shape[1]), layer.dtype) for layer in pages.layers
        )
        blocks = FakePages(layers)
        outcomes = self.load(refs, blocks, range(num_blocks))
        return FakeLayeredLoad(outcomes, blocks, pages, block_ids)

    def _store(self, key: bytes, shape: RecordShape, data: bytes) -> StoreOutcome:
        if (key, shape.packed) in self._records:
            return StoreOutcome.EXISTS
        if len(self._records) >= self._capacity and not self._evict():
            return StoreOutcome.NO_SPACE
        self._last_generation += 1
        self._records[key, shape.packed] = _Record(data, self._last_generation)
        return StoreOutcome.STORED

    def _evict(self) -> bool:
        for name, record in self._records.items():
            if record.num_pins == 0:
                del self._records[name]
                return True
        return False

    def _load(self, generation: int, pages: FakePages, block_id: int) -> LoadOutcome:
        for name, record in self._records.items():
            if record.generation == generation:
                if record.is_corrupt:
                    del self._records[name]
                    pages.write(block_id, _GARBAGE * len(record.data))
                    return LoadOutcome.CORRUPT
                pages.write(block_id, record.data)
                return LoadOutcome.LOADED
        pages.write(block_id, _GARBAGE * pages.record_bytes)
        return LoadOutcome.STALE


def _split(keys: bytes) -> list[bytes]:
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
