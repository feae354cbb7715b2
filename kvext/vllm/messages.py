"""What travels between vLLM's scheduler and worker processes, in vLLM's envelopes."""

from dataclasses import dataclass, field, replace

from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvext.connector.plan import StepPlan
from kvext.connector.report import WorkerReport
from kvext.protocol.layout import KVLayout

__all__ = ["KvextHandshake", "KvextPlan", "KvextReport"]


@dataclass
class KvextPlan(KVConnectorMetadata):
    """Scheduler to worker, once a step."""

    plan: StepPlan = field(default_factory=StepPlan)


@dataclass
class KvextReport(KVConnectorWorkerMetadata):
    """Worker to scheduler, after a step in which anything happened.

    Attributes:
        report: What happened.
        handshake: Told with the first report, in case another connector's took its place.
    """

    report: WorkerReport
    handshake: "KvextHandshake | None" = None

    @override
    def aggregate(self, other: KVConnectorWorkerMetadata) -> "KvextReport":
        if not isinstance(other, KvextReport):
            return self
        mine, theirs = self.handshake, other.handshake
        handshake = mine.joined(theirs) if mine and theirs else mine or theirs
        return KvextReport(self.report.merged(other.report), handshake)


@dataclass
class KvextHandshake(KVConnectorHandshakeMetadata):
    """Worker to scheduler, once, when the KV memory is known.

    Attributes:
        layout: What the bytes of a block depend on; None if the worker does not serve.
        record_bytes: Bytes of one record, the largest if groups differ.
        group_bytes: Bytes of one record of each KV group; empty if there is one that keeps all.
        refusal: Why the worker does not serve.
        num_ranks: Workers that say so.
    """

    layout: KVLayout | None = None
    record_bytes: int = 0
    group_bytes: tuple[int, ...] = ()
    refusal: str = ""
    num_ranks: int = 1

    def joined(self, other: "KvextHandshake") -> "KvextHandshake":
        """What two ranks say together: they serve if both do, and hold alike shards."""
        refused = next((said for said in (self, other) if said.layout is None), None)
        if refused is not None:
            return refused
        if (self.layout, self.record_bytes) != (other.layout, other.record_bytes):
            return KvextHandshake(
                refusal="ranks whose KV differs in layout are not supported yet; use another "
                "--tensor-parallel-size"
            )
        return replace(self, num_ranks=self.num_ranks + other.num_ranks)
