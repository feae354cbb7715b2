"""The worker's part of shadow verification: copy at once, compare beside the steps.

The engine's blocks are copied while the step still owns them; everything else happens on another
thread. Invariant: records that failed are out of use before their report is given.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Protocol

from kvext.connector.edge import Edge
from kvext.connector.plan import SaveJob
from kvext.connector.shadow import CheckReport, Difference, Verdict

__all__ = ["BlockVerifier", "Comparison", "ShadowChecks"]

_MAX_WAITING = 2
"""Copies that wait to be compared at most; a long prompt fills a step after the other."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a verifier has found.

    Attributes:
        verdicts: One a compared block.
        worst: The largest difference, if bits differed and values could be read.
    """

    verdicts: Sequence[Verdict] = ()
    worst: Difference | None = None


class BlockVerifier(Protocol):
    """Compares an engine's blocks with a tier's records; knows both."""

    def begin(self, keys: bytes, block_ids: Sequence[int]) -> Callable[[], Comparison] | None:
        """Copy those blocks that the tier has records of.

        Args:
            keys: 32 bytes a block.
            block_ids: Places in the engine's KV memory, one a key.

        Returns:
            What compares the copies, on any thread; None if there is nothing to compare.
        """
        ...


class ShadowChecks:
    """Runs the checks of one worker and collects what they found."""

    __slots__ = ("_condemn", "_edge", "_executor", "_release", "_reports", "_running", "_verifier")

    def __init__(
        self,
        verifier: BlockVerifier,
        condemn: Callable[[bytes], str],
        edge: Edge,
        executor: Executor,
        release: str = "kvext pool release",
    ) -> None:
        """Begin with nothing to compare.

        Args:
            verifier: Compares.
            condemn: Puts a namespace into quarantine; answers with what people call it.
            edge: Turns exceptions into skipped blocks.
            executor: Runs the comparisons; its owner shuts it down.
            release: The command that ends a quarantine, for the log.
        """
        self._verifier = verifier
        self._condemn = condemn
        self._edge = edge
        self._executor = executor
        self._release = release
        self._running: deque[Future[CheckReport]] = deque()
        self._reports: list[CheckReport] = []

    def begin(self, job: SaveJob) -> None:
        """Take a job's blocks to be compared, before its own are among the records."""
        if sum(not check.done() for check in self._running) >= _MAX_WAITING:
            self._reports.append(_skipped(job, "busy"))
            return
        fallback: Callable[[], Comparison | None] | None = _no_copy
        compare = self._edge.attempt("copy blocks to verify", self._copy, fallback, job)
        if compare is not None:
            self._running.append(self._executor.submit(self._check, job, compare))

    def take(self) -> tuple[CheckReport, ...]:
        """The checks that have ended; each is told once."""
        if not self._running and not self._reports:
            return ()
        while self._running and self._running[0].done():
            self._reports.append(self._running.popleft().result())
        reports, self._reports = tuple(self._reports), []
        return reports

    def _copy(self, job: SaveJob) -> Callable[[], Comparison | None] | None:
        return self._verifier.begin(job.keys, job.block_ids)

    def _check(self, job: SaveJob, compare: Callable[[], Comparison | None]) -> CheckReport:
        found = self._edge.attempt("verify blocks", compare, None)
        if found is None:
            return _skipped(job, "error")
        report = CheckReport.of(job.request_id, job.namespace, found.verdicts, found.worst)
        if report.num_failed:
            label = self._edge.attempt("quarantine a namespace", self._condemn, "", job.namespace)
            _tell(report, label, f"{self._release} --namespace {job.namespace.hex()[:12]}")
        return report


def _no_copy() -> None:
    """Nothing was copied, so nothing can be compared."""


def _skipped(job: SaveJob, reason: str) -> CheckReport:
    skipped = {reason: len(job.block_ids)}
    return CheckReport(job.request_id, job.namespace, skipped=skipped)


def _tell(report: CheckReport, label: str, release: str) -> None:
    digest = report.namespace.hex()
    worst = report.worst
    how_far = "" if worst is None else f" (rms {worst.rms:.2g}, peak {worst.peak:.2g})"
    if not label:
        _logger.error(
            "kvext: %d of %d blocks of namespace %s are not what this engine computes%s, and it "
            "could not be quarantined; switch the pool off with `kvext pool bypass on`",
            report.num_failed,
            report.num_verified,
            digest,
            how_far,
        )
        return
    _logger.error(
        "kvext: %d of %d blocks of namespace %s (%s) are not what this engine computes%s; nothing "
        "of it is loaded or stored any more. Find the cause, then drop what it holds and begin "
        "anew with `%s`",
        report.num_failed,
        report.num_verified,
        digest,
        label,
        how_far,
        release,
    )
