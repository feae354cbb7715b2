"""When are two blocks the same bytes? Namespace, token chain and block key.

A block's key is derived once, from contents only; names and paths identify nothing. Tokens
are chained every 16, whatever an engine's block size, so that engines with other block sizes
meet in one chain. `tests/golden/key.json` pins every value: changing one changes
`FORMAT_VERSION` or the chain's tag. The native core computes the same two functions; the
ones here are its oracle.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvext.errors import TokenRangeError
from kvext.protocol.layout import KVLayout

__all__ = [
    "CHAIN_ROOT",
    "CHAIN_TOKENS",
    "FORMAT_VERSION",
    "KEY_BYTES",
    "ExtendChain",
    "Namespace",
    "TokenChain",
    "block_keys",
    "extend_chain",
    "part_digest",
]

FORMAT_VERSION = 1
CHAIN_TOKENS = 16
KEY_BYTES = 32
CHAIN_ROOT = hashlib.sha256(b"kvext/chain/1").digest()

_NAMESPACE_TAG = b"kvext/namespace"
_PART_TAG = b"kvext/part"
_MAX_TOKEN = 2**32 - 1

ExtendChain = Callable[[bytes, Sequence[int], int, int], bytes]
"""The type of `extend_chain`, which the native core offers too."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """All that must be equal before two blocks with equal tokens hold equal bytes.

    Attributes:
        model: 32-byte digest of the architecture and of every byte of the weights.
        layout: How the engine arranges KV bytes.
        adapter: 32-byte digest of the adapter's contents, or None without one.
        domain: Who shares: a tenant, a group or `"public"`.
    """

    model: bytes
    layout: KVLayout
    adapter: bytes | None = None
    domain: str = "public"

    def __post_init__(self) -> None:
        """Refuse digests that are none.

        Raises:
            ValueError: `model` or `adapter` does not have 32 bytes.
        """
        for name, digest in (("model", self.model), ("adapter", self.adapter)):
            if digest is not None and len(digest) != KEY_BYTES:
                msg = f"{name} digest has {len(digest)} bytes, not {KEY_BYTES}"
                raise ValueError(msg)

    def digest(self) -> bytes:
        """The namespace's 32-byte name; every field is length-prefixed, so none can shift."""
        parts = (
            _NAMESPACE_TAG,
            struct.pack("<I", FORMAT_VERSION),
            self.model,
            self.layout.canonical(),
            b"" if self.adapter is None else self.adapter,
            # A client may send a lone surrogate; it has bytes of its own, too.
            self.domain.encode(errors="surrogatepass"),
        )
        hasher = hashlib.sha256()
        for part in parts:
            hasher.update(struct.pack("<I", len(part)))
            hasher.update(part)
        return hasher.digest()


def part_digest(namespace_digest: bytes, rank: int, world: int) -> bytes:
    """What the keys of one part of each block are derived from instead of the namespace.

    Parts of one block would otherwise all have one key, and so crowd one place of an index.

    Args:
        namespace_digest: `Namespace.digest()`.
        rank: Which part, as `RecordShape.rank`.
        world: Number of parts, as `RecordShape.world`; the only part of a block is the block.
    """
    if world == 1:
        return namespace_digest
    return hashlib.sha256(_PART_TAG + namespace_digest + bytes((rank, world))).digest()


def extend_chain(parent: bytes, tokens: Sequence[int], start: int, stop: int) -> bytes:
    """Derive the links of `tokens[start:stop]`, one for every 16 tokens.

    Args:
        parent: The link before `start`, or `CHAIN_ROOT` at the sequence's beginning.
        tokens: Token ids; read in place, not copied as a whole.
        start: First token to chain.
        stop: One past the last; `stop - start` is a multiple of 16.

    Returns:
        The new links, 32 bytes each, in order.

    Raises:
        TokenRangeError: A token is outside 0..2**32-1.
        ValueError: `parent` has not 32 bytes, or the range is no whole number of links.
    """
    if len(parent) != KEY_BYTES:
        msg = f"parent link has {len(parent)} bytes, not {KEY_BYTES}"
        raise ValueError(msg)
    if not 0 <= start <= stop <= len(tokens) or (stop - start) % CHAIN_TOKENS:
        msg = f"tokens {start}..{stop} of {len(tokens)} are no whole number of links of 16"
        raise ValueError(msg)
    packed = _pack_tokens(tokens, start, stop)
    link, links = parent, bytearray()
    step = 4 * CHAIN_TOKENS
    for at in range(0, len(packed), step):
        link = hashlib.sha256(link + packed[at : at + step]).digest()
        links += link
    return bytes(links)


