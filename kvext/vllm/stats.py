"""kvext's counters in vLLM's log line and on its `/metrics` page."""

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvext.connector.report import WorkerReport

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["KvextMetrics", "KvextStats"]

_FIGURES = {
    "loaded_blocks": "blocks copied from the pool into the engine",
    "loaded_bytes": "bytes copied from the pool into the engine",
    "load_seconds": "time that loads took",
    "load_stall_seconds": "time that steps stood still for loads",
    "stored_blocks": "blocks that this engine added to the pool",
    "stored_bytes": "bytes that this engine added to the pool",
    "existing_blocks": "blocks offered to the pool that it had",
    "store_seconds": "time the worker spent on stores",
    "shadow_verified_blocks": "blocks that this engine computed and compared with the pool's",
    "shadow_identical_blocks": "of these, blocks that were equal bit by bit",
    "shadow_tolerated_blocks": "of these, blocks with other bits, within the tolerance",
    "shadow_failed_blocks": "of these, blocks that differed; their namespace is in quarantine",
}
_WAYS = {
    "loads": "loads of a request's blocks by the way they came in; recompute, shadow: not loaded",
}
_REASONS = {
    "failed_loads": "blocks found in the pool that could not be loaded, by reason",
    "rejected_stores": "blocks offered to the pool that it did not take, by reason",
    "shadow_skipped_blocks": "blocks that could not be compared with the pool's, by reason",
    "faults": "pieces of kvext that failed inside the engine, by name",
}


class KvextStats(KVConnectorStats):
    """Sums since the last time vLLM asked."""

    data: dict[str, float]

    @classmethod
    def of(cls, report: WorkerReport) -> "KvextStats":
        """The sums of one report."""
        stats = cls()
        for load in report.loads:
            stats.add("loaded_blocks", load.num_loaded)
            stats.add("loaded_bytes", load.loaded_bytes)
            stats.add("load_seconds", load.seconds)
            stats.add("load_stall_seconds", load.stall_s)
            stats.add(f"loads:{load.way.value}", 1)
            stats.add_reasons("failed_loads", load.failures)
        for store in report.stores:
            stats.add("stored_blocks", store.num_stored)
            stats.add("stored_bytes", store.stored_bytes)
            stats.add("existing_blocks", store.num_existing)
            stats.add("store_seconds", store.seconds)
            stats.add_reasons("rejected_stores", store.rejections)
        for check in report.checks:
            stats.add("shadow_verified_blocks", check.num_verified)
            stats.add("shadow_identical_blocks", check.num_identical)
            stats.add("shadow_tolerated_blocks", check.num_tolerated)
            stats.add("shadow_failed_blocks", check.num_failed)
            stats.add_reasons("shadow_skipped_blocks", check.skipped)
        return stats

    def add(self, figure: str, amount: float) -> None:
        """Add to one figure."""
        if amount:
            self.data[figure] = self.data.get(figure, 0) + amount

    def add_reasons(self, figure: str, amounts: Any) -> None:
        """Add to a figure that is told by reason."""
        for reason, amount in amounts.items():
            self.add(f"{figure}:{reason}", amount)

    @override
    def reset(self) -> None:
        self.data = {}

    @override
    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for figure, amount in other.data.items():
            self.add(figure, amount)
        return self

    @override
    def reduce(self) -> dict[str, int | float]:
        return {f"kvext {figure}": amount for figure, amount in sorted(self.data.items())}

    @override
    def is_empty(self) -> bool:
        return not self.data


class KvextMetrics(KVConnectorPromMetrics):
    """One Prometheus counter a figure, named `kvext:<figure>`, some by a label of their own."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        """Register the counters."""
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        _unregister_ours()
        make: Any = self._counter_cls
        self._figures = {
            name: make(name=f"kvext:{name}", documentation=text, labelnames=labelnames)
            for name, text in _FIGURES.items()
        }
        self._kinds = {
            name: make(name=f"kvext:{name}", documentation=text, labelnames=[*labelnames, label])
            for label, kinds in (("reason", _REASONS), ("way", _WAYS))
            for name, text in kinds.items()
        }

    @override
    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for figure, amount in transfer_stats_data.items():
            name, _, kind = figure.partition(":")
            if kind:
                self._kinds[name].labels(*labels, kind).inc(amount)
            else:
                self._figures[name].labels(*labels).inc(amount)


def _unregister_ours() -> None:
    """Make room for another engine of the same process, as vLLM does with its own counters."""
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - there is no other way
        if getattr(collector, "_name", "").startswith("kvext:"):
            REGISTRY.unregister(collector)
