"""What of a vLLM request matters to the cache, in the connector's terms."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vllm.v1.request import RequestStatus

from kvext.connector.adapters import AdapterRef
from kvext.connector.namespaces import Subject

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.request import Request

__all__ = [
    "VllmBlocks",
    "ended_by_itself",
    "subject_of",
    "uncached_reason",
    "unread_reason",
]

_COMPLETE = frozenset(
    {
        RequestStatus.FINISHED_STOPPED,
        RequestStatus.FINISHED_LENGTH_CAPPED,
        RequestStatus.FINISHED_REPETITION,
    }
)
_ANYBODY = Subject()


class VllmBlocks:
    """vLLM's block tables and prefix cache."""

    __slots__ = ("_manager", "_requests")

    def __init__(self, manager: "KVCacheManager", requests: Mapping[str, "Request"]) -> None:
        """Look through vLLM's own manager at the requests that live."""
        self._manager = manager
        self._requests = requests

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return int(self._manager.block_pool.num_gpu_blocks)

    @property
    def null_block(self) -> int:
        """What stands in a table for a block that was dropped."""
        return int(self._manager.block_pool.null_block.block_id)

    def num_computed(self, request_id: str) -> int:
        """A request's computed tokens; while a step is planned, those before it."""
        return int(self._requests[request_id].num_computed_tokens)

    def block_ids(self, request_id: str, group: int = 0) -> Sequence[int]:
        """The blocks that a request has now."""
        block_ids: list[int] = self._manager.get_block_ids(request_id)[group]
        return block_ids

    def block_ids_of(self, request_id: str, blocks: range, group: int = 0) -> Sequence[int]:
        """Some of them; `block_ids` would build a list of all, thousands for long contexts."""
        held = self._manager.get_blocks(request_id).blocks[group]
        return [block.block_id for block in held[blocks.start : blocks.stop]]

    def forget(self, block_ids: set[int]) -> None:
        """Take blocks out of vLLM's prefix cache; requests that hold them keep them."""
        self._manager.evict_blocks(block_ids)

    def rewind(self, request_id: str, num_tokens: int) -> None:
        """Lower what vLLM takes for computed; it has dropped the step's output of such requests."""
        request = self._requests.get(request_id)
        if request is not None and not request.num_in_flight_tokens:
            request.num_computed_tokens = min(request.num_computed_tokens, num_tokens)


def subject_of(request: "Request") -> Subject:
    """Whose KV a request computes and with whom it may be shared."""
    lora, salt = request.lora_request, request.cache_salt
    if lora is None and not salt:
        return _ANYBODY
    adapter = None if lora is None else AdapterRef(lora.lora_int_id, lora.lora_name, lora.lora_path)
    return Subject(adapter, salt or "")


def unread_reason(request: "Request", *, reads: bool) -> str:
    """Why nothing may be loaded for a request, or nothing; `reads` is the engine's role."""
    if not reads:
        return "not_asked: kv_role is kv_producer"
    if request.skip_reading_prefix_cache:
        return "not_asked: the request wants every prompt token computed (prompt log-probs)"
    return ""


def uncached_reason(request: "Request", *, num_ranks: int = 1) -> str:
    """Why the cache must not touch a request, or nothing."""
    if num_ranks > 1 and request.lora_request is not None:
        # Its files may change between two ranks' reading; only one of them would notice.
        return "unsupported: adapters with tensor parallelism"
    if request.mm_features:
        return "unsupported: multi-modal input"
    if request.prompt_embeds is not None or request.prompt_is_token_ids is not None:
        return "unsupported: prompt embeddings"
    if request.resumable:
        return "unsupported: a streaming session takes tokens back"
    if request.pooling_params is not None:
        return "unsupported: pooling"
    return ""


def ended_by_itself(request: "Request") -> bool:
    """Whether a finished request was complete, not aborted or failed."""
    return request.status in _COMPLETE
