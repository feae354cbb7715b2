"""What the scheduler decided against, told in the same terms as what a worker did.

A load that computing is expected to beat and a block that is not worth storing never reach a
worker; here they become entries of a report all the same, so that metrics count them.
"""

from kvext.connector.report import LoadReport, StoreReport, WorkerReport
from kvext.connector.request import RequestState
from kvext.protocol.transfer import LoadWay

__all__ = ["Decisions"]


class Decisions:
    """Collects decisions until they are asked for."""

    __slots__ = ("_loads", "_stores")

    def __init__(self) -> None:
        """Begin with none."""
        self._loads: list[LoadReport] = []
        self._stores: list[StoreReport] = []

    def recompute(self, state: RequestState, way: LoadWay = LoadWay.RECOMPUTE) -> None:
        """A request's hit is computed again, because that is faster or to compare the two."""
        report = LoadReport(0, "", 0, 0, 0, 0.0, way=way)
        state.counts.add_load(report, 0)
        self._loads.append(report)

    def refuse(self, state: RequestState, num_blocks: int, reason: str) -> None:
        """Blocks of a request are not offered for storing."""
        state.counts.add_refusal(num_blocks, reason)
        self._stores.append(StoreReport("", num_blocks, 0, 0, 0, 0.0, {reason: num_blocks}))

    def take(self) -> WorkerReport | None:
        """What was decided since the last call, or None."""
        if not self._loads and not self._stores:
            return None
        report = WorkerReport(tuple(self._loads), tuple(self._stores), 0)
        self._loads, self._stores = [], []
        return report
