"""What every tier owes a connector. Inherit `TierContract` and say how to make one."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import REF_BYTES, LayeredLoad, Lease
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

NUM_LAYERS = 3
NUM_BLOCKS = 40
PIECE_BYTES = 16 << 10
RECORD_BYTES = NUM_LAYERS * PIECE_BYTES
SHAPE = RecordShape(32)
NAMESPACE = b"n" * 32

WAIT_S = 30.0

LOADED = int(LoadOutcome.LOADED)
STORED = int(StoreOutcome.STORED)
EXISTS = int(StoreOutcome.EXISTS)
BYPASSED = int(StoreOutcome.BYPASSED)
NO_SPACE = int(StoreOutcome.NO_SPACE)

Layers = tuple[npt.NDArray[np.uint8], ...]


class AnyTier(Protocol):
    """A tier whose pages are whatever its fixture makes."""

    @property
    def bypassed(self) -> bool: ...

    def set_bypass(self, on: bool) -> None: ...  # noqa: FBT001 - as tiers have it

    def match(self, keys: bytes, shape: RecordShape) -> Lease: ...

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes: ...

    def store(
        self,
        keys: bytes,
        shape: RecordShape,
        namespace: bytes,
        pages: Any,
        block_ids: Sequence[int],
    ) -> bytes: ...

    def load(self, refs: bytes, pages: Any, block_ids: Sequence[int]) -> bytes: ...

    def begin_load(self, refs: bytes, pages: Any, block_ids: Sequence[int]) -> LayeredLoad: ...


def keys_of(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(KEY_BYTES, "big") for number in numbers)


class TierContract:
    """The suite; a subclass has three fixtures.

    `tier` holds `capacity` records of `RECORD_BYTES` bytes, at least 4 and fewer than
    `NUM_BLOCKS`; `pages` describes the arrays of `layers`, (NUM_BLOCKS, PIECE_BYTES) each, in
    the tier's own terms.
    """

    @pytest.fixture
    def layers(self) -> Layers:
        drawn = np.random.default_rng(7)
        return tuple(
            drawn.integers(0, 256, (NUM_BLOCKS, PIECE_BYTES), np.uint8) for _ in range(NUM_LAYERS)
        )

    def test_an_empty_tier_matches_nothing(self, tier: AnyTier) -> None:
        lease = tier.match(keys_of(1, 2), SHAPE)
        assert lease.num_blocks == 0
        assert lease.refs == b""
        lease.release()

    def test_stored_blocks_come_back_byte_for_byte(
        self, tier: AnyTier, layers: Layers, pages: Any
    ) -> None:
        before = [layer[[3, 5]].copy() for layer in layers]
        assert tier.store(keys_of(1, 2), SHAPE, NAMESPACE, pages, [3, 5]) == bytes([STORED] * 2)
        lease = tier.match(keys_of(1, 2), SHAPE)
        assert tier.load(lease.refs, pages, [10, 9]) == bytes([LOADED] * 2)
        lease.release()
        for layer, old in zip(layers, before, strict=True):
            np.testing.assert_array_equal(layer[[10, 9]], old)

    def test_a_load_touches_no_other_block(self, tier: AnyTier, layers: Layers, pages: Any) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        others = [index for index in range(NUM_BLOCKS) if index != 7]
        before = [layer[others].copy() for layer in layers]
        lease = tier.match(keys_of(1), SHAPE)
        tier.load(lease.refs, pages, [7])
        lease.release()
        for layer, old in zip(layers, before, strict=True):
            np.testing.assert_array_equal(layer[others], old)

    def test_a_match_is_the_longest_stored_prefix(self, tier: AnyTier, pages: Any) -> None:
        tier.store(keys_of(1, 2, 4), SHAPE, NAMESPACE, pages, [0, 1, 2])
        lease = tier.match(keys_of(1, 2, 3, 4), SHAPE)
        assert lease.num_blocks == 2
        assert len(lease.refs) == 2 * REF_BYTES
        lease.release()

    def test_a_look_tells_what_is_there_in_any_order(self, tier: AnyTier, pages: Any) -> None:
        tier.store(keys_of(1, 2, 4), SHAPE, NAMESPACE, pages, [0, 1, 2])
        assert tier.lookup(keys_of(4, 3, 1), SHAPE) == b"\1\0\1"
        assert tier.lookup(keys_of(1), RecordShape(64)) == b"\0"

    def test_the_first_writer_wins(self, tier: AnyTier, layers: Layers, pages: Any) -> None:
        first = [layer[0].copy() for layer in layers]
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        assert tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [1]) == bytes([EXISTS])
        lease = tier.match(keys_of(1), SHAPE)
        tier.load(lease.refs, pages, [2])
        lease.release()
        for layer, old in zip(layers, first, strict=True):
            np.testing.assert_array_equal(layer[2], old)

    def test_another_shape_is_another_record(self, tier: AnyTier, pages: Any) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        hit, miss = tier.match(keys_of(1), SHAPE), tier.match(keys_of(1), RecordShape(64))
        assert (hit.num_blocks, miss.num_blocks) == (1, 0)
        hit.release()

    def test_a_full_tier_makes_room_by_eviction(
        self, tier: AnyTier, capacity: int, pages: Any
    ) -> None:
        numbers = range(1, capacity + 4)
        outcomes = [
            tier.store(keys_of(number), SHAPE, NAMESPACE, pages, [0])[0] for number in numbers
        ]
        assert outcomes == [STORED] * len(numbers)
        leases = [tier.match(keys_of(number), SHAPE) for number in numbers]
        assert sum(lease.num_blocks for lease in leases) == capacity
        for lease in leases:
            lease.release()

    def test_pinned_blocks_survive_pressure_and_stay_readable(
        self, tier: AnyTier, capacity: int, layers: Layers, pages: Any
    ) -> None:
        kept = [layer[0].copy() for layer in layers]
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        lease = tier.match(keys_of(1), SHAPE)
        for number in range(2, 3 * capacity):
            tier.store(keys_of(number), SHAPE, NAMESPACE, pages, [1])
        assert tier.load(lease.refs, pages, [9]) == bytes([LOADED])
        lease.release()
        for layer, old in zip(layers, kept, strict=True):
            np.testing.assert_array_equal(layer[9], old)

    def test_a_tier_full_of_pins_rejects_with_a_reason(
        self, tier: AnyTier, capacity: int, pages: Any
    ) -> None:
        numbers = tuple(range(1, capacity + 1))
        tier.store(keys_of(*numbers), SHAPE, NAMESPACE, pages, list(range(capacity)))
        lease = tier.match(keys_of(*numbers), SHAPE)
        assert lease.num_blocks == capacity
        assert tier.store(keys_of(99), SHAPE, NAMESPACE, pages, [0]) == bytes([NO_SPACE])
        lease.release()
        assert tier.store(keys_of(99), SHAPE, NAMESPACE, pages, [0]) == bytes([STORED])

    def test_an_evicted_block_is_stale_not_wrong(
        self, tier: AnyTier, capacity: int, pages: Any
    ) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        lease = tier.match(keys_of(1), SHAPE)
        refs = lease.refs
        lease.release()
        for number in range(2, 4 * capacity):
            tier.store(keys_of(number), SHAPE, NAMESPACE, pages, [1])
        assert tier.match(keys_of(1), SHAPE).num_blocks == 0
        assert tier.load(refs, pages, [2]) == bytes([LoadOutcome.STALE])

    def test_releasing_twice_gives_back_once(
        self, tier: AnyTier, capacity: int, pages: Any
    ) -> None:
        numbers = tuple(range(1, capacity + 1))
        tier.store(keys_of(*numbers), SHAPE, NAMESPACE, pages, list(range(capacity)))
        once, other = tier.match(keys_of(*numbers), SHAPE), tier.match(keys_of(*numbers), SHAPE)
        once.release()
        once.release()
        assert tier.store(keys_of(99), SHAPE, NAMESPACE, pages, [0]) == bytes([NO_SPACE])
        other.release()

    def test_a_bypassed_tier_finds_nothing_stores_nothing_and_says_so(
        self, tier: AnyTier, pages: Any
    ) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        tier.set_bypass(True)
        assert tier.bypassed
        assert tier.match(keys_of(1), SHAPE).num_blocks == 0
        assert tier.store(keys_of(1, 2), SHAPE, NAMESPACE, pages, [0, 1]) == bytes([BYPASSED] * 2)
        tier.set_bypass(False)
        assert not tier.bypassed
        lease = tier.match(keys_of(1, 2), SHAPE)
        assert lease.num_blocks == 1
        lease.release()

    def test_what_was_leased_before_a_bypass_can_still_be_loaded(
        self, tier: AnyTier, pages: Any
    ) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        lease = tier.match(keys_of(1), SHAPE)
        tier.set_bypass(True)
        assert tier.load(lease.refs, pages, [3]) == bytes([LOADED])
        lease.release()

    def test_a_batch_of_nothing_is_nothing(self, tier: AnyTier, pages: Any) -> None:
        assert tier.store(b"", SHAPE, NAMESPACE, pages, []) == b""
        assert tier.load(b"", pages, []) == b""
        assert tier.match(b"", SHAPE).num_blocks == 0

    def test_a_layer_is_in_place_once_it_was_waited_for(
        self, tier: AnyTier, layers: Layers, pages: Any
    ) -> None:
        before = [layer[[3, 5]].copy() for layer in layers]
        tier.store(keys_of(1, 2), SHAPE, NAMESPACE, pages, [3, 5])
        lease = tier.match(keys_of(1, 2), SHAPE)
        load = tier.begin_load(lease.refs, pages, [10, 9])
        for place, layer in enumerate(layers):
            assert load.wait(place + 1, WAIT_S)
            np.testing.assert_array_equal(layer[[10, 9]], before[place])
        assert load.finish(WAIT_S)
        assert load.outcomes == bytes([LOADED] * 2)
        lease.release()

    def test_a_layered_load_of_an_evicted_block_is_stale_and_its_neighbour_is_right(
        self, tier: AnyTier, capacity: int, layers: Layers, pages: Any
    ) -> None:
        kept = [layer[0].copy() for layer in layers]
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [1])
        gone = tier.match(keys_of(1), SHAPE)
        refs = gone.refs
        gone.release()
        for number in range(2, 4 * capacity):
            tier.store(keys_of(number), SHAPE, NAMESPACE, pages, [0])
        lease = tier.match(keys_of(4 * capacity - 1), SHAPE)
        load = tier.begin_load(refs + lease.refs, pages, [2, 3])
        assert load.finish(WAIT_S)
        assert load.outcomes == bytes([LoadOutcome.STALE, LOADED])
        lease.release()
        for layer, old in zip(layers, kept, strict=True):
            np.testing.assert_array_equal(layer[3], old)

    def test_a_cancelled_load_has_no_outcomes(self, tier: AnyTier, pages: Any) -> None:
        tier.store(keys_of(1), SHAPE, NAMESPACE, pages, [0])
        lease = tier.match(keys_of(1), SHAPE)
        load = tier.begin_load(lease.refs, pages, [3])
        load.cancel()
        assert load.finish(WAIT_S)
        assert load.outcomes in {b"", bytes([LOADED])}, "it may have ended before"
        lease.release()
