"""The identity of a block: golden values, and that different things never share a name."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvext.errors import TokenRangeError
from kvext.protocol.key import (
    CHAIN_ROOT,
    CHAIN_TOKENS,
    FORMAT_VERSION,
    KEY_BYTES,
    Namespace,
    TokenChain,
    block_keys,
    extend_chain,
    part_digest,
)
from kvext.protocol.layout import KVLayout

_GOLDEN_PATH = Path(__file__).parents[1] / "golden" / "key.json"

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=200)
digests = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
names = st.text(max_size=12)
counts = st.integers(0, 2**32 - 1)
layouts = st.builds(KVLayout, names, counts, counts, counts, names)
namespaces = st.builds(Namespace, digests, layouts, st.none() | digests, names)


@pytest.fixture(scope="module")
def golden() -> Any:
    return json.loads(_GOLDEN_PATH.read_text())


def _split(joined: bytes) -> list[str]:
    return [joined[at : at + KEY_BYTES].hex() for at in range(0, len(joined), KEY_BYTES)]


def test_each_part_of_a_block_has_keys_of_its_own() -> None:
    namespace = b"n" * 32
    digests = [part_digest(namespace, rank, world) for world in (2, 3) for rank in range(world)]
    assert len({namespace, *digests}) == 6
    assert part_digest(namespace, 0, 1) == namespace


def test_chain_root_and_format_version_are_the_golden_ones(golden: Any) -> None:
    assert (CHAIN_ROOT.hex(), FORMAT_VERSION) == (golden["chain_root"], golden["format_version"])


def test_links_are_the_golden_ones(golden: Any) -> None:
    assert _split(extend_chain(CHAIN_ROOT, golden["tokens"], 0, 64)) == golden["links"]


def test_namespace_digests_and_block_keys_are_the_golden_ones(golden: Any) -> None:
    links = bytes.fromhex("".join(golden["links"]))
    for entry in golden["namespaces"]:
        namespace = Namespace(
            model=bytes.fromhex(entry["model"]),
            layout=KVLayout(**entry["layout"]),
            adapter=bytes.fromhex(entry["adapter"]) if entry["adapter"] else None,
            domain=entry["domain"],
        )
        assert namespace.digest().hex() == entry["digest"]
        for per_block, keys in entry["keys"].items():
            assert _split(block_keys(namespace.digest(), links, int(per_block))) == keys


def test_digests_of_the_parts_of_a_block_are_the_golden_ones(golden: Any) -> None:
    namespace = bytes.fromhex(golden["namespaces"][0]["digest"])
    for entry in golden["parts_of_first_namespace"]:
        digest = part_digest(namespace, entry["rank"], entry["world"])
        assert digest.hex() == entry["digest"]


@given(tokens, st.lists(st.integers(0, 220), max_size=6))
def test_chain_grown_in_any_steps_equals_the_one_derived_at_once(
    ids: list[int], steps: list[int]
) -> None:
    whole = len(ids) // CHAIN_TOKENS * CHAIN_TOKENS
    chain = TokenChain()
    for step in steps:
        chain.advance(ids, min(step, len(ids)))
    chain.advance(ids, len(ids))
    assert chain.num_tokens == whole
    assert chain.links(0, whole) == extend_chain(CHAIN_ROOT, ids, 0, whole)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=CHAIN_TOKENS, max_size=100), st.data())
def test_changed_token_changes_its_link_and_all_later_ones_only(
    ids: list[int], data: st.DataObject
) -> None:
    whole = len(ids) // CHAIN_TOKENS * CHAIN_TOKENS
    at = data.draw(st.integers(0, whole - 1))
    changed = [*ids]
    changed[at] ^= 1
    before = _split(extend_chain(CHAIN_ROOT, ids, 0, whole))
    after = _split(extend_chain(CHAIN_ROOT, changed, 0, whole))
    first = at // CHAIN_TOKENS
    assert before[:first] == after[:first]
    assert not set(before[first:]) & set(after[first:])


@given(tokens, digests)
def test_larger_blocks_have_the_keys_of_their_last_smaller_ones(
    ids: list[int], namespace_digest: bytes
) -> None:
    links = extend_chain(CHAIN_ROOT, ids, 0, len(ids) // CHAIN_TOKENS * CHAIN_TOKENS)
    small, large = (_split(block_keys(namespace_digest, links, n)) for n in (1, 3))
    assert large == small[2::3]


@given(namespaces, namespaces)
@example(
    Namespace(bytes(32), KVLayout("a", 1, 1, 1, "bc")),
    Namespace(bytes(32), KVLayout("ab", 1, 1, 1, "c")),
)
@example(
    Namespace(bytes(32), KVLayout("a", 1, 1, 1, "b"), None, "c"),
    Namespace(bytes(32), KVLayout("a", 1, 1, 1, "bc"), None, ""),
)
def test_namespaces_share_a_digest_only_if_they_are_equal(one: Namespace, other: Namespace) -> None:
    assert (one.digest() == other.digest()) == (one == other)


_BASE = Namespace(b"m" * 32, KVLayout("bfloat16", 2, 4, 64, "cpu/vec"), b"a" * 32, "public")


@pytest.mark.parametrize(
    "other",
    [
        Namespace(b"n" * 32, _BASE.layout, _BASE.adapter, _BASE.domain),
        Namespace(_BASE.model, _BASE.layout, b"b" * 32, _BASE.domain),
        Namespace(_BASE.model, _BASE.layout, None, _BASE.domain),
        Namespace(_BASE.model, _BASE.layout, _BASE.adapter, "acme"),
        Namespace(
            _BASE.model, KVLayout("float32", 2, 4, 64, "cpu/vec"), _BASE.adapter, _BASE.domain
        ),
        Namespace(
            _BASE.model, KVLayout("bfloat16", 2, 4, 64, "cpu/amx"), _BASE.adapter, _BASE.domain
        ),
        Namespace(
            _BASE.model, KVLayout("bfloat16", 4, 2, 64, "cpu/vec"), _BASE.adapter, _BASE.domain
        ),
    ],
    ids=["model", "adapter", "no_adapter", "domain", "dtype", "packing", "swapped_counts"],
)
def test_each_field_of_a_namespace_changes_its_digest(other: Namespace) -> None:
    equal = Namespace(_BASE.model, _BASE.layout, _BASE.adapter, _BASE.domain)
    assert equal.digest() == _BASE.digest()
    assert other.digest() != _BASE.digest()


@pytest.mark.parametrize("token", [-1, 2**32])
def test_token_outside_32_bits_is_named_with_its_position(token: int) -> None:
    ids = [*range(16), *range(15), token]
    with pytest.raises(TokenRangeError, match=f"token {token} at position 31") as caught:
        extend_chain(CHAIN_ROOT, ids, 16, 32)
    assert (caught.value.token, caught.value.position) == (token, 31)


def test_refused_token_leaves_the_chain_as_it_was() -> None:
    chain = TokenChain()
    chain.advance(range(16), 16)
    with pytest.raises(TokenRangeError):
        chain.advance([*range(31), -1], 32)
    assert chain.num_tokens == 16


def test_fewer_accepted_tokens_than_before_change_nothing() -> None:
    chain = TokenChain()
    chain.advance(range(64), 50)
    chain.advance(range(64), 20)
    assert chain.num_tokens == 48


def test_chain_uses_the_function_that_it_was_given() -> None:
    calls: list[tuple[int, int]] = []

    def recording(parent: bytes, ids: Sequence[int], start: int, stop: int) -> bytes:
        calls.append((start, stop))
        return extend_chain(parent, ids, start, stop)

    chain = TokenChain(recording)
    chain.advance(range(100), 40)
    chain.advance(range(100), 100)
    assert calls == [(0, 32), (32, 96)]


@pytest.mark.parametrize(("start", "stop"), [(0, 15), (8, 24), (-16, 0), (16, 0), (0, 80)])
def test_range_that_is_no_whole_number_of_chained_links_is_refused(start: int, stop: int) -> None:
    chain = TokenChain()
    chain.advance(range(64), 64)
    with pytest.raises(ValueError, match="no whole"):
        chain.links(start, stop)


@pytest.mark.parametrize(("start", "stop"), [(0, 15), (16, 0), (0, 80), (-16, 0)])
def test_extending_over_a_partial_link_or_past_the_end_is_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        extend_chain(CHAIN_ROOT, range(64), start, stop)


def test_digests_of_a_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match="31 bytes"):
        extend_chain(bytes(31), range(16), 0, 16)
    with pytest.raises(ValueError, match="31 bytes"):
        block_keys(bytes(31), b"", 1)
    with pytest.raises(ValueError, match="adapter digest has 0 bytes"):
        Namespace(bytes(32), _BASE.layout, b"")


def test_surplus_links_make_no_key() -> None:
    assert len(block_keys(bytes(32), bytes(7 * KEY_BYTES), 2)) == 3 * KEY_BYTES
