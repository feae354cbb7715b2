"""Several engine processes that load from one pool at once, beside as many that only memcpy."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from pool_copy import NAMESPACE, SHAPE, Engine
from spread import Distribution

from kvext.cxl import create_region
from kvext.pool import Pool

__all__ = ["process_figures"]

MIB = 1 << 20
PROCESS_BYTES = 192 * MIB  # so much that glibc's memcpy, too, goes past the cache
SPARE_BYTES = 64 * MIB
NUM_PROCESSES = 4
START_DEADLINE_S = 60.0
ROUND_DEADLINE_S = 30.0


def serve_copies(path: Path, piece_bytes: int, num_layers: int, orders: Connection) -> None:
    """One of several engine processes: does what each order names, and says when it is done."""
    engine = Engine.with_blocks(PROCESS_BYTES, piece_bytes, num_layers)
    flat = np.ones(engine.num_bytes, np.uint8)
    with Pool.attach(path, extent_bytes=engine.pages.record_bytes) as pool:
        keys = orders.recv()
        lease = pool.match(keys, SHAPE)
        assert lease.num_blocks == engine.pages.num_blocks
        source = np.memmap(path, np.uint8, "r", offset=SPARE_BYTES // 2, shape=flat.shape)
        work: dict[str, Callable[[], object]] = {
            "memcpy": lambda: np.copyto(flat, source),
            "load": lambda: pool.load(lease.refs, engine.pages, engine.where),
            "load_unverified": lambda: pool.load(
                lease.refs, engine.pages, engine.where, verify=False
            ),
        }
        orders.send(None)
        while order := orders.recv():
            work[order]()
            orders.send(None)
        lease.release()


@contextmanager
def engine_process(path: Path, piece_bytes: int, num_layers: int) -> Iterator[Connection]:
    """Start one; ends it afterwards."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_copies, args=(path, piece_bytes, num_layers, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
        ours.send("")
        process.join(ROUND_DEADLINE_S)
    finally:
        process.kill()
        process.join()


def wait_for(engines: list[Connection], deadline_s: float) -> None:
    """Until each has said that it is done."""
    for engine in engines:
        if not engine.poll(deadline_s):
            message = f"a process of the benchmark did not answer for {deadline_s:g} s"
            raise TimeoutError(message)
        engine.recv()


def process_figures(
    folder: Path, piece_bytes: int, num_layers: int, num_rounds: int
) -> dict[str, object]:
    """Several processes that load at once, beside as many that memcpy: the memory's limit."""
    path = folder / "kvext-processes.pool"
    create_region(path, PROCESS_BYTES + SPARE_BYTES, Pool.initialise)
    stored = Engine.with_blocks(PROCESS_BYTES, piece_bytes, num_layers)
    with ExitStack() as stack:
        pool = stack.enter_context(Pool.attach(path, extent_bytes=stored.pages.record_bytes))
        pool.store(stored.keys, SHAPE, NAMESPACE, stored.pages, list(range(len(stored.where))))
        engines = [
            stack.enter_context(engine_process(path, piece_bytes, num_layers))
            for _ in range(NUM_PROCESSES)
        ]
        for engine in engines:
            engine.send(stored.keys)
        wait_for(engines, START_DEADLINE_S)

        def gb_s(order: str, some: list[Connection]) -> float:
            begun_s = time.perf_counter()
            for engine in some:
                engine.send(order)
            wait_for(some, ROUND_DEADLINE_S)
            return stored.num_bytes * len(some) / (time.perf_counter() - begun_s) / 1e9

        def run(some: list[Connection]) -> dict[str, list[float]]:
            orders = ("memcpy", "load", "load_unverified")
            rounds = [{order: gb_s(order, some) for order in orders} for _ in range(num_rounds)]
            return {order: [found[order] for found in rounds] for order in orders}

        run(engines)  # touches everything once
        alone, together = run(engines[:1]), run(engines)
    path.unlink()
    return {
        "num_processes": NUM_PROCESSES,
        "piece_kib": piece_bytes / 1024,
        "memcpy_gb_s": asdict(Distribution.of(together["memcpy"])),
        **{
            f"{order}_to_memcpy": asdict(
                Distribution.of(
                    [
                        own / peer
                        for own, peer in zip(together[order], together["memcpy"], strict=True)
                    ]
                )
            )
            for order in ("load", "load_unverified")
        },
        "to_one_process": {
            order: round(statistics.median(together[order]) / statistics.median(alone[order]), 2)
            for order in together
        },
    }
