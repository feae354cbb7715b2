"""The synchronous loads of one step, overtaken by the engine's forward pass.

The engine may use a layer once `wait` has let it pass. Whether the blocks were right is known
after the last layer, so what the step computed counts only if `finish` reports no failure: that
is how the engine treats a failed load anyway.

Invariant: a layer that nobody waited for may have been used too early, so the load fails then.
"""

from collections.abc import Callable, Mapping, Sequence

from kvext.connector.loads import LoadedJob, LoadTimes
from kvext.connector.plan import LoadJob
from kvext.protocol.tier import LayeredLoad
from kvext.protocol.transfer import LoadWay

__all__ = ["NOT_WAITED", "LayerwiseLoad"]

NOT_WAITED = "not_waited"
"""Why a load failed whose layers the engine did not wait for."""


class LayerwiseLoad:
    """One copy for all jobs of a step."""

    __slots__ = (
        "_clock",
        "_copy",
        "_deadline_s",
        "_jobs",
        "_layers",
        "_lost",
        "_unwaited",
        "_waited_s",
    )

    def __init__(
        self,
        jobs: Sequence[LoadJob],
        copy: LayeredLoad,
        layers: Mapping[str, int],
        clock: Callable[[], float],
        wait_s: float,
    ) -> None:
        """Take over a copy that has just begun.

        Args:
            jobs: What it loads; its blocks are theirs, one job after another.
            copy: The copy.
            layers: The engine's names of the layers, and which piece of a block each has.
            clock: Monotonic time in seconds.
            wait_s: When it must have ended; the blocks' pins last no longer either.
        """
        self._jobs = jobs
        self._copy = copy
        self._layers = layers
        self._clock = clock
        self._deadline_s = clock() + wait_s
        self._unwaited = set(layers.values())
        self._lost = ""
        self._waited_s = 0.0

    def wait(self, layer: str) -> bool:
        """Wait until a layer may be used; an unknown one, until all may.

        Returns:
            False if it is not in place and never will be.
        """
        place = self._layers.get(layer)
        begun_s = self._clock()
        last = max(self._layers.values()) if place is None else place
        is_in_place = self._copy.wait(last + 1, max(self._deadline_s - begun_s, 0.0))
        self._waited_s += self._clock() - begun_s
        if place is not None:
            self._unwaited.discard(place)
        return is_in_place

    def abandon(self, reason: str) -> None:
        """Cut the copy short: its blocks fail, and nothing writes into them any more."""
        self._lost = self._lost or reason
        self._copy.cancel()

    def finish(self, record_bytes: int) -> list[LoadedJob]:
        """Wait for the end.

        Args:
            record_bytes: Bytes of one block.

        Returns:
            What became of each job.
        """
        begun_s = self._clock()
        if not self._lost and not self._copy.finish(max(self._deadline_s - begun_s, 0.0)):
            self.abandon("late")
        self._waited_s += self._clock() - begun_s
        if self._unwaited and not self._lost:
            self._lost = NOT_WAITED
        return self._tell(record_bytes)

    def _tell(self, record_bytes: int) -> list[LoadedJob]:
        outcomes = self._copy.outcomes
        num_all = sum(len(job.block_ids) for job in self._jobs)
        ends: list[LoadedJob] = []
        start = 0
        for job in self._jobs:
            stop = start + len(job.block_ids)
            share = (stop - start) / num_all
            times = LoadTimes(LoadWay.LAYERWISE, self._copy.seconds * share, self._waited_s * share)
            if self._lost:
                ends.append(LoadedJob.lost(job, self._lost, times))
            else:
                ends.append(LoadedJob.of(job, outcomes[start:stop], record_bytes, times))
            start = stop
        return ends
