"""Evicts the leaf of the prefix tree that promises the fewest hits per time of residence.

Each access makes records of runs of equal blocks; when a record's time in a bin of age is over, the
model learns from it. A block's worth is the Gittins index of its record at its age. Evicted blocks
are remembered (eight times the capacity, at least 16384), so that the model learns from them, too.

Invariant: a block leaves before the block in front of it; what a prompt keeps is a prefix of it.
"""

import math
from typing import NamedTuple

from kvext.tenancy.policies.features import children_bucket
from kvext.tenancy.policies.prefix_tree import CachedLeaves, TreeBlock
from kvext.tenancy.policies.prompt import UNKNOWN_MS, Past, Prompt, Turn
from kvext.tenancy.policies.runs import HazardModel, Record, Run, Runs
from kvext.tenancy.policies.sized_queue import SizedQueue
from kvext.tenancy.policies.splitmix import SplitMix64
from kvext.tenancy.policies.survival import bin_of
from kvext.tenancy.policy import Access, Admission, Session

__all__ = ["Hazard"]

_GHOSTS_PER_CAPACITY = 8
_LEAST_GHOSTS = 16384
_SAMPLE_SIZE = 64
_LEAST_KNOWN = 2  # a single block in common does not make a conversation
_CHANGED_BLOCKS = 2  # the tail is partial, and an answer is not always sent back


class _Choice(NamedTuple):
    """The block of least worth in a sample, and what the next best is worth."""

    block: TreeBlock
    runner_up_worth: float


