# ruff: noqa: N806 - tensor names carry shapes
"""The host's side of `gpu_copy.py`: a registered mapping, and the pool behind the copies."""

import mmap
import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kvext.kernels import PagedKV, PinnedRegion, open_engine
from kvext.protocol.layout import RecordShape

__all__ = ["pool_figures", "region_figures"]

MIB = 1 << 20
REGION_BYTES = 512 * MIB
NAMESPACE = b"n" * 32
ROUNDS = 5

Seconds = Callable[[Callable[[], object]], float]


def region_figures(seconds: Seconds, device: torch.device) -> dict[str, object]:
    """A shared mapping, like a pool's: what pinning costs and how fast copies are afterwards."""
    if device.type != "cuda":
        return {"left_out": "pinning needs CUDA"}
    with TemporaryDirectory(dir="/dev/shm", prefix="kvext-bench-") as name:
        path = Path(name) / "region"
        with path.open("w+b") as file:
            file.truncate(REGION_BYTES)
            mapping = mmap.mmap(file.fileno(), REGION_BYTES)
        host = torch.frombuffer(mapping, dtype=torch.uint8)
        host.fill_(1)
        on_device = torch.zeros_like(host, device=device)

        def gb_s(work: Callable[[], object]) -> float:
            return REGION_BYTES / statistics.median(seconds(work) for _ in range(ROUNDS)) / 1e9

        pageable = gb_s(lambda: on_device.copy_(host, non_blocking=True))
        regions: list[PinnedRegion] = []
        pin_s = seconds(
            lambda: regions.append(PinnedRegion.register(host.data_ptr(), REGION_BYTES))
        )
        with regions[0]:
            assert host.is_pinned()
            h2d = gb_s(lambda: on_device.copy_(host, non_blocking=True))
            on_device.fill_(7)
            d2h = gb_s(lambda: host.copy_(on_device, non_blocking=True))
            assert bool((host == 7).all())  # noqa: PLR2004 - what was filled in
        assert not host.is_pinned()
    return {
        "register_s_a_gib": pin_s * (1 << 30) / REGION_BYTES,
        "pageable_h2d_gb_s": pageable,
        "h2d_gb_s": h2d,
        "d2h_gb_s": d2h,
    }


def pool_figures(seconds: Seconds, kv: PagedKV) -> dict[str, object]:
    """Stores and verified loads through the staging buffers and a real pool."""
    try:
        from kvext.cxl import create_region  # noqa: PLC0415 - its core is native
        from kvext.pool import Pool  # noqa: PLC0415
    except ImportError as error:
        return {"left_out": f"kvext's native core cannot be imported here: {error}"}
    num_bytes = kv.num_blocks // 2 * kv.record_bytes
    with TemporaryDirectory(dir="/dev/shm", prefix="kvext-bench-") as name:
        path = Path(name) / "kvext-gpu.v2.pool"
        create_region(path, 2 * num_bytes + 64 * MIB, Pool.initialise)
        with Pool.attach(path, extent_bytes=kv.record_bytes) as pool:
            figures = [staged_figures(seconds, kv, pool, size * MIB) for size in (4, 8, 16, 32, 64)]
    return {"record_kib": kv.record_bytes // 1024, "staged": figures}


def staged_figures(
    seconds: Seconds, kv: PagedKV, pool: Any, staging_bytes: int
) -> dict[str, object]:
    """Both directions with staging buffers of one size; every round is compared."""
    from kvext.vllm.staging import StagedMover  # noqa: PLC0415 - needs the native core

    shape, block_ids = RecordShape(16), range(kv.num_blocks // 2)
    mover = StagedMover(pool, kv.tensors, shape, staging_bytes, open_engine)
    store_s, load_s = [], []
    for _ in range(ROUNDS):
        pool.clear()
        keys = os.urandom(32 * len(block_ids))
        before = [kv_BHNC.clone() for kv_BHNC in kv.tensors]
        store_s.append(seconds(partial(mover.store, keys, NAMESPACE, block_ids)))
        lease = pool.match(keys, shape)
        assert lease.num_blocks == len(block_ids)
        for kv_BHNC in kv.tensors:
            kv_BHNC[: len(block_ids)].zero_()
        load_s.append(seconds(partial(mover.load, lease.refs, block_ids)))
        lease.release()
        assert all(map(torch.equal, kv.tensors, before))
    num_bytes = len(block_ids) * kv.record_bytes
    return {
        "staging_mib": staging_bytes // MIB,
        "store_gb_s": num_bytes / statistics.median(store_s) / 1e9,
        "load_gb_s": num_bytes / statistics.median(load_s) / 1e9,
    }
