"""Fences and quarantine: what may not be read is not found, at once, whatever the pool holds."""

import pytest

from kvext.pool import FenceReport, NamespaceState, Pool
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import SHAPE, EngineMemory, key_of

OLD, NEW, UNTOLD = b"\1" * 32, b"\2" * 32, b"\3" * 32
OLD_MODEL, NEW_MODEL = b"\xa1" * 32, b"\xa2" * 32


def put(pool: Pool, namespace: bytes, number: int) -> StoreOutcome:
    memory = EngineMemory()
    memory.write(0, seed=number)
    return StoreOutcome(pool.store(key_of(number), SHAPE, namespace, memory.pages, [0])[0])


def finds(pool: Pool, number: int) -> bool:
    return pool.lookup(key_of(number), SHAPE) == b"\1"


@pytest.fixture
def pool_of_two_models(pool: Pool) -> Pool:
    pool.name_namespace(OLD, "the old model", OLD_MODEL)
    pool.name_namespace(NEW, "the new model", NEW_MODEL)
    for namespace, number in ((OLD, 1), (OLD, 2), (NEW, 3), (UNTOLD, 4)):
        assert put(pool, namespace, number) is StoreOutcome.STORED
    return pool


def test_fence_of_a_model_hides_what_it_has_stored_and_nothing_else(
    pool_of_two_models: Pool,
) -> None:
    pool = pool_of_two_models
    assert pool.fence(OLD_MODEL) == FenceReport(num_namespaces=1, num_records=2)
    assert [finds(pool, number) for number in (1, 2, 3, 4)] == [False, False, True, True]
    assert pool.match(key_of(1), SHAPE).num_blocks == 0


def test_fence_of_all_but_one_model_also_hides_what_nobody_has_named(
    pool_of_two_models: Pool,
) -> None:
    pool = pool_of_two_models
    assert pool.fence_all_but(NEW_MODEL) == FenceReport(num_namespaces=2, num_records=3)
    assert [finds(pool, number) for number in (1, 2, 3, 4)] == [False, False, True, False]


def test_what_is_stored_behind_a_fence_is_found_under_the_old_name(
    pool_of_two_models: Pool,
) -> None:
    pool = pool_of_two_models
    pool.fence(OLD_MODEL)
    assert put(pool, OLD, 1) is StoreOutcome.STORED
    assert finds(pool, 1)
    assert not finds(pool, 2)
    live = next(use for use in pool.namespaces() if use.num_blocks == 1 and use.digest == OLD.hex())
    assert (live.label, live.model, live.state) == (
        "the old model",
        OLD_MODEL.hex(),
        NamespaceState.LIVE,
    )
    assert pool.fsck().is_clean


def test_what_was_pinned_before_a_fence_can_still_be_loaded(pool_of_two_models: Pool) -> None:
    pool = pool_of_two_models
    lease = pool.match(key_of(1), SHAPE)
    pool.fence(OLD_MODEL)
    memory = EngineMemory()
    assert set(pool.load(lease.refs, memory.pages, [0])) == {LoadOutcome.LOADED}


def test_fenced_records_make_room_before_any_other(pool_of_two_models: Pool) -> None:
    pool = pool_of_two_models
    for _ in range(3):
        pool.match(key_of(1), SHAPE).release()  # often used, but fenced
    pool.fence(OLD_MODEL)
    number = 100
    while pool.num_free:
        put(pool, NEW, number)
        pool.match(key_of(number), SHAPE).release()
        number += 1
    assert put(pool, NEW, number) is StoreOutcome.STORED
    assert pool.stat().counters["fenced_records"] >= 1
    assert pool.fsck().is_clean


def test_quarantined_namespace_is_neither_found_nor_stored_until_it_is_released(
    pool_of_two_models: Pool,
) -> None:
    pool = pool_of_two_models
    assert pool.quarantine_namespace(OLD)
    assert not pool.quarantine_namespace(OLD)
    assert (finds(pool, 1), finds(pool, 3)) == (False, True)
    assert put(pool, OLD, 9) is StoreOutcome.FENCED
    assert pool.release_namespace(OLD)
    assert not pool.release_namespace(OLD)
    assert not finds(pool, 1), "what was suspicious does not come back"
    assert put(pool, OLD, 1) is StoreOutcome.STORED
    assert finds(pool, 1)


def test_namespace_can_be_quarantined_before_it_holds_anything(pool: Pool) -> None:
    assert pool.quarantine_namespace(OLD)
    assert put(pool, OLD, 1) is StoreOutcome.FENCED


def test_table_of_namespaces_that_is_full_refuses_another_one_and_says_so(pool: Pool) -> None:
    names = [number.to_bytes(32, "little") for number in range(1, 1025)]
    for name in names:
        assert pool.quarantine_namespace(name)  # a quarantine is not forgotten for want of space
    assert put(pool, OLD, 1) is StoreOutcome.NAMESPACES_FULL
    assert pool.stat().counters["rejected_namespaces_full"] == 1
    pool.release_namespace(names[5])
    assert put(pool, OLD, 1) is StoreOutcome.STORED
