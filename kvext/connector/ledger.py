"""Loads between promise and report: no pin outlives its load, whatever the engine does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvext.connector.report import LoadReport
from kvext.protocol.tier import Lease
from kvext.protocol.transfer import LoadWay

__all__ = ["InFlightLoad", "LoadLedger"]


@dataclass(slots=True)
class InFlightLoad:
    """One load that a worker was told to do.

    Attributes:
        request_id: Whose load.
        lease: Keeps the blocks in place; None once it was given back.
        first_block: Index of the first loaded block within the request.
        num_blocks: Blocks to load.
        is_async: Whether the engine computes other requests meanwhile.
        block_table: All the request's block ids when the load was planned, or when the request
            finished before the report.
        deadline_s: When the lease is given back, report or not.
    """

    request_id: str
    lease: Lease | None
    first_block: int
    num_blocks: int
    is_async: bool
    block_table: tuple[int, ...]
    deadline_s: float

    def presumed(self, load_id: int, record_bytes: int) -> LoadReport:
        """The report of a load that is known to have succeeded before its report came."""
        num_bytes = self.num_blocks * record_bytes
        return LoadReport(
            load_id,
            self.request_id,
            self.num_blocks,
            self.num_blocks,
            num_bytes,
            0,
            way=LoadWay.UNREPORTED,
        )

    def release(self) -> None:
        """Give the blocks back."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None


class LoadLedger:
    """The loads in flight, by number."""

    __slots__ = ("_clock", "_loads")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin empty.

        Args:
            clock: Monotonic time in seconds.
        """
        self._clock = clock
        self._loads: dict[int, InFlightLoad] = {}

    def __len__(self) -> int:
        """Loads in flight."""
        return len(self._loads)

    def open(self, load_id: int, load: InFlightLoad) -> None:
        """Note a load under a number of its own."""
        self._loads[load_id] = load

    def of_request(self, request_id: str) -> Iterator[tuple[int, InFlightLoad]]:
        """A request's loads in flight; two if it was preempted before the first was reported."""
        return (
            (load_id, load)
            for load_id, load in self._loads.items()
            if load.request_id == request_id
        )

    def close(self, load_id: int) -> InFlightLoad | None:
        """Take a load out and give its blocks back."""
        load = self._loads.pop(load_id, None)
        if load is not None:
            load.release()
        return load

    def sweep(self) -> int:
        """Give back the leases of loads past their deadline; a late copy then fails its check.

        Returns:
            How many leases were given back.
        """
        if not self._loads:
            return 0
        now_s = self._clock()
        late = [load for load in self._loads.values() if load.lease and load.deadline_s <= now_s]
        for load in late:
            load.release()
        return len(late)

    def close_all(self) -> None:
        """Give everything back."""
        for load in self._loads.values():
            load.release()
        self._loads.clear()
