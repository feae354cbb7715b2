"""What follows from the slots' fields alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvext.agent.records import Records, back_to_front
from kvext.pool import Pool
from tests.agent.rows import Row, extents, records
from tests.pool.engine_memory import NAMESPACE, SHAPE, EngineMemory, key_of

_ROWS = st.lists(
    st.builds(
        Row,
        key=st.integers(0, 6),
        extent=st.integers(0, 1000),
        last=st.integers(0, 5),
        hits=st.integers(0, 3),
    ),
    max_size=12,
    unique_by=lambda row: row.extent,
)


@given(_ROWS, st.lists(st.integers(0, 8), unique=True))
def test_a_key_names_all_its_records_and_an_unknown_one_none(
    rows: list[Row], keys: list[int]
) -> None:
    found = extents(records(rows).refs_of(np.array(keys, np.uint64)))
    expected = [row.extent for key in keys for row in rows if row.key == key]
    assert found == expected


@given(_ROWS, st.integers(0, 15))
def test_nothing_that_stays_was_accessed_before_what_goes(rows: list[Row], count: int) -> None:
    gone = set(extents(records(rows).oldest_first(count)))
    assert len(gone) == min(count, len(rows))
    last_of_gone = [row.last for row in rows if row.extent in gone]
    last_of_kept = [row.last for row in rows if row.extent not in gone]
    assert max(last_of_gone, default=0) <= min(last_of_kept, default=99)


def test_of_blocks_accessed_together_the_tail_goes_before_the_head() -> None:
    # The prefix was hit before; the new blocks were stored in order.
    prompt = [Row(1, extent=70, hits=2), Row(2, extent=71, hits=1), Row(3, extent=5), Row(4, 6)]
    assert extents(records(prompt).oldest_first(4)) == [6, 5, 71, 70]


def test_writers_get_the_evicted_extents_back_in_ascending_order(pool: Pool) -> None:
    memory = EngineMemory()
    keys = b"".join(key_of(number) for number in range(pool.num_extents))
    blocks = [0] * pool.num_extents
    pool.store(keys, SHAPE, NAMESPACE, memory.pages, blocks)
    some = Records.of(pool.records()).refs[[7, 3, 9, 5]]
    assert pool.evict(back_to_front(some).tobytes()) == 4
    expected = sorted(extents(some))
    new = b"".join(key_of(1000 + number) for number in range(4))
    pool.store(new, SHAPE, NAMESPACE, memory.pages, [0] * 4)
    now = Records.of(pool.records())
    stored = [extents(now.refs_of(np.array([1000 + number], np.uint64)))[0] for number in range(4)]
    assert stored == expected


def test_columns_are_those_of_the_pool(pool: Pool) -> None:
    memory = EngineMemory()
    pool.store(key_of(5), SHAPE, NAMESPACE, memory.pages, [0])
    pool.match(key_of(5), SHAPE).release()
    seen = Records.of(pool.records())
    assert (len(seen), seen.keys[0], seen.hits[0]) == (1, 5, 1)
    assert 0 <= seen.last_access[0] <= pool.now_tenths
    assert pool.evict(seen.refs.tobytes()) == 1
