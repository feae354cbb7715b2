"""The pool without an engine: one process stores a block, another finds and reads it.

usage: python examples/pool_by_hand.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kvext.assembly import create_pool
from kvext.pool import Pool, block_keys, extend_chain
from kvext.protocol.key import CHAIN_ROOT
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome

BLOCK_TOKENS = 16
RECORD_BYTES = 4096
NAMESPACE = bytes(32)  # of an engine: derived from weights, layout, adapter and tenant
SHAPE = RecordShape(BLOCK_TOKENS)


def key_of(tokens: list[int]) -> bytes:
    """The key of a prompt's first block: the same in every process that knows the tokens."""
    chain = extend_chain(CHAIN_ROOT, tokens, 0, BLOCK_TOKENS)
    return block_keys(NAMESPACE, chain, links_per_block=1)


def store(path: Path) -> None:
    """Reserve, fill, commit: nothing is visible before the commit."""
    with Pool.attach(path, extent_bytes=RECORD_BYTES, label="writer") as pool:
        reservation = pool.reserve(key_of(list(range(16))), SHAPE, RECORD_BYTES, NAMESPACE)
        if isinstance(reservation, StoreOutcome):  # why there is none: EXISTS, NO_SPACE, ...
            raise SystemExit(reservation.name)
        reservation.fill(b"kv" * (RECORD_BYTES // 2))
        print("writer:", reservation.commit().name)


def read(path: Path) -> None:
    """A match pins what it finds until its lease is released."""
    with Pool.attach(path, extent_bytes=RECORD_BYTES, label="reader") as pool:
        lease = pool.match(key_of(list(range(16))), SHAPE)
        record = pool.record(lease.refs[:16])
        print(f"reader: {lease.num_blocks} block, {len(record)} bytes, {bytes(record[:4])!r}")
        record.release()
        lease.release()
        print("sound:", pool.fsck(verify_data=True).is_clean)


def main() -> None:
    """Make a pool, store in one process, read in another."""
    if len(sys.argv) > 1:
        read(Path(sys.argv[1]))
        return
    with TemporaryDirectory() as folder:
        path = create_pool(Path(folder), "by-hand", 4 << 20)
        store(path)
        subprocess.run([sys.executable, __file__, str(path)], check=True)


if __name__ == "__main__":
    main()
