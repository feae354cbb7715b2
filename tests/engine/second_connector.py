"""A second connector for engines of tests: tells of itself everywhere, may bring in foreign KV."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

FOREIGN_TOKENS = 96
"""What it claims to have of every prompt that begins with `FOREIGN_START`."""
FOREIGN_START = 7


@dataclass
class Plan(KVConnectorMetadata):  # type: ignore[misc]
    block_ids: list[int] = field(default_factory=list)


@dataclass
class Report(KVConnectorWorkerMetadata):  # type: ignore[misc]
    num_steps: int

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, Report)
        return Report(self.num_steps + other.num_steps)


@dataclass
class Handshake(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    name: str = "second"


class Stats(KVConnectorStats):  # type: ignore[misc]
    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        self.data["steps"] = self.data.get("steps", 0) + other.data.get("steps", 0)
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def reset(self) -> None:
        self.data: dict[str, int] = {}

    def is_empty(self) -> bool:
        return not self.data


class Metrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """vLLM wants it of every connector with statistics."""

    num_observed = 0

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:  # noqa: ARG002
        type(self).num_observed += transfer_stats_data["steps"]


class SecondConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Options: `claims` foreign KV, `fails` to bring it in."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        options = self._kv_transfer_config.kv_connector_extra_config
        self._claims, self._fails = options.get("claims", False), options.get("fails", False)
        self._block_tokens = vllm_config.cache_config.block_size
        self._plan: list[int] = []
        self._failed: set[int] = set()
        self._layers: list[torch.Tensor] = []
        self._num_heard = 0
        self._handshakes: list[Any] = []

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        claims = self._claims and request.all_token_ids[0] == FOREIGN_START
        return (max(FOREIGN_TOKENS - num_computed_tokens, 0) if claims else 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:  # noqa: ARG002
        if num_external_tokens:
            stop = FOREIGN_TOKENS // self._block_tokens
            start = stop - num_external_tokens // self._block_tokens
            self._plan += blocks.get_block_ids()[0][start:stop]

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:  # noqa: ARG002
        plan, self._plan = Plan(self._plan), []
        return plan

    def update_connector_output(self, connector_output: Any) -> None:
        meta = connector_output.kv_connector_worker_meta
        if meta is not None:
            assert isinstance(meta, Report)
            self._num_heard += meta.num_steps

    def request_finished_all_groups(
        self,
        request: Any,  # noqa: ARG002
        block_ids: Any,  # noqa: ARG002
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, {"second": {"num_heard": self._num_heard, "shakes": len(self._handshakes)}}

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._layers = list(kv_caches.values())

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        meta = self._connector_metadata
        assert isinstance(meta, Plan)
        for layer in self._layers:
            layer[meta.block_ids] = 0.25
        if self._fails:
            self._failed.update(meta.block_ids)

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return Report(1)

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        return Stats({"steps": 1}) if self._layers else None

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any) -> KVConnectorPromMetrics | None:
        return Metrics(*args)

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None: ...

    def take_events(self) -> Iterable[Any]:
        return ()


class ShakingConnector(SecondConnector):
    """One that shakes hands itself, as connectors between hosts do."""

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return Handshake()

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        assert all(isinstance(value, Handshake) for value in metadata.values())
        self._handshakes += metadata.values()
