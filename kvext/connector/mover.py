"""Moving blocks between a tier and one engine's KV memory, whatever that memory is."""

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol

from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import LayeredLoad, LayeredTier, PagesT

__all__ = ["AbsentMover", "BlockMover", "DirectMover", "WholeMover"]


class BlockMover(Protocol):
    """Copies whole blocks; knows the tier and the engine's memory."""

    @property
    def record_bytes(self) -> int:
        """Bytes of one block."""
        ...

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:
        """Offer blocks to the tier; one `StoreOutcome` byte each."""
        ...

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:
        """Bring leased blocks in; one `LoadOutcome` byte each."""
        ...

    @property
    def layers(self) -> Mapping[str, int]:
        """The engine's names of its layers, and which piece of a block each has.

        Empty if this mover brings blocks in as a whole only.
        """
        ...

    def begin_load(self, refs: bytes, block_ids: Sequence[int]) -> LayeredLoad:
        """Begin to bring leased blocks in, layer after layer; not without `layers`."""
        ...


class WholeMover:
    """What a mover has that brings blocks in as a whole only."""

    @property
    def layers(self) -> Mapping[str, int]:
        """None can be had alone."""
        return {}

    def begin_load(self, refs: bytes, block_ids: Sequence[int]) -> LayeredLoad:
        """Not possible.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError


class AbsentMover(WholeMover):
    """For a worker without a tier: whatever it was promised fails, so the engine computes it."""

    record_bytes = 0

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        """Store nothing."""
        return b""

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        """Load nothing."""
        return b""


class DirectMover(Generic[PagesT]):
    """For memory that the tier itself can read and write."""

    __slots__ = ("_layers", "_pages", "_record_bytes", "_shape", "_tier")

    def __init__(
        self,
        tier: LayeredTier[PagesT],
        pages: PagesT,
        shape: RecordShape,
        record_bytes: int,
        layers: Mapping[str, int] | None = None,
    ) -> None:
        """Tie a tier to an engine's memory.

        Args:
            tier: Where blocks are kept.
            pages: The engine's KV memory in the tier's terms.
            shape: What one record holds.
            record_bytes: Bytes of one block.
            layers: The engine's names of its layers, and which piece of a block each has.
        """
        self._layers = layers or {}
        self._tier = tier
        self._pages = pages
        self._shape = shape
        self._record_bytes = record_bytes

    @property
    def record_bytes(self) -> int:
        """Bytes of one block."""
        return self._record_bytes

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:
        """Offer blocks to the tier; one `StoreOutcome` byte each."""
        return self._tier.store(keys, self._shape, namespace, self._pages, block_ids)

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:
        """Bring leased blocks in; one `LoadOutcome` byte each."""
        return self._tier.load(refs, self._pages, block_ids)

    @property
    def layers(self) -> Mapping[str, int]:
        """The engine's names of its layers, and which piece of a block each has."""
        return self._layers

    def begin_load(self, refs: bytes, block_ids: Sequence[int]) -> LayeredLoad:
        """Begin to bring leased blocks in, layer after layer."""
        return self._tier.begin_load(refs, self._pages, block_ids)