def _pack_tokens(tokens: Sequence[int], start: int, stop: int) -> bytes:
    span = tokens[start:stop]
    try:
        return struct.pack(f"<{len(span)}I", *span)
    except struct.error:
        for position, token in enumerate(span, start):
            if not 0 <= token <= _MAX_TOKEN:
                raise TokenRangeError(token, position) from None
        raise


def block_keys(namespace_digest: bytes, links: bytes, links_per_block: int) -> bytes:
    """Derive the keys of whole blocks from their links.

    Args:
        namespace_digest: `Namespace.digest()`.
        links: The blocks' links, 32 bytes each; surplus links at the end are ignored.
        links_per_block: Tokens a block, divided by 16.

    Returns:
        One 32-byte key a whole block, in order.

    Raises:
        ValueError: The digest has not 32 bytes, `links` is no whole number of links, or
            `links_per_block` is below 1.
    """
    if len(namespace_digest) != KEY_BYTES:
        msg = f"namespace digest has {len(namespace_digest)} bytes, not {KEY_BYTES}"
        raise ValueError(msg)
    if len(links) % KEY_BYTES or links_per_block < 1:
        msg = f"{len(links)} bytes of links cannot be cut into blocks of {links_per_block} links"
        raise ValueError(msg)
    step = links_per_block * KEY_BYTES
    return b"".join(
        hashlib.sha256(namespace_digest + links[end - KEY_BYTES : end]).digest()
        for end in range(step, len(links) + 1, step)
    )


class TokenChain:
    """The chain of one request, extended as its tokens are accepted.

    Only accepted tokens may be given: a link, once derived, is never taken back.
    """

    __slots__ = ("_extend", "_links")

    def __init__(self, extend: ExtendChain = extend_chain) -> None:
        """Begin an empty chain.

        Args:
            extend: `extend_chain`, this module's or the native core's.
        """
        self._extend = extend
        self._links = bytearray()

    @property
    def num_tokens(self) -> int:
        """Tokens that the chain covers, a multiple of 16."""
        return len(self._links) // KEY_BYTES * CHAIN_TOKENS

    def advance(self, tokens: Sequence[int], num_accepted: int) -> None:
        """Extend the chain over the whole links within `tokens[:num_accepted]`.

        Args:
            tokens: All of the request's tokens from its beginning.
            num_accepted: How many of them are final; fewer than before is no change.

        Raises:
            TokenRangeError: A token is outside 0..2**32-1; the chain stays as it was.
        """
        start, stop = self.num_tokens, num_accepted // CHAIN_TOKENS * CHAIN_TOKENS
        if stop <= start:
            return
        parent = bytes(self._links[-KEY_BYTES:]) if start else CHAIN_ROOT
        self._links += self._extend(parent, tokens, start, stop)

    def links(self, start: int, stop: int) -> bytes:
        """The links of tokens `start..stop`, both multiples of 16 within `num_tokens`.

        Raises:
            ValueError: The range is not whole links that the chain covers.
        """
        if start % CHAIN_TOKENS or stop % CHAIN_TOKENS or not 0 <= start <= stop <= self.num_tokens:
            msg = f"tokens {start}..{stop} are no whole links of the {self.num_tokens} chained"
            raise ValueError(msg)
        per_token = KEY_BYTES // CHAIN_TOKENS
        return bytes(self._links[start * per_token : stop * per_token])
