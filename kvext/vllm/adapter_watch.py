"""What did the engine read when it loaded an adapter?

vLLM offers no hook at that moment, and only then is it certain which bytes an adapter number
stands for. So the one method that reads adapters is wrapped: the state of the files before and
after is remembered by the adapter's number. Without it adapters would have to go uncached.
"""

from typing import Any

from kvext.connector.plan import AdapterGuard
from kvext.connector.report import AdapterRead
from kvext.errors import IdentityUnknown
from kvext.protocol.digest import WeightsSnapshot
from kvext.vllm.identity import adapter_snapshot
from kvext.vllm.wrap import Wrap

__all__ = ["AdapterWatch"]


class AdapterWatch:
    """Remembers the state of each adapter's files at the time the engine read them."""

    __slots__ = ("_news", "_seen", "_wrap")

    def __init__(self) -> None:
        """Watch nothing yet."""
        from vllm.lora.worker_manager import WorkerLoRAManager  # noqa: PLC0415 - only with LoRA

        self._wrap = Wrap(WorkerLoRAManager, "_load_adapter", ("self", "lora_request"))
        self._seen: dict[int, WeightsSnapshot | None] = {}
        self._news: list[AdapterRead] = []

    def open(self) -> None:
        """Begin to watch this process's engine."""
        self._wrap.open(self._load_adapter, "adapters run uncached")

    def close(self) -> None:
        """Put vLLM's method back."""
        self._wrap.close()

    def holds(self, guard: AdapterGuard) -> bool:
        """Whether the engine read the adapter in exactly the guarded state."""
        return self._seen.get(guard.adapter_id) == guard.snapshot

    def take_news(self) -> tuple[AdapterRead, ...]:
        """The adapters that were read since the last call."""
        news, self._news = tuple(self._news), []
        return news

    def _load_adapter(self, original: Any, manager: Any, lora_request: Any) -> Any:
        before = _state(lora_request.lora_path)
        adapter = original(manager, lora_request)
        self._note(lora_request, before)
        return adapter

    def _note(self, lora_request: Any, before: WeightsSnapshot | None) -> None:
        unchanged = before is not None and before == _state(lora_request.lora_path)
        state = before if unchanged else None
        self._seen[lora_request.lora_int_id] = state
        self._news.append(AdapterRead(lora_request.lora_int_id, state))


def _state(path: str) -> WeightsSnapshot | None:
    try:
        return adapter_snapshot(path)
    except IdentityUnknown:
        return None
