"""One live request: its keys, what it was promised, what it got."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kvext.connector.counts import RequestCounts
from kvext.connector.group_keys import GroupKeys, MakeGroupKeys
from kvext.connector.namespaces import Resolution, Subject
from kvext.connector.tradeoff import Choice
from kvext.errors import IdentityError
from kvext.protocol.key import CHAIN_ROOT, CHAIN_TOKENS, KEY_BYTES
from kvext.protocol.tier import Lease

__all__ = ["ExtendKeys", "PendingMatch", "RequestState", "TokenList"]

ExtendKeys = Callable[[bytes, bytes, list[int], int], bytes]
"""The type of `kvext.pool.extend_keys`: the keys of some more blocks, then the last link."""


class TokenList(Protocol):
    """An engine's live sequence of tokens, which grows."""

    def __len__(self) -> int:
        """Tokens accepted so far."""
        ...

    def __getitem__(self, span: slice, /) -> list[int]:
        """Some of them, copied."""
        ...


@dataclass(frozen=True, slots=True)
class PendingMatch:
    """What a lookup found and the engine has not taken yet.

    Attributes:
        lease: Pins the blocks.
        first_block: Index of the first one within the request.
        is_async: What the engine was told of how they come in.
    """

    lease: Lease
    first_block: int
    is_async: bool


class RequestState:
    """What the scheduler remembers of a request between steps.

    Attributes:
        tokens: The engine's live sequence of accepted tokens.
        subject: Decides the namespace.
        resolution: The namespace once it is known, else None.
        uncached: Why the request has nothing to do with the cache; empty when it has.
        choice: What was decided about its hit, or None before it had one.
        may_load: False if nothing may be loaded, or after a load failed: a block that fails
            every time must not be tried for ever.
        match: What was found in the current scheduling pass, if anything.
        local_tokens: The engine's own hit at the last match.
        expected_tokens: That and what we load, at the last admission.
        was_promised: Whether a load was ever planned for it.
        is_admitted: Whether the engine has given it blocks before.
        wait_until_s: When waiting for an adapter's digest ends; None before it begins.
        next_save: First block that has not been offered for saving.
        due_tokens: Computed tokens that make it worth a look for what it can save.
        doubt_from: First block that a failed load has put in doubt, until it is settled, or None.
        num_wanted: Leading blocks that are worth storing, once that was judged.
        num_judged: Leading blocks that were offered or refused.
        save_limit: First block that must never be saved (it may stand on garbage), or None.
        counts: For the response.
    """

    __slots__ = (
        "_extend",
        "_group_keys",
        "_keys",
        "_last_link",
        "_make_group_keys",
        "choice",
        "counts",
        "doubt_from",
        "due_tokens",
        "expected_tokens",
        "is_admitted",
        "local_tokens",
        "match",
        "may_load",
        "next_save",
        "num_judged",
        "num_wanted",
        "resolution",
        "save_limit",
        "subject",
        "tokens",
        "uncached",
        "wait_until_s",
        "was_promised",
    )

    def __init__(
        self,
        tokens: TokenList,
        subject: Subject,
        extend: ExtendKeys,
        make_group_keys: MakeGroupKeys | None = None,
    ) -> None:
        """Begin with nothing promised."""
        self.tokens = tokens
        self.subject = subject
        self.resolution: Resolution | None = None
        self.uncached = ""
        self.choice: Choice | None = None
        self.may_load = True
        self.match: PendingMatch | None = None
        self.local_tokens = 0
        self.expected_tokens = 0
        self.was_promised = False
        self.is_admitted = False
        self.wait_until_s: float | None = None
        self.next_save = 0
        self.due_tokens = 0
        self.num_wanted: int | None = None
        self.num_judged = 0
        self.doubt_from: int | None = None
        self.save_limit: int | None = None
        self.counts = RequestCounts()
        self._extend = extend
        self._make_group_keys = make_group_keys
        self._group_keys: GroupKeys | None = None
        self._last_link = CHAIN_ROOT
        self._keys = bytearray()

    def keys(self, blocks: range, namespace: bytes, block_tokens: int) -> bytes:
        """The keys of some blocks, or none if the tokens cannot be named, which uncaches us.

        Args:
            blocks: Consecutive block indices within the request, whose tokens are all accepted.
            namespace: The request's namespace digest, the same at every call.
            block_tokens: Tokens a block, a multiple of 16, the same at every call.

        Returns:
            32 bytes a block.
        """
        have, need = len(self._keys) // KEY_BYTES, blocks.stop
        if need > have:
            tokens = self.tokens[have * block_tokens : need * block_tokens]
            if len(tokens) != (need - have) * block_tokens:
                msg = f"{len(self.tokens)} tokens do not fill {need} blocks of {block_tokens}"
                raise ValueError(msg)
            try:
                made = self._extend(
                    self._last_link, namespace, tokens, block_tokens // CHAIN_TOKENS
                )
            except IdentityError as error:
                self.refuse(str(error))
                return b""
            keys, link = made[:-KEY_BYTES], made[-KEY_BYTES:]
            self._keys += keys  # the link must not go on without them
            self._last_link = link
            if blocks.start == have:
                return keys
        return bytes(self._keys[blocks.start * KEY_BYTES : need * KEY_BYTES])

    def group_keys(self, stop: int, namespace: bytes, block_tokens: int) -> GroupKeys | None:
        """The keys of an engine with several groups, at least as far as asked; see `keys`.

        Args:
            stop: Blocks that need keys, whose tokens are all accepted.
            namespace: The request's namespace digest, the same at every call.
            block_tokens: Tokens a block, the same at every call.
        """
        if self._group_keys is None:
            if self._make_group_keys is None:
                return None
            self._group_keys = self._make_group_keys(namespace)
        keys = self._group_keys
        have = keys.num_blocks
        if stop > have:
            tokens = self.tokens[have * block_tokens : stop * block_tokens]
            if len(tokens) != (stop - have) * block_tokens:
                msg = f"{len(self.tokens)} tokens do not fill {stop} blocks of {block_tokens}"
                raise ValueError(msg)
            try:
                keys.extend(tokens, block_tokens)
            except IdentityError as error:
                self.refuse(str(error))
                return None
        return keys

    def refuse(self, reason: str) -> None:
        """Have nothing to do with the cache from now on."""
        self.uncached = self.counts.reason = reason

    def release_match(self) -> None:
        """Give up what the last lookup found, if the engine did not take it."""
        match, self.match = self.match, None
        if match is not None:
            match.lease.release()
