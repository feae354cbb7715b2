"""How long the blocks of one request are worth keeping, as its sender sees it.

Priorities follow TensorRT-LLM's `KvCacheRetentionConfig`: 0 to 100, default 35, for ranges of
tokens, each for a duration, after which the default is in force again; the answer's blocks have
their own. Invariant: along a prompt the effective priority never rises, since a block without the
ones before it is of no use.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "DEFAULT_PRIORITY",
    "DEFAULT_STANDING",
    "Claim",
    "Retention",
    "RetentionRange",
    "Standing",
]

DEFAULT_PRIORITY = 35
_HIGHEST = 100


@dataclass(frozen=True, slots=True)
class RetentionRange:
    """A priority for some of the prompt's tokens.

    Attributes:
        start_token: The first.
        end_token: One past the last; None is the end of the prompt.
        priority: 0 (evict first) to 100 (evict last).
        duration_s: For how long; None is for good.
    """

    start_token: int
    end_token: int | None = None
    priority: int = DEFAULT_PRIORITY
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How to keep a request's blocks.

    Attributes:
        priority: Of all its blocks, 0 (evict first) to 100 (evict last).
        duration_s: How long the priority holds from the access on; None is for good.
        ttl_s: The blocks leave the cache this long after their last access, whatever their
            priority; None is never. Of several requests the one that lets a block live longest
            counts.
        store: Whether blocks of the request may enter the cache. If not, its hits still count.
        ranges: Priorities for ranges of the prompt's tokens, instead of `priority` there.
        answer_priority: Of blocks behind the prompt's; None is as the prompt's.
        answer_duration_s: How long that holds; None is for good.
    """

    priority: int = DEFAULT_PRIORITY
    duration_s: float | None = None
    ttl_s: float | None = None
    store: bool = True
    ranges: Sequence[RetentionRange] = ()
    answer_priority: int | None = None
    answer_duration_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what has no meaning.

        Raises:
            ValueError: A priority, duration, time to live or range is impossible.
        """
        ranges = [(each.priority, each.duration_s) for each in self.ranges]
        ranges.append((self.priority, self.duration_s))
        if self.answer_priority is not None:
            ranges.append((self.answer_priority, self.answer_duration_s))
        for priority, duration_s in ranges:
            if not 0 <= priority <= _HIGHEST:
                raise ValueError(f"priority {priority} is not within 0 to {_HIGHEST}")
            if duration_s is not None and not duration_s >= 0:
                raise ValueError(f"duration of {duration_s} s is not 0 or more")
        if self.ttl_s is not None and not self.ttl_s >= 0:
            raise ValueError(f"time to live of {self.ttl_s} s is not 0 or more")
        for each in self.ranges:
            if each.start_token < 0 or (
                each.end_token is not None and each.end_token <= each.start_token
            ):
                raise ValueError(f"tokens {each.start_token} to {each.end_token} are no range")

    @property
    def is_default(self) -> bool:
        """Whether it asks for nothing."""
        return self == _DEFAULT

    def standings(
        self, num_blocks: int, *, input_tokens: int, block_tokens: int, now_ms: int
    ) -> list["Standing"]:
        """What the request claims for each of its blocks, from the head on.

        A block in several ranges takes the highest claim, and so does one that others of the
        request with a higher claim stand behind.

        Args:
            num_blocks: Blocks of the prompt and, if they are told, of the answer.
            input_tokens: Length of the prompt.
            block_tokens: Tokens of a block.
            now_ms: The time of the access.
        """
        own = _claimed(self.priority, self.duration_s, now_ms)
        standings = [own] * num_blocks
        ranged: list[Standing | None] = [None] * num_blocks
        for each in self.ranges:
            claim = _claimed(each.priority, each.duration_s, now_ms)
            last = input_tokens if each.end_token is None else min(each.end_token, input_tokens)
            first_block = each.start_token // block_tokens
            for at in range(first_block, min(num_blocks, -(-last // block_tokens))):
                before = ranged[at]
                ranged[at] = claim if before is None else before.join(claim)
        if self.answer_priority is not None:
            claim = _claimed(self.answer_priority, self.answer_duration_s, now_ms)
            for at in range(-(-input_tokens // block_tokens), num_blocks):
                ranged[at] = claim
        for at in range(num_blocks - 1, -1, -1):
            standing = ranged[at] or own
            if at + 1 < num_blocks and standings[at + 1] is not standing:
                standing = standing.join(standings[at + 1])
            standings[at] = standing
        return standings


@dataclass(frozen=True, slots=True)
class Claim:
    """A priority up to a time, and the default from then on."""

    priority: int
    until_ms: float


@dataclass(frozen=True, slots=True)
class Standing:
    """The highest of what requests claimed for a block; without claims, the default.

    Attributes:
        claims: Either one below the default, or those above it, the highest (and soonest over)
            first.
    """

    claims: tuple[Claim, ...] = ()

    @property
    def is_low(self) -> bool:
        """Whether it may be below the default."""
        return bool(self.claims) and self.claims[0].priority < DEFAULT_PRIORITY

    @property
    def until_ms(self) -> float:
        """When the default is in force again."""
        return max((claim.until_ms for claim in self.claims), default=-math.inf)

    def priority(self, now_ms: int) -> int:
        """The priority in force."""
        for claim in self.claims:
            if now_ms < claim.until_ms:
                return claim.priority
        return DEFAULT_PRIORITY

    def next_change_ms(self, now_ms: int) -> float:
        """When the priority will be another; infinite if never."""
        return next((claim.until_ms for claim in self.claims if now_ms < claim.until_ms), math.inf)

    def join(self, other: "Standing") -> "Standing":
        """What both claim together: at any time the higher of the two."""
        if self.claims == other.claims:
            return self
        if self.is_low and other.is_low:
            mine, theirs = self.claims[0], other.claims[0]
            priority = max(mine.priority, theirs.priority)
            return Standing((Claim(priority, min(mine.until_ms, theirs.until_ms)),))
        if self.is_low or not self.claims:
            return other if not other.is_low else DEFAULT_STANDING
        if other.is_low or not other.claims:
            return self
        claims: list[Claim] = []
        for claim in sorted(self.claims + other.claims, key=lambda each: -each.priority):
            if not claims or claim.until_ms > claims[-1].until_ms:
                if claims and claims[-1].priority == claim.priority:
                    claims.pop()
                claims.append(claim)
        return Standing(tuple(claims))


DEFAULT_STANDING = Standing()
_DEFAULT = Retention()


def _claimed(priority: int, duration_s: float | None, now_ms: int) -> Standing:
    if priority == DEFAULT_PRIORITY:
        return DEFAULT_STANDING
    until_ms = math.inf if duration_s is None else now_ms + duration_s * 1000
    return Standing((Claim(priority, until_ms),))
