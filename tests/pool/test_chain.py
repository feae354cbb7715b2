"""The native chain against its oracle."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.errors import TokenRangeError
from kvext.pool import block_keys, extend_chain, extend_keys
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


digests = st.binary(min_size=32, max_size=32)


@settings(deadline=None)
@given(tokens, st.integers(1, 3), digests, digests)
def test_keys_in_one_call_equal_the_definition(
    ids: list[int], links_per_block: int, parent: bytes, namespace: bytes
) -> None:
    step = 16 * links_per_block
    ids = ids[: len(ids) // step * step]
    links = key.extend_chain(parent, ids, 0, len(ids))
    keys = key.block_keys(namespace, links, links_per_block)
    assert extend_keys(parent, namespace, ids, links_per_block) == keys + (parent + links)[-32:]


@settings(deadline=None)
@given(tokens, st.integers(0, 6), digests)
def test_keys_go_on_where_the_last_call_ended(ids: list[int], cut: int, namespace: bytes) -> None:
    ids = ids[: len(ids) // 16 * 16]
    whole = extend_keys(key.CHAIN_ROOT, namespace, ids, 1)
    first = extend_keys(key.CHAIN_ROOT, namespace, ids[: 16 * cut], 1)
    assert first[:-32] + extend_keys(first[-32:], namespace, ids[16 * cut :], 1) == whole


@pytest.mark.parametrize("token", [-1, 2**32, 2**80])
def test_token_without_a_key_is_named(token: int) -> None:
    with pytest.raises(TokenRangeError, match=f"token {token} at position 17"):
        extend_keys(key.CHAIN_ROOT, bytes(32), [1] * 17 + [token] + [1] * 14, 2)


@pytest.mark.parametrize(("num_tokens", "links_per_block"), [(15, 1), (16, 2), (48, 2), (16, 0)])
def test_tokens_that_are_no_whole_blocks_are_refused(num_tokens: int, links_per_block: int) -> None:
    with pytest.raises(ValueError, match="no whole blocks"):
        extend_keys(key.CHAIN_ROOT, bytes(32), [1] * num_tokens, links_per_block)


@pytest.mark.parametrize(("parent", "namespace"), [(bytes(31), bytes(32)), (bytes(32), bytes(33))])
def test_digests_of_another_length_are_refused(parent: bytes, namespace: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        extend_keys(parent, namespace, [1] * 16, 1)


@pytest.mark.parametrize("token", ["1", 1.5, None])
def test_what_is_no_integer_has_no_key(token: object) -> None:
    with pytest.raises((TokenRangeError, TypeError, struct.error)):
        extend_keys(key.CHAIN_ROOT, bytes(32), [1] * 15 + [token], 1)  # type: ignore[list-item]
