"""A connector for a vLLM that kvext does not fit: the engine serves as if there were none."""

import logging
from typing import Any

from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.version import __version__

__all__ = ["UncachedConnector", "uncached_connector"]

_logger = logging.getLogger(__name__)


class UncachedConnector(KVConnectorBase_V1, SupportsHMA):
    """Finds nothing, moves nothing; parameters are whatever this vLLM passes."""

    reason = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Say once why: vLLM makes one in its scheduler and one in each worker."""
        super().__init__(*args, **kwargs)
        if self.role is KVConnectorRole.SCHEDULER:
            _logger.warning(
                "kvext: this engine runs without the shared cache: vLLM %s differs from what kvext "
                "knows (%s); use a release that kvext is tested with, or a newer kvext",
                __version__,
                self.reason,
            )

    @property
    @override
    def requires_kv_delivery(self) -> bool:
        return False

    @override
    def get_num_new_matched_tokens(self, *args: Any, **kwargs: Any) -> tuple[int, bool]:
        return 0, False

    @override
    def build_connector_meta(self, *args: Any, **kwargs: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    @override
    def request_finished_all_groups(self, *args: Any, **kwargs: Any) -> tuple[bool, None]:
        return False, None


def uncached_connector(reason: str) -> type[UncachedConnector]:
    """Make a class that vLLM can use in place of `KvextConnector`.

    Args:
        reason: How this vLLM differs, for the warning.

    Returns:
        A class whose every method exists, also those that only this vLLM asks for.
    """
    unknown = dict.fromkeys(UncachedConnector.__abstractmethods__, _do_nothing)
    return type("UncachedConnector", (UncachedConnector,), {**unknown, "reason": reason})


def _do_nothing(*_: Any, **__: Any) -> None:
    """Answer a method that moves KV or learns of it."""
