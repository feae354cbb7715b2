"""The module that vLLM asks for `KvextConnector`, when it first needs it.

The class is chosen then: kvext's connector if this vLLM has every hook that it uses, else one
that does nothing. So a vLLM that kvext does not fit still serves.
"""

from functools import cache
from typing import Any

from kvext.vllm.contract import changed_overrides
from kvext.vllm.hooks import changed_hooks

__all__ = ["connector_class"]


@cache
def connector_class() -> type:
    """The class that stands for `KvextConnector` in this vLLM."""
    reason = _misfit()
    if reason:
        from kvext.vllm.uncached import uncached_connector  # noqa: PLC0415 - rarely needed

        return uncached_connector(reason)
    from kvext.vllm.connector import KvextConnector  # noqa: PLC0415 - only if it fits

    return KvextConnector


def __getattr__(name: str) -> Any:
    """Answer vLLM, which takes the class from this module by name."""
    if name == "KvextConnector":
        return connector_class()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def _misfit() -> str:
    """Which hooks this vLLM lacks; empty if none."""
    try:
        from kvext.vllm.connector import KvextConnector  # noqa: PLC0415 - it may not import
        from kvext.vllm.messages import KvextReport  # noqa: PLC0415
        from kvext.vllm.stats import KvextMetrics, KvextStats  # noqa: PLC0415
    except ImportError as error:
        return str(error)
    changes = list(changed_hooks())
    for ours in (KvextConnector, KvextReport, KvextStats, KvextMetrics):
        changes += changed_overrides(ours)
    return "; ".join(changes)
