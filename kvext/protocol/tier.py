"""What the connector asks of a place that holds blocks.

A tier never raises for a block that it lacks or cannot give: it answers with a shorter lease
or an outcome. `PagesT` is the tier's own description of an engine's KV memory.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kvext.protocol.layout import RecordShape

__all__ = ["REF_BYTES", "LayeredLoad", "LayeredTier", "Lease", "PagesT", "Tier"]

REF_BYTES = 16
"""One reference: slot u32, extent u32, generation u64, little-endian."""

PagesT = TypeVar("PagesT", contravariant=True)  # noqa: PLC0105 - named for what it is


class Lease(Protocol):
    """Blocks that stay where they are until the lease is released or its deadline passes."""

    @property
    def num_blocks(self) -> int:
        """Blocks found, from the first key on."""
        ...

    @property
    def refs(self) -> bytes:
        """`REF_BYTES` a block; any process that attached the tier can load by them."""
        ...

    def release(self) -> None:
        """Give the blocks back; a second call does nothing."""
        ...


class LayeredLoad(Protocol):
    """A load that runs by itself, layer after layer over all its blocks."""

    @property
    def outcomes(self) -> bytes:
        """Once it has ended, one `LoadOutcome` byte a block; empty if it was cut short."""
        ...

    @property
    def seconds(self) -> float:
        """Once it has ended, how long it ran."""
        ...

    def wait(self, num_layers: int, wait_s: float) -> bool:
        """Wait until the first `num_layers` layers are in place; False if that did not happen."""
        ...

    def finish(self, wait_s: float) -> bool:
        """Wait for the end; False if the time was too short."""
        ...

    def cancel(self) -> None:
        """Cut it short; it writes nothing more once this has returned."""
        ...


class Tier(Protocol[PagesT]):
    """A place that holds blocks by key."""

    @property
    def bypassed(self) -> bool:
        """Whether it is switched off: nothing is matched and nothing stored."""
        ...

    def match(self, keys: bytes, shape: RecordShape) -> Lease:
        """Pin the longest prefix of `keys` that is stored in this shape.

        Args:
            keys: 32 bytes a block, in the order of the sequence.
            shape: Which records are wanted.

        Returns:
            A lease, of no blocks when the first is missing; contention shortens it.
        """
        ...

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
        """Say what is stored, without pinning it.

        Args:
            keys: 32 bytes a block, in any order.
            shape: Which records are meant.

        Returns:
            One byte a block: 1 if it is there, else 0.
        """
        ...

    def store(
        self,
        keys: bytes,
        shape: RecordShape,
        namespace: bytes,
        pages: PagesT,
        block_ids: Sequence[int],
    ) -> bytes:
        """Copy blocks out of an engine's pages and make them visible, each on its own.

        Args:
            keys: 32 bytes a block.
            shape: What one record holds.
            namespace: 32-byte digest that the keys were derived from, for accounting.
            pages: The engine's KV memory.
            block_ids: The blocks' places in `pages`, one a key.

        Returns:
            One `StoreOutcome` byte a block.
        """
        ...

    def load(self, refs: bytes, pages: PagesT, block_ids: Sequence[int]) -> bytes:
        """Copy leased blocks into an engine's pages, checking generation and checksum.

        Args:
            refs: `REF_BYTES` a block, of a live lease.
            pages: The engine's KV memory.
            block_ids: Where to, one a reference; a block that fails has undefined contents.

        Returns:
            One `LoadOutcome` byte a block.
        """
        ...


class LayeredTier(Tier[PagesT], Protocol[PagesT]):
    """A tier whose loads can be used before they are complete."""

    def begin_load(self, refs: bytes, pages: PagesT, block_ids: Sequence[int]) -> LayeredLoad:
        """Begin a `load` whose layers can be used before all of it is in place.

        Whether a block may be kept is known at the end only: its outcome says so, as with `load`.

        Args:
            refs: `REF_BYTES` a block, of a lease that lives until the load has ended.
            pages: The engine's KV memory.
            block_ids: Where to, one a reference.
        """
        ...
