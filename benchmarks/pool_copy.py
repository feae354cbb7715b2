"""Scattered loads and stores of the pool beside memcpy, by one process."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from spread import Distribution

from kvext.cxl import create_region
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape

__all__ = ["NAMESPACE", "SHAPE", "Engine", "copy_figures"]

MIB = 1 << 20
NAMESPACE = b"n" * 32
SHAPE = RecordShape(block_tokens=32)
TOTAL_BYTES = 192 * MIB

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

random = np.random.default_rng(0)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def engine_memory(num_bytes: int) -> Bytes:
    """Random bytes that begin at a multiple of 64, as torch allocates KV tensors."""
    memory = np.empty(num_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + num_bytes] = np.frombuffer(random.bytes(num_bytes), np.uint8)
    return memory[start : start + num_bytes]


@dataclass(frozen=True, slots=True)
class Engine:
    """The KV memory of an engine: one tensor a layer, and blocks in no order."""

    layers: list[Bytes]
    pages: Pages
    where: list[int]
    keys: bytes

    @classmethod
    def with_blocks(cls, num_bytes: int, piece_bytes: int, num_layers: int) -> "Engine":
        """As many blocks as `num_bytes` hold."""
        num_blocks = num_bytes // (piece_bytes * num_layers)
        layers = [engine_memory(piece_bytes * num_blocks) for _ in range(num_layers)]
        addresses = [layer.ctypes.data for layer in layers]
        pages = Pages(addresses, [piece_bytes] * num_layers, num_blocks)
        where = [int(block) for block in random.permutation(num_blocks)]
        return cls(layers, pages, where, random.bytes(32 * num_blocks))

    @property
    def num_bytes(self) -> int:
        """Of all blocks."""
        return self.pages.record_bytes * self.pages.num_blocks


def copy_figures(
    folder: Path, piece_bytes: int, num_layers: int, num_rounds: int
) -> dict[str, object]:
    """Loads and stores of one record shape, each between two memcpys of as many bytes."""
    path = folder / f"kvext-copy-{piece_bytes}.pool"
    create_region(path, 2 * TOTAL_BYTES + 64 * MIB, Pool.initialise)
    engine = Engine.with_blocks(TOTAL_BYTES, piece_bytes, num_layers)
    flat = np.ones(engine.num_bytes, np.uint8)
    shared = np.memmap(path, np.uint8, "r+", offset=TOTAL_BYTES, shape=flat.shape)
    memcpy_gb_s: list[float] = []
    ratios: dict[str, list[float]] = {"load": [], "load_unverified": [], "store": []}

    def compare(name: str, work: Callable[[], object], memcpy: Callable[[], object]) -> None:
        before_s, own_s, after_s = seconds(memcpy), seconds(work), seconds(memcpy)
        memcpy_gb_s.append(flat.nbytes / before_s / 1e9)
        ratios[name].append((before_s + after_s) / 2 / own_s)

    with Pool.attach(path, extent_bytes=engine.pages.record_bytes) as pool:
        pool.store(engine.keys, SHAPE, NAMESPACE, engine.pages, engine.where)
        lease = pool.match(engine.keys, SHAPE)
        assert lease.num_blocks == engine.pages.num_blocks

        def load(*, verify: bool) -> bytes:
            return pool.load(lease.refs, engine.pages, engine.where, verify=verify)

        for _ in range(num_rounds):
            compare("load", lambda: load(verify=True), lambda: np.copyto(flat, shared))
            compare("load_unverified", lambda: load(verify=False), lambda: np.copyto(flat, shared))
        lease.release()
        for _ in range(num_rounds):
            pool.clear()
            compare(
                "store",
                lambda: pool.store(engine.keys, SHAPE, NAMESPACE, engine.pages, engine.where),
                lambda: np.copyto(shared, flat),
            )
    path.unlink()
    return {
        "piece_kib": piece_bytes / 1024,
        "record_kib": engine.pages.record_bytes / 1024,
        "memcpy_gb_s": asdict(Distribution.of(memcpy_gb_s)),
        **{f"{name}_to_memcpy": asdict(Distribution.of(found)) for name, found in ratios.items()},
    }
