"""The native chain against its oracle."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.errors import TokenRangeError
from kvext.pool import block_keys, extend_chain
from kvext.protocol import key

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=100)


@settings(deadline=None)
@given(tokens, st.integers(0, 2), st.binary(min_size=32, max_size=32))
def test_native_chain_equals_the_definition(ids: list[int], skip: int, parent: bytes) -> None:
    start = min(16 * skip, len(ids) // 16 * 16)
    stop = len(ids) // 16 * 16
    assert extend_chain(parent, ids, start, stop) == key.extend_chain(parent, ids, start, stop)


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 12), st.integers(1, 4))
def test_native_block_keys_equal_the_definition(
    namespace: bytes, num_links: int, links_per_block: int
) -> None:
    links = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(num_links))
    assert block_keys(namespace, links, links_per_block) == key.block_keys(
        namespace, links, links_per_block
    )


@pytest.mark.parametrize("token", [-1, 2**32])
def test_token_outside_32_bits_is_named(token: int) -> None:
    with pytest.raises(TokenRangeError, match=f"token {token} at position 17"):
        extend_chain(key.CHAIN_ROOT, [1] * 17 + [token] + [1] * 14, 0, 32)


@pytest.mark.parametrize(("start", "stop"), [(0, 15), (0, 48), (16, 0)])
def test_ranges_that_are_no_whole_links_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="no whole links"):
        extend_chain(key.CHAIN_ROOT, [1] * 32, start, stop)
