"""What did the engine read when it loaded an adapter?

vLLM offers no hook at that moment, and only then is it certain which bytes an adapter number
stands for. So the one method that reads adapters is wrapped: the state of the files before and
after is remembered by the adapter's number. Without it adapters would have to go uncached.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from kvext.connector.plan import AdapterGuard
from kvext.errors import IdentityUnknown
from kvext.protocol.digest import WeightsSnapshot
from kvext.vllm.identity import adapter_snapshot

__all__ = ["AdapterWatch"]

_logger = logging.getLogger(__name__)


class AdapterWatch:
    """Remembers the state of each adapter's files at the time the engine read them."""

    __slots__ = ("_original", "_owner", "_seen")

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._seen: dict[int, WeightsSnapshot | None] = {}
        self._owner: Any = None
        self._original: Callable[..., Any] | None = None

    def open(self) -> None:
        """Begin to watch this process's engine."""
        from vllm.lora.worker_manager import WorkerLoRAManager  # noqa: PLC0415 - only with LoRA

        original = getattr(WorkerLoRAManager, "_load_adapter", None)
        if original is None:
            _logger.warning("kvext: this vLLM hides how it reads adapters; they run uncached")
            return

        @wraps(original)
        def load_adapter(manager: Any, lora_request: Any) -> Any:
            before = _state(lora_request.lora_path)
            adapter = original(manager, lora_request)
            self._note(lora_request, before)
            return adapter

        self._owner, self._original = WorkerLoRAManager, original
        WorkerLoRAManager._load_adapter = load_adapter  # noqa: SLF001 - vLLM has no hook

    def close(self) -> None:
        """Put vLLM's method back."""
        if self._original is not None:
            self._owner._load_adapter = self._original  # noqa: SLF001
            self._original = None

    def holds(self, guard: AdapterGuard) -> bool:
        """Whether the engine read the adapter in exactly the guarded state."""
        return self._seen.get(guard.adapter_id) == guard.snapshot

    def _note(self, lora_request: Any, before: WeightsSnapshot | None) -> None:
        unchanged = before is not None and before == _state(lora_request.lora_path)
        self._seen[lora_request.lora_int_id] = before if unchanged else None


def _state(path: str) -> WeightsSnapshot | None:
    try:
        return adapter_snapshot(path)
    except IdentityUnknown:
        return None
