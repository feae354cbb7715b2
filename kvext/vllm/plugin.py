"""The entry point that vLLM calls in each of its processes, before it reads any weights."""

__all__ = ["CONNECTOR_NAME", "register"]

CONNECTOR_NAME = "KvextConnector"


def register() -> None:
    """Make `KvextConnector` known to vLLM; calling it again changes nothing."""
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # noqa: PLC0415 - lazy on purpose
        KVConnectorFactory,
    )

    from kvext.vllm.epoch import mark_idle  # noqa: PLC0415 - lazy on purpose

    try:
        KVConnectorFactory.register_connector(CONNECTOR_NAME, "kvext.vllm.entry", CONNECTOR_NAME)
    except ValueError:  # registered before: vLLM calls plug-ins more than once
        return
    mark_idle()
