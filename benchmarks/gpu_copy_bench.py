# ruff: noqa: N806, N815 - tensor names carry shapes
"""What `gpu_copy.py` measures with: a cache on a device, and clocks around the copy engine.

Letters as in `kvext.kernels.paged`; `kv_BHNC` are bytes here.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvext.kernels import CopyEngine, PagedKV, Route
from kvext.kernels.lane import open_lane
from kvext.kernels.reference import gather_reference, scatter_reference
from kvext.kernels.routes import Copies, PieceCopies, StagedCopies, ZeroCopies

__all__ = ["Bench", "Cache", "Sizes", "Speed"]

HEAD_BYTES = 256
"""128 elements of two bytes: what a run is where tokens lie before heads."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is copied.

    Attributes:
        piece_bytes: Bytes of one block in one layer, each measured.
        num_layers: Layers.
        batch_bytes: About what one call copies.
        rounds: Times that each is measured.
        square: Rows of the matrices that compute beside the copies.
        programs: Numbers of programs of a launch.
    """

    piece_bytes: tuple[int, ...]
    num_layers: int
    batch_bytes: int
    rounds: int
    square: int
    programs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """KV memory and the records that it is copied to and from.

    Attributes:
        kv: The memory.
        block_ids: The blocks of a batch, all different, in no order.
        records_RP: Pinned host memory.
    """

    kv: PagedKV
    block_ids: list[int]
    records_RP: torch.Tensor

    @property
    def num_bytes(self) -> int:
        """What one call copies."""
        return int(self.records_RP.nbytes)


@dataclass(frozen=True, slots=True)
class Speed:
    """GB/s out and in, and what share of memcpy's speed in the same rounds that is."""

    d2h_gb_s: float
    gather_gb_s: float
    gather_to_memcpy: float
    h2d_gb_s: float
    scatter_gb_s: float
    scatter_to_memcpy: float

    @classmethod
    def of(
        cls, num_bytes: int, d2h_s: float, gather_s: float, h2d_s: float, scatter_s: float
    ) -> "Speed":
        """From seconds."""
        d2h, gather, h2d, scatter = (
            num_bytes / each_s / 1e9 for each_s in (d2h_s, gather_s, h2d_s, scatter_s)
        )
        return cls(d2h, gather, gather / d2h, h2d, scatter, scatter / h2d)


class Bench:
    """One device and what is measured on it."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        """Choose device and sizes."""
        self.device = device
        self.sizes = sizes

    def wait(self) -> None:
        """Let the device finish."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], object]) -> float:
        """Wall time until the device has done the work."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def cache(self, piece_bytes: int, *, tokens_first: bool = False) -> Cache:
        """Random bytes in twice as many blocks as a batch has."""
        num_layers = self.sizes.num_layers
        num_records = max(2, self.sizes.batch_bytes // (piece_bytes * num_layers))
        shape = (2 * num_records, 8, piece_bytes // HEAD_BYTES // 8, HEAD_BYTES)
        if tokens_first:
            shape = (shape[0], shape[2], shape[1], shape[3])
        layers = [
            torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device)
            for _ in range(num_layers)
        ]
        kv = PagedKV([kv_B.transpose(1, 2) for kv_B in layers] if tokens_first else layers)
        records_RP = torch.zeros(
            (num_records, kv.record_bytes),
            dtype=torch.uint8,
            pin_memory=self.device.type == "cuda",
        )
        return Cache(kv, torch.randperm(2 * num_records)[:num_records].tolist(), records_RP)

    def engine(self, cache: Cache, route: Route, num_programs: int = 128) -> CopyEngine:
        """An engine with the kernel, on the processor too."""
        lane = open_lane(self.device)
        with lane.enqueue():
            copies = self._copies(cache, route, num_programs)
        self.wait()
        return CopyEngine(cache.kv, lane, copies, route)

    def check(self, cache: Cache, engine: CopyEngine) -> None:
        """Compare both directions with the oracle, the blocks around included."""
        cache.records_RP.zero_()
        engine.gather(cache.block_ids, cache.records_RP)
        self.wait()
        assert torch.equal(cache.records_RP, gather_reference(cache.kv.tensors, cache.block_ids))
        cache.records_RP.copy_(torch.randint(0, 256, cache.records_RP.shape, dtype=torch.uint8))
        expected = [kv_BHNC.clone() for kv_BHNC in cache.kv.tensors]
        scatter_reference(expected, cache.records_RP, cache.block_ids)
        engine.scatter(cache.records_RP, cache.block_ids)
        self.wait()
        assert all(map(torch.equal, cache.kv.tensors, expected))

    def speed(self, cache: Cache, engine: CopyEngine) -> Speed:
        """Both directions, beside memcpy of the same bytes; checked first."""
        self.check(cache, engine)
        flat_RP = torch.empty_like(cache.records_RP, device=self.device)
        ids, host_RP = cache.block_ids, cache.records_RP
        d2h, gather, h2d, scatter = [], [], [], []
        for _ in range(self.sizes.rounds):
            d2h.append(self.seconds(lambda: host_RP.copy_(flat_RP, non_blocking=True)))
            gather.append(self.seconds(lambda: engine.gather(ids, host_RP)))
            h2d.append(self.seconds(lambda: flat_RP.copy_(host_RP, non_blocking=True)))
            scatter.append(self.seconds(lambda: engine.scatter(host_RP, ids)))
        return Speed.of(cache.num_bytes, *map(statistics.median, (d2h, gather, h2d, scatter)))

    def slowdown(self, cache: Cache, engine: CopyEngine) -> float:
        """How much longer matrix products take while blocks are gathered; 0 is not at all."""
        square = torch.ones((self.sizes.square,) * 2, dtype=torch.bfloat16, device=self.device)

        def compute() -> float:
            if self.device.type != "cuda":
                return self.seconds(lambda: square @ square)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(20):
                square @ square
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end))

        alone, beside = [], []
        for _ in range(self.sizes.rounds):
            self.wait()
            alone.append(compute())
            self.wait()
            for _ in range(8):  # enough to last longer than the products
                engine.gather(cache.block_ids, cache.records_RP)
            beside.append(compute())
        self.wait()
        return statistics.median(beside) / statistics.median(alone) - 1

    def _copies(self, cache: Cache, route: Route, num_programs: int) -> Copies:
        from kvext.kernels.triton_copy import KernelPacker  # noqa: PLC0415 - after the environment

        if route is Route.PIECES:
            return PieceCopies(cache.kv)
        packer = KernelPacker(cache.kv, num_programs)
        if route is Route.ZERO_COPY:
            return ZeroCopies(packer)
        return StagedCopies(cache.kv, packer, len(cache.block_ids))
