"""Speed of the pool on this machine, each figure beside memcpy measured in the same run.

usage: python benchmarks/pool.py [--json] [--quick]

Targets (ratios; absolute figures move from run to run):
  prompt      chain + keys + match + pin of a 32k-token prompt <= 1.5 ms as Python sees it
  reserve     reservation + commit <= 3 us a block, in batches of 64
  load        pieces from 64 KiB: >= 0.9 x memcpy without, >= 0.7 x with checksum
  processes   four that load at once: the same shares of what four plain memcpys reach
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pool_copy import NAMESPACE, SHAPE, copy_figures
from pool_processes import process_figures
from results import record
from spread import Check, Distribution

from kvext.cxl import create_region
from kvext.pool import Pages, Pool, block_keys, extend_chain
from kvext.pool._core import instruction_sets
from kvext.protocol.key import CHAIN_ROOT

MIB = 1 << 20
ROUNDS = 15
RECORD_SHAPES = ((24 * 1024, 30), (64 * 1024, 32), (256 * 1024, 8))  # bytes a piece, layers
LARGE_PIECE_KIB = 64
PROMPT_MS = 1.5
RESERVE_US = 3.0
VERIFIED_TO_MEMCPY = 0.7
UNVERIFIED_TO_MEMCPY = 0.9

random = np.random.default_rng(0)


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


def reserve_figures(folder: Path, num_rounds: int) -> dict[str, object]:
    """What a block costs that is stored without bytes to speak of: reservation and commit."""
    path = folder / "kvext-reserve.pool"
    num_blocks, batch, record_bytes = 4096, 64, 64
    create_region(path, 64 * MIB, Pool.initialise)
    with Pool.attach(path, extent_bytes=record_bytes) as pool:
        memory = np.zeros(record_bytes, np.uint8)
        pages = Pages([memory.ctypes.data], [record_bytes], 1)
        us_a_block = []
        for _ in range(num_rounds):
            pool.clear()
            for _ in range(num_blocks // batch):
                keys = random.bytes(32 * batch)
                start = time.perf_counter_ns()
                outcomes = pool.store(keys, SHAPE, NAMESPACE, pages, [0] * batch)
                us_a_block.append((time.perf_counter_ns() - start) / 1e3 / batch)
                assert not any(outcomes)
    return {"batch": batch, "us_a_block": asdict(Distribution.of(us_a_block))}


def checks_of(figures: dict[str, Any]) -> dict[str, Check]:
    """The targets; those of copies hold for pieces of 64 KiB and more."""
    prompt_ms = figures["prompt"]["whole_ms"]["median"]
    us_a_block = figures["reserve"]["us_a_block"]["median"]
    checks = {
        "prompt_ms": Check.that(prompt_ms, "<=", PROMPT_MS),
        "reserve_us_a_block": Check.that(us_a_block, "<=", RESERVE_US),
    }
    for copied in figures["copy"]:
        if copied["piece_kib"] >= LARGE_PIECE_KIB:
            checks |= _copy_checks(f"{copied['piece_kib']:g}_kib", copied)
    return checks | _copy_checks("four_processes", figures["processes"])


def _copy_checks(name: str, found: dict[str, Any]) -> dict[str, Check]:
    verified, plain = (found[f"{way}_to_memcpy"]["median"] for way in ("load", "load_unverified"))
    return {
        f"load_{name}": Check.that(verified, ">=", VERIFIED_TO_MEMCPY),
        f"load_unverified_{name}": Check.that(plain, ">=", UNVERIFIED_TO_MEMCPY),
    }


def measure(folder: Path, num_rounds: int) -> dict[str, Any]:
    """Everything, one part after the other."""
    figures: dict[str, Any] = {
        "instruction_sets": instruction_sets(),
        "lookup": lookup_figures(folder),
        "prompt": prompt_figures(folder),
        "reserve": reserve_figures(folder, num_rounds),
        "copy": [copy_figures(folder, *shape, num_rounds) for shape in RECORD_SHAPES],
        "processes": process_figures(folder, *RECORD_SHAPES[1], num_rounds),
    }
    return {
        **figures,
        "checks": {name: asdict(check) for name, check in checks_of(figures).items()},
    }


def main() -> None:
    """Measure, print, and keep the result beside the others unless it was a quick look."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; not recorded")
    options = parser.parse_args()
    with TemporaryDirectory(dir="/dev/shm", prefix="kvext-bench-") as name:
        figures = measure(Path(name), 3 if options.quick else ROUNDS)
    if not options.quick:
        record("pool", figures)
    if options.json:
        print(json.dumps(figures))
        return
    print(
        json.dumps({name: found for name, found in figures.items() if name != "checks"}, indent=2)
    )
    for name, check in figures["checks"].items():
        print(f"{name}: {check['value']} (target {check['bound']}): {check['holds']}")


if __name__ == "__main__":
    main()
