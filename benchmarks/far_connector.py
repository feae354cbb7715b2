"""kvext in an engine of this process, on memory of a speed that the caller sets: a model.

vLLM finds it by `kv_connector_module_path`. `far_connector()` gives the live one.
"""

import math

from vllm.distributed.kv_transfer import get_kv_transfer_group

from kvext.vllm.connector import KvextConnector

__all__ = ["FarConnector", "far_connector"]


class FarConnector(KvextConnector):
    """What the engine's worker has; the scheduler's half is kvext as it is."""

    def overlap_from(self, num_bytes: float = math.inf) -> None:
        """Let loads of this size and larger overlap computing."""
        self._worker.overlap_from(num_bytes)

    def pace_loads(self, bytes_per_s: float = 0.0, latency_s: float = 0.0) -> None:
        """Let loads take as long as from memory of this speed; 0 is as fast as it goes."""
        self._worker.pace_loads(bytes_per_s, latency_s)


def far_connector() -> FarConnector:
    """The connector of the engine that lives in this process."""
    connector = get_kv_transfer_group()
    assert isinstance(connector, FarConnector)
    return connector
