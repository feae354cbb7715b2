"""Pins that a lookup has counted, as a value that gives them back."""

from collections.abc import Callable

from kvext.protocol.tier import REF_BYTES

__all__ = ["NOTHING", "Lease"]


class Lease:
    """Pinned records, from `Pool.match`; given back at the latest when it is collected."""

    __slots__ = ("_epoch", "_refs", "_unpin")

    def __init__(self, unpin: Callable[[bytes, int], None], refs: bytes, epoch: int) -> None:
        """Take over pins that the pool has counted already.

        Args:
            unpin: Undoes one pin of each record that was made under that epoch.
            refs: 16 bytes a record.
            epoch: Of the process when it pinned; its pins are void once it has another one.
        """
        self._unpin = unpin
        self._refs = refs
        self._epoch = epoch

    def __del__(self) -> None:
        if self._refs:
            self.release()

    @property
    def num_blocks(self) -> int:
        """Blocks held, from the first key on."""
        return len(self._refs) // REF_BYTES

    @property
    def refs(self) -> bytes:
        """16 bytes a block; any process that attached the pool can load by them."""
        return self._refs

    def keep(self, num_blocks: int) -> None:
        """Give back all but the first `num_blocks`."""
        surplus = self._refs[num_blocks * REF_BYTES :]
        self._refs = self._refs[: num_blocks * REF_BYTES]
        if surplus:
            self._unpin(surplus, self._epoch)

    def release(self) -> None:
        """Give the pins back; a second call does nothing."""
        self.keep(0)


NOTHING = Lease(lambda _refs, _epoch: None, b"", 0)
"""The lease of every miss: it holds no pins, so all can share it."""
