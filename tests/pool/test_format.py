"""A region written by an earlier build of this format version must stay readable."""

import gzip
from pathlib import Path

from kvext.pool import Pool
from kvext.protocol.transfer import LoadOutcome
from tests.golden.make_region import GOLDEN, NUMBERS
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
        assert pool.stat().num_free == 3
