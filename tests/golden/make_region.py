"""Makes `region-v1.pool.gz`: run it only together with a new format version.

usage: python -m tests.golden.make_region
"""

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

from kvext.cxl import create_region
from kvext.pool import Pool
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

GOLDEN = Path(__file__).with_name("region-v1.pool.gz")
NUMBERS = [3, 4, 5]
REGION_BYTES = 155_648


def main() -> None:
    """Store three blocks, seeded by their numbers, in a region of six extents."""
    memory = EngineMemory()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kvext-golden.pool"
        create_region(path, REGION_BYTES, Pool.initialise)
        with Pool.attach(path, extent_bytes=RECORD_BYTES) as pool:
            pool.name_namespace(NAMESPACE, "golden")
            for number in NUMBERS:
                memory.write(number, seed=number)
                pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [number])
        GOLDEN.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
