"""What tests do to an engine's pool behind its back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kvext.cxl import region_path
from kvext.pool import Pool, Reservation, block_keys, extend_chain
from kvext.protocol.key import CHAIN_ROOT, part_digest
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome
from tests.engine.engines import BLOCK_TOKENS

SHAPE = RecordShape(BLOCK_TOKENS)


def pool_file(options: dict[str, Any]) -> Path:
    """The region that these connector options name."""
    return region_path(Path(options["pool_folder"]), options.get("pool_name", "default"))


@contextmanager
def attached(options: dict[str, Any]) -> Iterator[Pool]:
    """Attach as one more engine process."""
    with Pool.attach(pool_file(options), extent_bytes=1, label="test") as pool:
        yield pool


def keys_of(pool: Pool, tokens: Sequence[int], shape: RecordShape = SHAPE) -> tuple[bytes, bytes]:
    """Namespace and keys of a prompt's full blocks, in whichever namespace holds its first one."""
    stop = len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    links = extend_chain(CHAIN_ROOT, list(tokens), 0, stop)
    for use in pool.namespaces():
        namespace = bytes.fromhex(use.digest)
        keys = block_keys(namespace, links, BLOCK_TOKENS // 16)
        if pool.lookup(keys[:32], shape) == b"\1":
            return namespace, keys
    raise LookupError("no namespace holds the prompt's first block")


def damage(options: dict[str, Any], tokens: Sequence[int], block: int) -> None:
    """Flip one bit in a stored block, as bad memory would."""
    with attached(options) as pool:
        _, keys = keys_of(pool, tokens)
        lease = pool.match(keys, SHAPE)
        pool.record(lease.refs[16 * block : 16 * block + 16])[1000] ^= 4
        lease.release()


def rewrite(
    options: dict[str, Any], tokens: Sequence[int], change: Callable[[np.ndarray], np.ndarray]
) -> int:
    """Replace a prompt's blocks by changed ones with valid checksums; returns their number."""
    with attached(options) as pool:
        namespace, keys = keys_of(pool, tokens)
        lease = pool.match(keys, SHAPE)
        refs = [lease.refs[at : at + 16] for at in range(0, len(lease.refs), 16)]
        records = [np.frombuffer(bytes(pool.record(ref)), np.float32) for ref in refs]
        lease.release()
        pool.clear(namespace)
        for index, record in enumerate(records):
            key = keys[32 * index : 32 * index + 32]
            made = pool.reserve(key, SHAPE, record.nbytes, namespace)
            assert isinstance(made, Reservation)
            made.fill(change(record).tobytes())
            assert made.commit() is StoreOutcome.STORED
        return len(records)


def group_keys_of(pool: Pool, tokens: Sequence[int], num_groups: int) -> list[bytes]:
    """By KV group, the keys of a prompt's full blocks, in whichever namespace holds the last."""
    stop = len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    links = extend_chain(CHAIN_ROOT, list(tokens), 0, stop)
    for use in pool.namespaces():
        namespace = bytes.fromhex(use.digest)
        keys = [
            block_keys(part_digest(namespace, group, num_groups), links, BLOCK_TOKENS // 16)
            for group in range(num_groups)
        ]
        if pool.lookup(keys[0][-32:], RecordShape(BLOCK_TOKENS, 0, num_groups)) == b"\1":
            return keys
    raise LookupError("no namespace holds the prompt's last block")


def wreck_group(
    options: dict[str, Any], tokens: Sequence[int], group: int, num_groups: int, *, seal: bool
) -> None:
    """Make one group's stored blocks of a prompt wrong by far, with valid checksums if `seal`."""
    shape = RecordShape(BLOCK_TOKENS, group, num_groups)
    with attached(options) as pool:
        keys = group_keys_of(pool, tokens, num_groups)[group]
        for at in range(0, len(keys), 32):
            key = keys[at : at + 32]
            lease = pool.match(key, shape)
            values = np.frombuffer(pool.record(lease.refs), np.float32)
            if not seal:
                values *= -3
            record = (values * np.float32(-3)).tobytes()
            refs = lease.refs
            lease.release()
            if seal:
                pool.evict(refs)
                made = pool.reserve(key, shape, len(record), b"\0" * 32)
                assert isinstance(made, Reservation)
                made.fill(record)
                assert made.commit() is StoreOutcome.STORED
