"""One engine's KV memory and the way its blocks travel, behind two calls.

Invariant: a call returns when its work is enqueued; blocks and records are right when the mark
that it answers with is reached, and must be left alone until then.
"""

from collections.abc import Sequence

import torch

from kvext.kernels.lane import Lane, Mark, open_lane
from kvext.kernels.packer import IndexPacker, Packer
from kvext.kernels.paged import PagedKV
from kvext.kernels.routes import (
    Copies,
    PieceCopies,
    Records,
    Route,
    StagedCopies,
    ZeroCopies,
    choose_route,
    has_triton,
)

__all__ = ["CopyEngine", "open_engine"]


class CopyEngine:
    """Gathers blocks into records and scatters records into blocks."""

    def __init__(self, kv: PagedKV, lane: Lane, copies: Copies, route: Route) -> None:
        """Tie the parts together; `open_engine` makes them.

        Args:
            kv: The engine's KV memory.
            lane: Where copies are enqueued.
            copies: How they are made.
            route: What `copies` is called.
        """
        self.kv = kv
        self.route = route
        self._lane = lane
        self._copies = copies

    def gather(self, block_ids: Sequence[int], records: Records) -> Mark:
        """Copy blocks into records, after what the engine has computed so far.

        Args:
            block_ids: R blocks, any of them several times.
            records: R records of uint8, in pinned memory if blocks are on a device; one tensor
                of whole rows travels in fewer calls.

        Returns:
            When the records may be read.

        Raises:
            ValueError: A block id is outside the cache, or the counts differ.
        """
        self._check(block_ids, records)
        with self._lane.enqueue():
            self._copies.gather(block_ids, records)
        return self._lane.mark()

    def scatter(self, records: Records, block_ids: Sequence[int]) -> Mark:
        """Copy records into blocks, after whatever the engine still does with these.

        Args:
            records: As for `gather`.
            block_ids: R different blocks.

        Returns:
            When the blocks may be read, and the records reused.

        Raises:
            ValueError: A block id is outside the cache, or the counts differ.
        """
        self._check(block_ids, records)
        with self._lane.enqueue():
            self._copies.scatter(records, block_ids)
        return self._lane.mark()

    def _check(self, block_ids: Sequence[int], records: Records) -> None:
        self.kv.check_blocks(block_ids)
        if len(records) != len(block_ids):
            msg = f"{len(block_ids)} blocks for {len(records)} records; give one record a block"
            raise ValueError(msg)


def open_engine(
    tensors: Sequence[torch.Tensor], max_records: int, route: Route | None = None
) -> CopyEngine:
    """Make the engine for one KV memory, on a side stream if the device has streams.

    Call it where the engine's own stream is the current one. Kernels are compiled here.

    Args:
        tensors: One `kv_BHNC` a layer; see `PagedKV`.
        max_records: Most records of one call; the staged route takes as much device memory.
        route: The way to go; by default what `choose_route` says.

    Raises:
        ValueError: The tensors are no cache, or the route cannot be gone with them.
    """
    kv = PagedKV(tensors)
    lane = open_lane(kv.device)
    chosen = choose_route(kv) if route is None else route
    with lane.enqueue():
        copies = _open_copies(kv, chosen, max_records)
    return CopyEngine(kv, lane, copies, chosen)


def _open_copies(kv: PagedKV, route: Route, max_records: int) -> Copies:
    if route is Route.PIECES:
        return PieceCopies(kv)
    if route is Route.ZERO_COPY:
        from kvext.kernels.triton_copy import KernelPacker  # noqa: PLC0415 - Triton is optional

        return ZeroCopies(KernelPacker(kv))
    return StagedCopies(kv, _open_packer(kv), max_records)


def _open_packer(kv: PagedKV) -> Packer:
    if kv.device.type != "cuda" or not has_triton():
        return IndexPacker(kv)
    from kvext.kernels.triton_copy import KernelPacker  # noqa: PLC0415 - Triton is optional

    return KernelPacker(kv)
