"""What of a vLLM request matters to the cache, in the connector's terms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vllm.v1.request import RequestStatus

from kvext.connector.adapters import AdapterRef
from kvext.connector.namespaces import Subject
from kvext.connector.plan import ScheduledRequest
from kvext.pool import extend_chain

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

__all__ = [
    "VllmBlocks",
    "ended_by_itself",
    "extend_request_chain",
    "scheduled_requests",
    "subject_of",
    "uncached_reason",
]

_COMPLETE = frozenset(
    {
        RequestStatus.FINISHED_STOPPED,
        RequestStatus.FINISHED_LENGTH_CAPPED,
        RequestStatus.FINISHED_REPETITION,
    }
)


class VllmBlocks:
    """vLLM's block tables and prefix cache, for an engine with one KV group."""

    __slots__ = ("_manager",)

    def __init__(self, manager: "KVCacheManager") -> None:
        """Look through vLLM's own manager."""
        self._manager = manager

    def block_ids(self, request_id: str) -> Sequence[int]:
        """The blocks that a request has now."""
        block_ids: list[int] = self._manager.get_block_ids(request_id)[0]
        return block_ids

    def forget(self, block_ids: set[int]) -> None:
        """Take blocks out of vLLM's prefix cache; requests that hold them keep them."""
        self._manager.evict_blocks(block_ids)


def extend_request_chain(parent: bytes, tokens: Sequence[int], start: int, stop: int) -> bytes:
    """`extend_chain` over vLLM's read-only token list, whose slices are plain lists."""
    return extend_chain(parent, list(tokens[start:stop]), 0, stop - start)


def subject_of(request: "Request") -> Subject:
    """Whose KV a request computes and with whom it may be shared."""
    lora = request.lora_request
    adapter = None if lora is None else AdapterRef(lora.lora_int_id, lora.lora_name, lora.lora_path)
    return Subject(adapter, request.cache_salt or "")


def uncached_reason(request: "Request") -> str:
    """Why the cache must not touch a request, or nothing."""
    if request.mm_features:
        return "unsupported: multi-modal input"
    if request.prompt_embeds is not None or request.prompt_is_token_ids is not None:
        return "unsupported: prompt embeddings"
    if request.resumable:
        return "unsupported: a streaming session takes tokens back"
    if request.pooling_params is not None:
        return "unsupported: pooling"
    return ""


def scheduled_requests(
    requests: Mapping[str, "Request"], output: "SchedulerOutput"
) -> Iterator[ScheduledRequest]:
    """The requests of one step, as they were before it."""
    for request_id, num_scheduled in output.num_scheduled_tokens.items():
        request = requests.get(request_id)
        if request is not None:
            yield ScheduledRequest(
                request_id, request.num_tokens, request.num_computed_tokens, num_scheduled
            )


def ended_by_itself(request: "Request") -> bool:
    """Whether a finished request was complete, not aborted or failed."""
    return request.status in _COMPLETE
