"""The native token chain: what `kvext.protocol.key` defines, in one call a request."""

from kvext.errors import TokenRangeError
from kvext.pool import _core
from kvext.protocol import key

__all__ = ["block_keys", "extend_chain", "extend_keys"]


def extend_chain(parent: bytes, tokens: list[int], start: int, stop: int) -> bytes:
    """All links of `tokens[start:stop]`; see `kvext.protocol.key.extend_chain`.

    Raises:
        TokenRangeError: A token does not fit 32 bits.
        ValueError: The range is not made of whole links inside `tokens`.
    """
    try:
        return _core.extend_chain(parent, tokens, start, stop)
    except _core.Fault:
        key.extend_chain(parent, tokens, start, stop)  # the oracle names token and position
        raise TokenRangeError(-1, start) from None


def block_keys(namespace_digest: bytes, links: bytes, links_per_block: int) -> bytes:
    """Keys of all whole blocks of `links`; see `kvext.protocol.key.block_keys`."""
    return _core.block_keys(namespace_digest, links, links_per_block)


def extend_keys(
    parent: bytes, namespace_digest: bytes, tokens: list[int], links_per_block: int
) -> bytes:
    """`extend_chain` and `block_keys` in one call.

    Args:
        parent: The link before the tokens, or `CHAIN_ROOT` at the sequence's beginning.
        namespace_digest: `Namespace.digest()`.
        tokens: The tokens of whole blocks.
        links_per_block: Tokens a block, divided by 16.

    Returns:
        One 32-byte key a block, in order, and behind them the last link, the parent of what
        follows.

    Raises:
        TokenRangeError: A token does not fit 32 bits.
        ValueError: The tokens are no whole blocks.
    """
    try:
        return _core.extend_keys(parent, namespace_digest, tokens, links_per_block)
    except _core.Fault:
        key.extend_chain(parent, tokens, 0, len(tokens))  # the oracle names token and position
        raise TokenRangeError(-1, 0) from None