class Hazard:
    """`Rules` around a model of the hazard."""

    __slots__ = (
        "_blocks",
        "_by_seconds",
        "_capacity",
        "_ghosts",
        "_leaves",
        "_random",
        "_request",
        "_runs",
        "_size",
    )

    def __init__(self, model: HazardModel, capacity: int, *, seed: int, by_seconds: bool) -> None:
        """Begin empty.

        Args:
            model: Estimates hazards, and learns.
            capacity: The most that the cache may hold.
            seed: Of the samples.
            by_seconds: A hit is worth what computing the block again would take; else 1.
        """
        self._capacity = capacity
        self._by_seconds = by_seconds
        self._random = SplitMix64(seed)
        self._blocks: dict[int, TreeBlock] = {}
        self._ghosts = SizedQueue()
        self._leaves = CachedLeaves()
        self._runs = Runs(model)
        self._request = 0
        self._size = 0

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._size

    def admit(self, access: Access, limit: int) -> Admission:
        """See `Rules.admit`."""
        num_hits = num_known = 0
        for depth, key in enumerate(access.keys):
            num_known += num_known == depth and key in self._blocks
            num_hits += num_hits == depth and key in self
        path = self._find_path(access)
        self._runs.learn(access.now_ms)
        self._start_records(access, path, min(num_known, len(path)))
        for block in path:
            if not block.is_cached:
                self._take_in(block, access.block_size)
        victims = self._shrink(limit, access.now_ms, bypass=path)
        self._trim_ghosts()
        return Admission(num_hits, victims)

    def shrink(self, target: int, now_ms: int) -> list[int]:
        """See `Rules.shrink`."""
        return self._shrink(target, now_ms, bypass=[])

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        block = self._blocks.get(key)
        if block is None:
            return
        if block.is_cached:
            self._take_out(block)
        else:
            self._ghosts.take(key)
        self._forget(key)

    def retire(self, key: int) -> None:
        """See `Rules.retire`."""
        if key in self:
            self._become_ghost(self._blocks[key])

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._capacity = capacity
        self._trim_ghosts()

    def __contains__(self, key: int) -> bool:
        block = self._blocks.get(key)
        return block is not None and block.is_cached

    # What a request teaches.

    def _find_path(self, access: Access) -> list[TreeBlock]:
        """The prompt's blocks, each once, unknown ones made; notes the hits in their records."""
        self._request += 1
        path: list[TreeBlock] = []
        for key in access.keys:
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = TreeBlock(key, access.block_size)
            elif block.last_request == self._request:
                continue
            if block.record is not None:
                block.record.note_hit(access.now_ms)
            block.last_request = self._request
            self._leaves.follow(block, path[-1] if path else None)
            path.append(block)
        return path

    def _start_records(self, access: Access, path: list[TreeBlock], num_known: int) -> None:
        """One new record for each run of blocks that have the same past."""
        turn = _turn(path, num_known, access.now_ms)
        prompt = Prompt(access, len(path), len(path) - num_known, turn)
        run_past: Past | None = None
        record: Record | None = None
        for position, block in enumerate(path):
            block.num_accesses += 1
            is_tail = access.partial_tail and block is path[-1]
            past = Past(
                block.record, block.num_accesses, children_bucket(block.num_children), is_tail
            )
            if record is None or past != run_past:
                record, run_past = _new_record(prompt, past, position), past
                self._runs.start(record)
            block.record = record
            record.num_blocks += 1
            if self._by_seconds:
                block.hit_value = access.first_cost_s + position * access.cost_step_s

    # What the cache holds.

    def _take_in(self, block: TreeBlock, size: int) -> None:
        if block.key in self._ghosts:
            self._ghosts.take(block.key)
        block.size = size
        self._size += size
        self._leaves.take_in(block)

    def _take_out(self, block: TreeBlock) -> None:
        self._leaves.take_out(block)
        self._size -= block.size

    def _become_ghost(self, block: TreeBlock) -> None:
        self._take_out(block)
        self._ghosts.push(block.key, block.size)

    def _forget(self, key: int) -> None:
        self._blocks.pop(key).parent = None  # else a chain of them would stay in memory

    def _trim_ghosts(self) -> None:
        while self._ghosts.size > max(_LEAST_GHOSTS, _GHOSTS_PER_CAPACITY * self._capacity):
            key, _ = self._ghosts.take_oldest()
            self._forget(key)

    # Who goes.

    def _shrink(self, target: int, now_ms: int, bypass: list[TreeBlock]) -> list[int]:
        """Of a sample of leaves the one of least worth goes.

        Then its ancestors, while they have become leaves themselves and are worth no more than
        the sample's second.
        """
        victims = []
        bypass = list(bypass)
        while self._size > target:
            choice = self._choose(now_ms, bypass)
            block: TreeBlock | None = choice.block
            while block is not None:
                parent = block.parent
                victims.append(block.key)
                self._become_ghost(block)
                climbs = (
                    self._size > target
                    and parent is not None
                    and parent in self._leaves
                    and self._worth(parent, now_ms) <= choice.runner_up_worth
                )
                block = parent if climbs else None
        return victims

    def _choose(self, now_ms: int, bypass: list[TreeBlock]) -> _Choice:
        """What the request brings competes with the sample: it need not be stored at all."""
        while bypass and not bypass[-1].is_cached:
            bypass.pop()
        sample = bypass[-1:] if bypass and bypass[-1] in self._leaves else []
        sample += [self._leaves.draw(self._random) for _ in range(_SAMPLE_SIZE)]
        least, *others = dict.fromkeys(sample)
        least_worth = self._worth(least, now_ms)
        runner_up_worth = math.inf
        for block in others:
            worth = self._worth(block, now_ms)
            if worth < least_worth:
                runner_up_worth = least_worth
                least, least_worth = block, worth
            elif worth < runner_up_worth:
                runner_up_worth = worth
        return _Choice(least, runner_up_worth)

    def _worth(self, block: TreeBlock, now_ms: int) -> float:
        assert block.record is not None  # noqa: S101 - what is cached was accessed
        return self._runs.index(block.record, now_ms) * block.hit_value / block.size


def _turn(path: list[TreeBlock], num_known: int, now_ms: int) -> Turn:
    """The prompt goes on where another one ended, whose last blocks may differ; or it is new."""
    if num_known < _LEAST_KNOWN:
        return Turn()
    last = path[num_known - 1].record
    if last is None or num_known + _CHANGED_BLOCKS < last.prompt_blocks:
        return Turn()
    return Turn(last.turn + 1, now_ms - last.at_ms, last.gap_ms)


def _new_record(prompt: Prompt, past: Past, position: int) -> Record:
    access, turn = prompt.access, prompt.turn
    own_gap_ms = access.now_ms - past.record.at_ms if past.record else UNKNOWN_MS
    return_bin = None
    if access.return_ms >= 0 and access.session != Session.CLOSED:
        return_bin = bin_of(access.return_ms)
    run = Run(prompt.features(past, position, own_gap_ms), return_bin)
    return Record(run, access.now_ms, turn.gap_ms, prompt.num_blocks, turn.number)
