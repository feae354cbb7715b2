"""Attaching: who may, to what, and what an engine is told when it cannot."""

import os
import struct
import time
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.errors import (
    PoolDamaged,
    PoolGeometryMismatch,
    PoolMissing,
    PoolPermission,
    PoolUnusable,
    PoolVersionMismatch,
)
from kvext.pool import Pool
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

GEOMETRY_AT = 56
BOOT_ID_AT = 120
CREATED_AT = 40


def patch(region: Path, at: int, data: bytes) -> None:
    with region.open("r+b") as file:
        file.seek(at)
        file.write(data)


def store_one(pool: Pool) -> None:
    assert pool.store(key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [0])[0] == 0


def test_blocks_outlive_the_process_that_stored_them(region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as first:
        store_one(first)
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as second:
        assert second.match(key_of(1), SHAPE).num_blocks == 1


def test_missing_pool_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolMissing, match="kvext pool create"):
        Pool.attach(tmp_path / "kvext-none.pool", extent_bytes=1)


def test_other_format_version_is_refused_with_both_versions(region: Path) -> None:
    patch(region, 8, struct.pack("<I", 7))
    with pytest.raises(PoolVersionMismatch) as caught:
        Pool.attach(region, extent_bytes=RECORD_BYTES)
    assert (caught.value.found, caught.value.expected) == (7, 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is no pool"), (b"x" * 100_000, "wrong magic")],
)
def test_file_that_is_no_pool_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "kvext-odd.pool"
    path.write_bytes(content)
    with pytest.raises(PoolDamaged, match=reason):
        Pool.attach(path, extent_bytes=RECORD_BYTES)


def test_truncated_region_is_refused(region: Path) -> None:
    os.truncate(region, region.stat().st_size // 2)
    with pytest.raises(PoolDamaged, match="truncated"):
        Pool.attach(region, extent_bytes=RECORD_BYTES)


def test_damaged_geometry_is_refused(region: Path) -> None:
    Pool.attach(region, extent_bytes=RECORD_BYTES).close()
    patch(region, GEOMETRY_AT + 8, b"\xff")
    with pytest.raises(PoolDamaged, match="geometry"):
        Pool.attach(region, extent_bytes=RECORD_BYTES)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_region_of_another_user_is_refused(region: Path) -> None:
    region.chmod(0o400)
    for folder in (region.parent, *region.parent.parents):
        if folder.stat().st_uid == 0 and folder != Path("/") and "pytest" in str(folder):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(PoolPermission, match="Permission denied"):
            Pool.attach(region, extent_bytes=RECORD_BYTES)
    finally:
        os.seteuid(0)


def test_larger_records_than_the_pool_in_use_holds_are_refused(pool: Pool, region: Path) -> None:
    store_one(pool)
    with pytest.raises(PoolGeometryMismatch) as caught:
        Pool.attach(region, extent_bytes=10 * RECORD_BYTES)
    assert caught.value.record_bytes == 10 * RECORD_BYTES
    assert caught.value.extent_bytes == pool.extent_bytes


def test_smaller_records_share_the_pool(pool: Pool, region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES // 2) as other:
        assert other.extent_bytes == pool.extent_bytes


def test_empty_unused_pool_takes_the_shape_of_its_next_user(region: Path) -> None:
    Pool.attach(region, extent_bytes=RECORD_BYTES).close()
    with Pool.attach(region, extent_bytes=10 * RECORD_BYTES) as pool:
        assert pool.extent_bytes >= 10 * RECORD_BYTES


def test_region_too_small_for_one_record_is_refused(region: Path) -> None:
    for extent_bytes in (1 << 20, 1 << 62, 0):
        with pytest.raises(PoolUnusable, match="create a larger pool"):
            Pool.attach(region, extent_bytes=extent_bytes)


def test_contents_of_another_boot_are_not_trusted(region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
        store_one(pool)
    patch(region, BOOT_ID_AT, b"00000000-0000-0000-0000-000000000000")
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
        assert pool.stat().num_committed == 0
        store_one(pool)


def test_boot_id_that_looks_foreign_does_not_wipe_a_pool_in_use(pool: Pool, region: Path) -> None:
    store_one(pool)
    patch(region, BOOT_ID_AT, bytes(36))
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as other:
        assert other.match(key_of(1), SHAPE).num_blocks == 1


def test_empty_pool_in_use_keeps_its_shape(pool: Pool, region: Path) -> None:
    with pytest.raises(PoolGeometryMismatch):
        Pool.attach(region, extent_bytes=10 * RECORD_BYTES)
    assert pool.stat().num_free == pool.stat().num_extents


def test_observer_follows_when_an_empty_pool_takes_another_shape(region: Path) -> None:
    with Pool.attach(region) as observer:
        for extent_bytes in (RECORD_BYTES, 10 * RECORD_BYTES, 4096):
            with Pool.attach(region, extent_bytes=extent_bytes) as pool:
                assert observer.stat().extent_bytes == pool.extent_bytes >= extent_bytes
                assert observer.clear().num_dropped == 0


def test_observer_may_not_match_or_store(pool: Pool, region: Path) -> None:
    store_one(pool)
    with Pool.attach(region) as observer:
        with pytest.raises(PoolUnusable, match="only observes"):
            observer.match(key_of(1), SHAPE)
        with pytest.raises(PoolUnusable, match="only observes"):
            store_one(observer)
        with pytest.raises(PoolUnusable, match="only observes"):
            observer.reserve(key_of(2), SHAPE, 10, NAMESPACE)


def test_labels_cut_in_the_middle_of_a_character_stay_readable(region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="é" * 40) as pool:
        pool.name_namespace(NAMESPACE, "模型" * 40)
        assert pool.stat().processes[0].label.startswith("é" * 15)
        assert pool.namespaces()[0].label.startswith("模型" * 13)


def test_payload_never_reaches_behind_the_region(tmp_path: Path) -> None:
    for megabytes, record_bytes in ((1, 4096), (3, 12288), (2, 500_000), (8, 65536)):
        path = tmp_path / f"kvext-{megabytes}.pool"
        create_region(path, megabytes << 20, Pool.initialise)
        with Pool.attach(path, extent_bytes=record_bytes) as pool:
            assert 0.4 * (megabytes << 20) < pool.capacity_bytes < megabytes << 20


def test_observer_looks_up_what_was_stored_after_the_pool_took_another_shape(region: Path) -> None:
    Pool.attach(region, extent_bytes=4096).close()
    memory = EngineMemory()
    memory.write(1, seed=1)
    with Pool.attach(region) as observer, Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
        pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])
        assert observer.lookup(key_of(1), SHAPE) == b"\1"
        lease = pool.match(key_of(1), SHAPE)
        assert bytes(observer.record(lease.refs)) == memory.read(1)


def test_clock_set_back_behind_the_creation_makes_no_record_look_new(
    pool: Pool, region: Path
) -> None:
    # The same to a reader: the creation lies in the future.
    patch(region, CREATED_AT, struct.pack("<Q", int(time.time()) + 3600))
    pool.store(key_of(1), SHAPE, NAMESPACE, EngineMemory().pages, [1])
    assert pool.now_tenths == 0
    assert list(pool.records().last_access) == [0]
