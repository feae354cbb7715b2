"""One request's keys where an engine has several KV groups: one chain, a key a block and group."""

from collections.abc import Callable, Sequence

from kvext.protocol.key import CHAIN_ROOT, CHAIN_TOKENS, KEY_BYTES, part_digest

__all__ = ["BlockKeys", "ExtendLinks", "GroupKeys", "MakeGroupKeys"]

ExtendLinks = Callable[[bytes, list[int], int, int], bytes]
"""The type of `kvext.pool.extend_chain`."""
BlockKeys = Callable[[bytes, bytes, int], bytes]
"""The type of `kvext.pool.block_keys`."""


class GroupKeys:
    """The keys so far; tokens, once chained, are never taken back."""

    __slots__ = ("_block_keys", "_digests", "_extend_links", "_keys", "_last_link")

    def __init__(
        self,
        namespace: bytes,
        num_groups: int,
        extend_links: ExtendLinks,
        block_keys: BlockKeys,
    ) -> None:
        """Begin with no blocks.

        Args:
            namespace: Digest of the request's namespace.
            num_groups: Groups of the engine.
            extend_links: Chains tokens.
            block_keys: Turns links into keys.
        """
        self._digests = [part_digest(namespace, rank, num_groups) for rank in range(num_groups)]
        self._extend_links = extend_links
        self._block_keys = block_keys
        self._keys = [bytearray() for _ in self._digests]
        self._last_link = CHAIN_ROOT

    @property
    def num_blocks(self) -> int:
        """Blocks that have keys."""
        return len(self._keys[0]) // KEY_BYTES

    def extend(self, tokens: list[int], block_tokens: int) -> None:
        """Derive the keys of the next whole blocks.

        Args:
            tokens: Theirs.
            block_tokens: Tokens a block, a multiple of 16.

        Raises:
            TokenRangeError: A token cannot be named; nothing has changed.
        """
        links = self._extend_links(self._last_link, tokens, 0, len(tokens))
        made = [
            self._block_keys(digest, links, block_tokens // CHAIN_TOKENS)
            for digest in self._digests
        ]
        for keys, more in zip(self._keys, made, strict=True):
            keys.extend(more)
        self._last_link = links[-KEY_BYTES:]

    def of(self, group: int, blocks: range) -> bytes:
        """The keys of some blocks of a group, 32 bytes each."""
        return bytes(self._keys[group][blocks.start * KEY_BYTES : blocks.stop * KEY_BYTES])

    def of_all(self, blocks: range) -> Sequence[bytes]:
        """The keys of some blocks, by group."""
        return [self.of(group, blocks) for group in range(len(self._keys))]


MakeGroupKeys = Callable[[bytes], GroupKeys]
"""Begins a request's keys in a namespace."""
