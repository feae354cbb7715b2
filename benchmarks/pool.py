"""Speed of the pool on this machine, each figure beside memcpy measured in the same run.

usage: python benchmarks/pool.py [--json]

Targets (ratios; absolute figures move from run to run):
  lookup      <= 40 ns a key, warm, batches of 1,024
  prompt      chain + keys + match + pin of a 32k-token prompt <= 3 ms as Python sees it
  load        64 KiB pieces: >= 0.8 x memcpy without, >= 0.6 x with checksum
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from results import record

from kvext.cxl import create_region
from kvext.pool import Pages, Pool, block_keys, extend_chain
from kvext.pool._core import instruction_sets
from kvext.protocol.key import CHAIN_ROOT
from kvext.protocol.layout import RecordShape

MIB = 1 << 20
NAMESPACE = b"n" * 32
SHAPE = RecordShape(block_tokens=32)
ROUNDS = 9
TOTAL_BYTES = 192 * MIB

random = np.random.default_rng(0)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Distribution:
    """Median, least and greatest of several runs."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: list[float]) -> "Distribution":
        """Summarise, rounded to what is meaningful."""
        return cls(*(round(f(values), 3) for f in (statistics.median, min, max)))


def lookup_figures(folder: Path) -> dict[str, object]:
    """Batch lookups among 100,000 keys: warm, with the caches flushed, and of missing keys."""
    path = folder / "kvext-lookup.pool"
    num_keys, batch = 100_000, 1024
    create_region(path, 700 * MIB, Pool.initialise)
    with Pool.attach(path, extent_bytes=4096) as pool:
        memory = np.zeros(4096, np.uint8)
        pages = Pages([memory.ctypes.data], [4096], 1)
        keys = random.bytes(32 * num_keys)
        pool.store(keys, SHAPE, NAMESPACE, pages, [0] * num_keys)
        rows = np.frombuffer(keys, np.uint8).reshape(num_keys, 32)
        flush = np.zeros(512 * MIB // 8, np.int64)

        def ns_a_key(*, hit: bool, cold: bool = False, repeats: int = 200) -> Distribution:
            values = []
            for _ in range(repeats):
                wanted = rows[random.integers(0, num_keys, batch)].tobytes()
                asked = wanted if hit else random.bytes(32 * batch)
                if cold:
                    flush.__iadd__(1)
                start = time.perf_counter_ns()
                found = pool.lookup(asked, SHAPE)
                values.append((time.perf_counter_ns() - start) / batch)
                assert sum(found) == (batch if hit else 0)
            return Distribution.of(values)

        return {
            "num_keys": num_keys,
            "batch": batch,
            "warm_hit_ns_a_key": asdict(ns_a_key(hit=True)),
            "warm_miss_ns_a_key": asdict(ns_a_key(hit=False)),
            "cold_hit_ns_a_key": asdict(ns_a_key(hit=True, cold=True, repeats=12)),
        }


def prompt_figures(folder: Path) -> dict[str, object]:
    """What a scheduler does for a 32k-token prompt that is wholly in the pool."""
    num_tokens, block_tokens = 32_768, SHAPE.block_tokens
    num_blocks = num_tokens // block_tokens
    tokens = random.integers(0, 150_000, num_tokens).tolist()
    path = folder / "kvext-prompt.pool"
    create_region(path, 64 * MIB, Pool.initialise)
    with Pool.attach(path, extent_bytes=4096) as pool:
        memory = np.zeros(4096, np.uint8)
        pages = Pages([memory.ctypes.data], [4096], 1)
        keys = block_keys(NAMESPACE, extend_chain(CHAIN_ROOT, tokens, 0, num_tokens), 2)
        pool.store(keys, SHAPE, NAMESPACE, pages, [0] * num_blocks)
        chain, match, whole = [], [], []
        for _ in range(60):
            start = time.perf_counter()
            links = extend_chain(CHAIN_ROOT, tokens, 0, num_tokens)
            keys = block_keys(NAMESPACE, links, block_tokens // 16)
            middle = time.perf_counter()
            lease = pool.match(keys, SHAPE)
            end = time.perf_counter()
            assert lease.num_blocks == num_blocks
            lease.release()
            chain.append((middle - start) * 1e3)
            match.append((end - middle) * 1e3)
            whole.append((end - start) * 1e3)
    return {
        "num_tokens": num_tokens,
        "num_blocks": num_blocks,
        "chain_and_keys_ms": asdict(Distribution.of(chain)),
        "match_and_pin_ms": asdict(Distribution.of(match)),
        "whole_ms": asdict(Distribution.of(whole)),
    }


def engine_memory(num_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Random bytes that begin at a multiple of 64, as torch allocates KV tensors."""
    memory = np.empty(num_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + num_bytes] = np.frombuffer(random.bytes(num_bytes), np.uint8)
    return memory[start : start + num_bytes]


def copy_figures(folder: Path, piece_bytes: int, num_layers: int) -> dict[str, object]:
    """Scattered loads and stores of one record shape, with memcpy between every two of them."""
    record_bytes = piece_bytes * num_layers
    num_blocks = TOTAL_BYTES // record_bytes
    path = folder / f"kvext-copy-{piece_bytes}.pool"
    create_region(path, 2 * TOTAL_BYTES + 64 * MIB, Pool.initialise)
    layers = [engine_memory(piece_bytes * num_blocks) for _ in range(num_layers)]
    pages = Pages([layer.ctypes.data for layer in layers], [piece_bytes] * num_layers, num_blocks)
    flat = np.ones(record_bytes * num_blocks, np.uint8)
    shared = np.memmap(path, np.uint8, "r+", offset=TOTAL_BYTES, shape=flat.shape)
    where = [int(block) for block in random.permutation(num_blocks)]
    times: dict[str, list[float]] = {
        name: [] for name in ("memcpy_out", "load", "load_unverified", "memcpy_in", "store")
    }
    with Pool.attach(path, extent_bytes=record_bytes) as pool:
        keys = random.bytes(32 * num_blocks)
        pool.store(keys, SHAPE, NAMESPACE, pages, where)
        lease = pool.match(keys, SHAPE)
        assert lease.num_blocks == num_blocks
        for _ in range(ROUNDS):
            times["memcpy_out"].append(seconds(lambda: np.copyto(flat, shared)))
            times["load"].append(seconds(lambda: pool.load(lease.refs, pages, where)))
            times["memcpy_out"].append(seconds(lambda: np.copyto(flat, shared)))
            times["load_unverified"].append(
                seconds(lambda: pool.load(lease.refs, pages, where, verify=False))
            )
        lease.release()
        for _ in range(ROUNDS):
            pool.clear()
            times["memcpy_in"].append(seconds(lambda: np.copyto(shared, flat)))
            times["store"].append(
                seconds(
                    lambda: pool.store(
                        random.bytes(32 * num_blocks), SHAPE, NAMESPACE, pages, where
                    )
                )
            )
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "piece_kib": piece_bytes / 1024,
        "record_kib": record_bytes / 1024,
        "memcpy_gb_s": round(flat.nbytes / median["memcpy_out"] / 1e9, 2),
        "load_unverified_to_memcpy": round(median["memcpy_out"] / median["load_unverified"], 2),
        "load_to_memcpy": round(median["memcpy_out"] / median["load"], 2),
        "store_to_memcpy": round(median["memcpy_in"] / median["store"], 2),
    }


def main() -> None:
    """Measure, print, and keep the result beside the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    with TemporaryDirectory(dir="/dev/shm", prefix="kvext-bench-") as name:
        folder = Path(name)
        figures = {
            "instruction_sets": instruction_sets(),
            "lookup": lookup_figures(folder),
            "prompt": prompt_figures(folder),
            "copy": [
                copy_figures(folder, 24 * 1024, 30),
                copy_figures(folder, 64 * 1024, 32),
                copy_figures(folder, 256 * 1024, 8),
            ],
        }
    record("pool", figures)
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
