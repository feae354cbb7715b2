"""One number names a group's block; a mover of several groups takes jobs apart again."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvext.connector.joint_mover import JointMover
from kvext.connector.mover import DirectMover
from kvext.connector.places import place_in_group, runs_by_group
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.toy_hybrid import groups_of
from tests.connector.toy_parts import PIECE_BYTES

NUM_BLOCKS = 10
blocks = st.integers(0, NUM_BLOCKS - 1)


@given(st.lists(st.lists(blocks), max_size=4))
def test_places_come_apart_as_they_were_put_together(ids: Sequence[Sequence[int]]) -> None:
    places = [
        place_in_group(NUM_BLOCKS, group, block) for group, held in enumerate(ids) for block in held
    ]
    runs = list(runs_by_group(NUM_BLOCKS, places))
    assert [(group, held) for group, _, held in runs] == [
        (group, list(held)) for group, held in enumerate(ids) if held
    ]
    assert [index for _, run, _ in runs for index in run] == list(range(len(places)))


def test_each_group_moves_its_own_blocks() -> None:
    tier = FakeTier()
    groups = groups_of([None, 24])
    memories = [FakePages((np.zeros((NUM_BLOCKS, PIECE_BYTES), np.uint8),)) for _ in groups]
    movers = [
        DirectMover(tier, pages, group.shape, PIECE_BYTES)
        for pages, group in zip(memories, groups, strict=True)
    ]
    joint = JointMover(movers, NUM_BLOCKS)
    keys = [bytes([number]) * 32 for number in range(3)]
    for pages, value in zip(memories, (b"f", b"s"), strict=True):
        pages.write(4, value * PIECE_BYTES)
    places = [4, 5, NUM_BLOCKS + 4]
    assert joint.store(b"".join(keys), b"n" * 32, places) == bytes(3)
    leases = [tier.match(keys[0], groups[0].shape), tier.match(keys[2], groups[1].shape)]
    refs = b"".join(lease.refs for lease in leases)
    assert joint.load(refs, [7, NUM_BLOCKS + 8]) == bytes(2)
    assert memories[0].read(7) == b"f" * PIECE_BYTES
    assert memories[1].read(8) == b"s" * PIECE_BYTES
