"""The pool's blocks in vLLM's KV events, so that routers which follow an engine see them.

Blocks are named by vLLM's own hashes, as in the events of its prefix cache; their medium is
"CPU", vLLM's word for host memory, and `ownership` tells them from other such tiers. A block
counts as stored when the worker has reported that the pool has it, whoever stored it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)

from kvext.connector.announced import AnnouncedBlocks
from kvext.connector.plan import SaveJob
from kvext.connector.report import StoreReport
from kvext.connector.rules import Matcher
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome
from kvext.vllm.support import attention_spec, drops_blocks

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

__all__ = ["MEDIUM", "OWNERSHIP", "PoolEvents", "open_events"]

_logger = logging.getLogger(__name__)

MEDIUM = "CPU"
OWNERSHIP = "kvext"
_IS_THERE = frozenset({StoreOutcome.STORED, StoreOutcome.EXISTS})
_MAX_OFFERS = 16_384


@dataclass(frozen=True, slots=True)
class _Offer:
    """What an event needs of the blocks of one `SaveJob`; the request may have ended by then."""

    keys: bytes
    parent: bytes | None
    hashes: tuple[bytes, ...]
    tokens: Sequence[int]
    extra_keys: list[Any]
    lora: Any
    session_id: Any


class PoolEvents:
    """Collects events between two steps."""

    __slots__ = ("_announced", "_block_tokens", "_events", "_offers")

    def __init__(self, lookup: Callable[[bytes], bytes], block_tokens: int) -> None:
        """Begin with nothing to tell.

        Args:
            lookup: Answers for some keys, one byte each, whether the pool has the block.
            block_tokens: Tokens a block.
        """
        self._announced: AnnouncedBlocks[bytes] = AnnouncedBlocks(lookup)
        self._block_tokens = block_tokens
        self._events: list[KVCacheEvent] = []
        self._offers: dict[int, _Offer] = {}

    def offer(self, request: "Request", job: SaveJob) -> None:
        """Remember what blocks are while the worker offers them to the pool."""
        first, stop = job.first_block, job.first_block + len(job.block_ids)
        hashes: Sequence[bytes] = request.block_hashes[:stop]
        if len(hashes) < stop:
            return  # the engine caches no prefixes, so its blocks have no hashes
        size = self._block_tokens
        extra_keys = [
            generate_block_hash_extra_keys(request, index * size, (index + 1) * size, 0)[0]
            for index in range(first, stop)
        ]
        if len(self._offers) >= _MAX_OFFERS:
            del self._offers[next(iter(self._offers))]
        self._offers[job.save_id] = _Offer(
            job.keys,
            hashes[first - 1] if first else None,
            tuple(hashes[first:stop]),
            request.all_token_ids[first * size : stop * size],
            to_event_extra_keys(extra_keys) or [],
            request.lora_request,
            getattr(request, "session_id", None),
        )

    def learn(self, store: StoreReport) -> None:
        """Announce the blocks that the pool has now and that were not announced before."""
        offer = self._offers.pop(store.save_id, None)
        if offer is None:
            return
        news = [
            index
            for index, outcome in enumerate(store.outcomes)
            if outcome in _IS_THERE and self._key(offer, index) not in self._announced
        ]
        for run in _runs(news):
            self._events.append(self._stored(offer, run))
            for index in run:
                displaced = self._announced.add(self._key(offer, index), offer.hashes[index])
                if displaced is not None:
                    self._events.append(_removed([displaced]))

    def take(self) -> list[KVCacheEvent]:
        """The events since the last call; looks up a few announced blocks again."""
        gone = self._announced.sweep()
        if gone:
            self._events.append(_removed(gone))
        events, self._events = self._events, []
        return events

    def _key(self, offer: _Offer, index: int) -> bytes:
        return offer.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]

    def _stored(self, offer: _Offer, run: range) -> BlockStored:
        parent = offer.hashes[run.start - 1] if run.start else offer.parent
        return BlockStored(
            block_hashes=[maybe_convert_block_hash(offer.hashes[index]) for index in run],
            parent_block_hash=None if parent is None else maybe_convert_block_hash(parent),
            token_ids=offer.tokens[run.start * self._block_tokens : run.stop * self._block_tokens],
            block_size=self._block_tokens,
            lora_id=None if offer.lora is None else offer.lora.lora_int_id,
            medium=MEDIUM,
            lora_name=None if offer.lora is None else offer.lora.lora_name,
            extra_keys=offer.extra_keys[run.start : run.stop] or None,
            group_idx=0,
            locality="LOCAL",
            ownership=OWNERSHIP,
            session_id=offer.session_id,
        )


def open_events(
    vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig", matcher: Matcher
) -> PoolEvents | None:
    """The events of one engine's pool, if its operator wants KV events at all."""
    wanted = vllm_config.kv_events_config
    if wanted is None or not wanted.enable_kv_cache_events:
        return None
    if drops_blocks(kv_cache_config):
        _logger.warning("kvext: no KV events of an engine with several KV groups")
        return None
    shape = RecordShape(attention_spec(kv_cache_config).block_size)
    hash_tokens = getattr(kv_cache_config, "hash_block_size", None)
    if hash_tokens not in (None, shape.block_tokens):
        _logger.warning("kvext: vLLM hashes %s tokens a block; no KV events", hash_tokens)
        return None
    return PoolEvents(lambda keys: matcher.lookup(keys, shape), shape.block_tokens)


def _removed(hashes: Sequence[bytes]) -> BlockRemoved:
    return BlockRemoved(
        block_hashes=[maybe_convert_block_hash(value) for value in hashes],
        medium=MEDIUM,
        group_idx=0,
        locality="LOCAL",
        ownership=OWNERSHIP,
    )


def _runs(indices: Sequence[int]) -> list[range]:
    """Ascending indices as ranges without gaps."""
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs
