"""When do the weights of a running engine change?

Whatever reaches vLLM's workers from outside passes `EngineCore.collective_rpc` or
`EngineCore.sleep`, between two steps. Calls that are known not to touch the weights pass; before
any other one the engine's identity becomes unknown. Only `reload_weights` from files can make it
known again, since it alone says which bytes are in memory afterwards.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvext.connector.edge import Edge
from kvext.vllm.wrap import Wrap

__all__ = ["HARMLESS_CALLS", "Reload", "WeightsWatch"]

HARMLESS_CALLS = frozenset(
    {
        "add_lora",
        "check_health",
        "checkpoint_prepare",
        "checkpoint_restore",
        "compute_weight_checksums",
        "get_compilation_match_table",
        "get_encoder_timing_stats",
        "get_kv_cache_spec",
        "get_kv_connector_handshake_metadata",
        "get_model_inspection",
        "get_supported_tasks",
        "list_loras",
        "pin_lora",
        "profile",
        "release_late_interaction_query_cache",
        "remove_lora",
        "reset_encoder_cache",
        "reset_mm_cache",
        "save_sharded_state",
        "save_tensorized_model",
        "supports_draft_weight_updates",
        "synchronize_device",
        "update_max_model_len",
    }
)
"""Worker methods of vLLM 0.32 that leave the weights alone; adapters are watched elsewhere."""

_OVERWRITTEN = frozenset({"reload_weights", "reset_weights", "sleep"})
"""Calls whose effect a later reload of all tensors undoes; after any other nothing is certain."""

_LEVEL_THAT_DISCARDS = 2
"""From this sleep level on vLLM drops the weights instead of keeping a copy."""


@dataclass(frozen=True, slots=True)
class Reload:
    """The engine has read its weights from files again.

    Attributes:
        path: The folder, or None for the one it read last.
        begun_s: When it began, in seconds since 1970.
    """

    path: str | None
    begun_s: float


class WeightsWatch:
    """Tells of changes from `open` to `close`."""

    __slots__ = ("_before", "_call", "_edge", "_reloaded", "_sleep")

    def __init__(
        self, edge: Edge, before: Callable[[str, bool], None], reloaded: Callable[[Reload], None]
    ) -> None:
        """Watch nothing yet.

        Args:
            edge: Keeps our faults out of vLLM's calls.
            before: Told what is about to change the weights, and whether a reload undoes it.
            reloaded: Told when all weights were read from files without an error.
        """
        from vllm.v1.engine.core import EngineCore  # noqa: PLC0415 - only in the scheduler

        self._edge = edge
        self._before = before
        self._reloaded = reloaded
        self._call = Wrap(
            EngineCore, "collective_rpc", ("self", "method", "timeout", "args", "kwargs")
        )
        self._sleep = Wrap(EngineCore, "sleep", ("self", "level"))

    def open(self) -> bool:
        """Begin to watch; False if this vLLM cannot be watched, after a warning."""
        without = "changed weights would not be noticed, so the engine runs uncached"
        return self._call.open(self._around_call, without) and self._sleep.open(
            self._around_sleep, without
        )

    def close(self) -> None:
        """Leave vLLM as it was."""
        self._call.close()
        self._sleep.close()

    def _around_call(
        self,
        original: Any,
        core: Any,
        method: Any,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if method in HARMLESS_CALLS:
            return original(core, method, timeout, args, kwargs)
        name = method if isinstance(method, str) else "a function of its caller"
        self._tell_before(name)
        begun_s = time.time()
        result = original(core, method, timeout, args, kwargs)
        if name == "reload_weights" and _reads_files(args, kwargs or {}):
            reload = Reload((kwargs or {}).get("weights_path"), begun_s)
            self._edge.attempt("learn new weights", lambda: self._reloaded(reload), None)
        return result

    def _around_sleep(self, original: Any, core: Any, level: int = 1, **rest: Any) -> Any:
        if level >= _LEVEL_THAT_DISCARDS:
            self._tell_before("sleep")
        return original(core, level, **rest)

    def _tell_before(self, name: str) -> None:
        self._edge.attempt(
            "forget the weights", lambda: self._before(name, name in _OVERWRITTEN), None
        )


def _reads_files(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether these arguments of `reload_weights` are ones whose effect we know."""
    path = kwargs.get("weights_path")
    return not args and set(kwargs) <= {"weights_path"} and (path is None or isinstance(path, str))
