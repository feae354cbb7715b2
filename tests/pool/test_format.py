"""A region written by an earlier build of this format version must stay readable; no other is."""

import gzip
from pathlib import Path

import pytest

from kvext.cxl import REGION_FORMAT, create_region, find_regions, region_name, region_path
from kvext.errors import PoolVersionMismatch
from kvext.pool import NamespaceState, Pool, _core
from kvext.protocol.transfer import LoadOutcome
from tests.golden.make_region import GOLDEN, MODEL, NUMBERS
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

BOOT_ID_AT = 120
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def test_golden_region_is_read_with_all_its_blocks(tmp_path: Path) -> None:
    region = bytearray(gzip.decompress(GOLDEN.read_bytes()))
    # The golden host has rebooted since, after which no kvext trusts a region: play its boot.
    region[BOOT_ID_AT : BOOT_ID_AT + 36] = BOOT_ID.read_bytes()[:36]
    path = tmp_path / "kvext-golden.pool"
    path.write_bytes(region)
    memory, expected = EngineMemory(), EngineMemory()
    with Pool.attach(path, extent_bytes=RECORD_BYTES) as pool:
        lease = pool.match(b"".join(map(key_of, NUMBERS)), SHAPE)
        assert lease.num_blocks == len(NUMBERS)
        assert set(pool.load(lease.refs, memory.pages, NUMBERS)) == {LoadOutcome.LOADED}
        for number in NUMBERS:
            expected.write(number, seed=number)
            assert memory.read(number) == expected.read(number)
        use = pool.namespaces()[0]
        assert (use.digest, use.label, use.num_blocks) == (NAMESPACE.hex(), "golden", 3)
        assert (use.model, use.state) == (MODEL.hex(), NamespaceState.LIVE)
        assert pool.stat().num_free == 3
        assert pool.fsck(verify_data=True).is_clean


def test_region_of_the_version_before_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kvext-old.pool"
    before = gzip.decompress(GOLDEN.with_name("region-v1.pool.gz").read_bytes())
    path.write_bytes(before)
    with pytest.raises(PoolVersionMismatch, match="format version 1, this kvext reads 2"):
        Pool.attach(path, extent_bytes=RECORD_BYTES)
    assert path.read_bytes() == before


def test_pools_of_two_versions_have_files_of_their_own(tmp_path: Path) -> None:
    assert REGION_FORMAT == _core.FORMAT_VERSION
    create_region(region_path(tmp_path, "shared"), 1 << 20, Pool.initialise)
    old = tmp_path / "kvext-shared.pool"
    old.write_bytes(b"another kvext's")
    assert find_regions(tmp_path) == [old, region_path(tmp_path, "shared")]
    assert {region_name(path) for path in find_regions(tmp_path)} == {"shared"}
