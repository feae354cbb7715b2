"""Makes `region-v2.pool.gz`: run it only together with a new format version.

usage: python -m tests.golden.make_region
"""

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

from kvext.cxl import create_region
from kvext.pool import Pool
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

GOLDEN = Path(__file__).with_name("region-v2.pool.gz")
MODEL = b"\x77" * 32
NUMBERS = [3, 4, 5]
REGION_BYTES = 299_008


def main() -> None:
    """Store three blocks, seeded by their numbers, in a region of six extents."""
    memory = EngineMemory()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kvext-golden.pool"
        create_region(path, REGION_BYTES, Pool.initialise)
        with Pool.attach(path, extent_bytes=RECORD_BYTES) as pool:
            pool.name_namespace(NAMESPACE, "golden", MODEL)
            for number in NUMBERS:
                memory.write(number, seed=number)
                pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [number])
        GOLDEN.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
