"""What a request got from the cache and gave to it, as its response shows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvext.connector.report import LoadReport, StoreReport
from kvext.connector.shadow import CheckReport

__all__ = ["RequestCounts"]


@dataclass(slots=True)
class RequestCounts:
    """One request's running totals.

    Attributes:
        local_tokens: Tokens that the engine's own cache had at first admission.
        pool_tokens: Tokens that the engine was spared by loads.
        loaded_blocks: Blocks that were copied in.
        loaded_bytes: Their bytes.
        load_s: Time that took.
        load_wait_s: Time that the request waited for it; less, where it hid behind computing.
        loads: How blocks came in, or that they were computed instead: times, by `LoadWay`.
        stored_blocks: Blocks that this request added to the pool.
        existing_blocks: Offered blocks that the pool had.
        store_s: Time that took.
        unreported_stores: Offered blocks of which the worker has not told yet; the engine
            finishes a request before it hears of the request's last step.
        rejected: Offered blocks that the pool did not take, by reason.
        failed_loads: Blocks that were found but could not be loaded, by reason.
        verified: Computed blocks that were compared with the pool's, by verdict.
        reason: Why not more was found; empty when everything was.
    """

    local_tokens: int = 0
    pool_tokens: int = 0
    loaded_blocks: int = 0
    loaded_bytes: int = 0
    load_s: float = 0.0
    load_wait_s: float = 0.0
    loads: Mapping[str, int] = field(default_factory=dict)
    stored_blocks: int = 0
    existing_blocks: int = 0
    store_s: float = 0.0
    unreported_stores: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    failed_loads: Mapping[str, int] = field(default_factory=dict)
    verified: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    def add_load(self, report: LoadReport, block_tokens: int) -> None:
        """Fold in what became of a load."""
        self.pool_tokens += report.num_usable * block_tokens
        self.loaded_blocks += report.num_loaded
        self.loaded_bytes += report.loaded_bytes
        self.load_s += report.seconds
        self.load_wait_s += report.cost_s
        self.loads = _sum(self.loads, {report.way.value: 1})
        if report.failures:
            self.failed_loads = _sum(self.failed_loads, report.failures)

    def add_refusal(self, num_blocks: int, reason: str) -> None:
        """Fold in blocks that were never offered."""
        self.rejected = _sum(self.rejected, {reason: num_blocks})

    def add_store(self, report: StoreReport) -> None:
        """Fold in what became of an offer."""
        self.stored_blocks += report.num_stored
        self.existing_blocks += report.num_existing
        self.store_s += report.seconds
        self.unreported_stores -= report.num_offered
        if report.rejections:
            self.rejected = _sum(self.rejected, report.rejections)

    def add_check(self, check: CheckReport) -> None:
        """Fold in what a comparison has found."""
        self.verified = _sum(self.verified, check.by_verdict())

    def as_dict(self) -> dict[str, object]:
        """JSON-ready, without what is empty for most requests."""
        counts: dict[str, object] = {
            "local_tokens": self.local_tokens,
            "pool_tokens": self.pool_tokens,
            "loaded_blocks": self.loaded_blocks,
            "loaded_bytes": self.loaded_bytes,
            "load_ms": _ms(self.load_s),
            "load_wait_ms": _ms(self.load_wait_s),
            "stored_blocks": self.stored_blocks,
            "existing_blocks": self.existing_blocks,
            "store_ms": _ms(self.store_s),
            "unreported_stores": self.unreported_stores,
        }
        if self.loads:
            counts["loads"] = dict(self.loads)
        if self.rejected:
            counts["rejected"] = dict(self.rejected)
        if self.failed_loads:
            counts["failed_loads"] = dict(self.failed_loads)
        if self.verified:
            counts["verified"] = dict(self.verified)
        if self.reason:
            counts["reason"] = str(self.reason)
        return counts


def _sum(counts: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    total = Counter(counts)
    total.update(more)
    return total


def _ms(seconds: float) -> float:
    """Milliseconds to the microsecond; `round` with digits would go through a string."""
    return round(seconds * 1e6) / 1e3
