"""Moving blocks of an engine with several KV groups: each group has its own tensors and records."""

from collections.abc import Sequence

from kvext.connector.mover import BlockMover, WholeMover
from kvext.connector.places import runs_by_group
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.tier import REF_BYTES

__all__ = ["JointMover"]


class JointMover(WholeMover):
    """Passes each block on to its group's mover; blocks are named by `place_in_group`."""

    __slots__ = ("_movers", "_num_blocks", "record_bytes")

    def __init__(self, movers: Sequence[BlockMover], num_blocks: int) -> None:
        """Take the groups' movers.

        Args:
            movers: One a group, in the engine's order.
            num_blocks: Blocks of the engine.
        """
        self._movers = movers
        self._num_blocks = num_blocks
        self.record_bytes = sum(mover.record_bytes for mover in movers) // len(movers)
        """Of a block on average; groups of one engine differ in layers at most."""

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:
        """Offer blocks to the tier; one `StoreOutcome` byte each."""
        return b"".join(
            self._movers[group].store(
                keys[run.start * KEY_BYTES : run.stop * KEY_BYTES], namespace, ids
            )
            for group, run, ids in runs_by_group(self._num_blocks, block_ids)
        )

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:
        """Bring leased blocks in; one `LoadOutcome` byte each."""
        return b"".join(
            self._movers[group].load(refs[run.start * REF_BYTES : run.stop * REF_BYTES], ids)
            for group, run, ids in runs_by_group(self._num_blocks, block_ids)
        )
