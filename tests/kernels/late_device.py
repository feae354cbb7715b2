"""A device that does nothing until somebody waits for it: the worst that a side stream may do."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from kvext.kernels import CopyEngine, PagedKV, Route
from kvext.kernels.packer import IndexPacker
from kvext.kernels.routes import Copies, Records, StagedCopies

__all__ = ["LateDevice"]


class LateDevice:
    """Makes engines whose copies run in order, each as late as is allowed."""

    def __init__(self) -> None:
        """Begin with nothing enqueued."""
        self.is_hung = False
        self.num_enqueued = 0
        self.held_back: list[int] = []
        self.given_up_after_s: list[float] = []
        self._work: dict[int, Callable[[], None]] = {}

    def make_engine(self, tensors: Sequence[torch.Tensor], max_records: int) -> CopyEngine:
        """As `open_engine`."""
        kv = PagedKV(tensors)
        copies = StagedCopies(kv, IndexPacker(kv), max_records)
        return CopyEngine(kv, _Lane(self), _LateCopies(self, copies), Route.STAGED)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Do it when it is waited for."""
        self._work[self.num_enqueued] = work
        self.num_enqueued += 1

    def is_done_before(self, point: int) -> bool:
        """Whether nothing older is left to do."""
        return not any(number < point for number in self._work)

    def work_until(self, point: int) -> None:
        """Catch up."""
        for number in [number for number in self._work if number < point]:
            self._work.pop(number)()


class _LateCopies:
    def __init__(self, device: LateDevice, copies: Copies) -> None:
        self._device = device
        self._copies = copies

    def gather(self, block_ids: Sequence[int], records: Records) -> None:
        self._device.enqueue(lambda: self._copies.gather(block_ids, records))

    def scatter(self, records: Records, block_ids: Sequence[int]) -> None:
        self._device.enqueue(lambda: self._copies.scatter(records, block_ids))


class _Lane:
    def __init__(self, device: LateDevice) -> None:
        self._device = device

    @contextlib.contextmanager
    def enqueue(self) -> Iterator[None]:
        yield

    def mark(self) -> "_Mark":
        return _Mark(self._device, self._device.num_enqueued)


class _Mark:
    def __init__(self, device: LateDevice, point: int) -> None:
        self._device = device
        self._point = point

    @property
    def is_reached(self) -> bool:
        return self._device.is_done_before(self._point)

    def wait(self, deadline_s: float) -> bool:
        if not self._device.is_hung:
            self._device.work_until(self._point)
        elif not self.is_reached:
            self._device.given_up_after_s.append(deadline_s)
        return self.is_reached

    def hold_back(self) -> None:
        self._device.held_back.append(self._point)
