# ruff: noqa: N803, N806 - tensor names carry shapes
"""Comparing blocks of vLLM's KV memory with the pool's records of them.

Both sides are compared as bytes first. Where bits differ the elements are compared as numbers,
layer by layer, in the record's own order; how a backend packs a block's inside does not matter,
since both sides are packed alike.

Legend: B blocks, R bytes of a record, L layers, E elements of a layer's piece of a block.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.linalg import vector_norm
from vllm.platforms import current_platform

from kvext.connector.shadow import (
    Difference,
    Verdict,
    choose_blocks,
    judge,
    tolerance_of,
    worse,
)
from kvext.connector.shadow_checks import Comparison
from kvext.errors import PoolLockTimeout
from kvext.pool import Pages, Pool
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import LoadOutcome

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["TorchVerifier", "condemn", "difference", "element_type"]

_COPY_BYTES = 8 << 20
"""Most that a step stands still for, unless one block is larger: some ms of copying."""
_CHUNK_BYTES = 2 << 20
"""Compared at once; bounds the memory that comparing takes to some times as much."""
_RETRY_S = 0.1


class TorchVerifier:
    """Compares the blocks of one engine's tensors with a pool."""

    __slots__ = ("_draw", "_element", "_limit", "_pool", "_shape", "_tensors", "_tolerance")

    def __init__(
        self,
        pool: Pool,
        tensors: Sequence[torch.Tensor],
        shape: RecordShape,
        element: torch.dtype | None,
        draw: Callable[[], float],
    ) -> None:
        """Allocate nothing yet.

        Args:
            pool: Has the records.
            tensors: One `kv_BHNC` a layer, in the order of a record, all of one shape.
            shape: What one record holds.
            element: What the tensors' bytes are; None if their values cannot be read.
            draw: A random number in [0, 1).
        """
        self._pool = pool
        self._tensors = [_plain(kv_BHNC) for kv_BHNC in tensors]
        self._shape = shape
        self._element = element
        self._tolerance = None if element is None else tolerance_of(_name(element))
        self._draw = draw
        first = tensors[0]
        record_bytes = len(tensors) * first[0].numel() * first.element_size()
        self._limit = max(1, _COPY_BYTES // record_bytes)

    def begin(self, keys: bytes, block_ids: Sequence[int]) -> Callable[[], Comparison] | None:
        """Copy those blocks that the pool has records of, in the engine's own order of work."""
        chosen = choose_blocks(self._pool.lookup(keys, self._shape), self._limit, self._draw)
        if not chosen:
            return None
        names = [keys[index * KEY_BYTES : (index + 1) * KEY_BYTES] for index in chosen]
        return partial(self._compare, names, self._copy([block_ids[index] for index in chosen]))

    def _copy(self, block_ids: Sequence[int]) -> torch.Tensor:
        """Blocks as records, in host memory."""
        first = self._tensors[0]
        index = torch.tensor(block_ids, device=first.device)
        sizes = (len(block_ids), len(self._tensors), *first.shape[1:])
        copy_BLHNC = torch.empty(sizes, dtype=first.dtype, device=first.device)
        for layer, kv_BHNC in enumerate(self._tensors):
            copy_BLHNC[:, layer] = kv_BHNC.index_select(0, index)
        return copy_BLHNC.cpu().view(len(block_ids), -1).view(torch.uint8)

    def _compare(self, names: Sequence[bytes], engine_BR: torch.Tensor) -> Comparison:
        step = max(1, _CHUNK_BYTES // engine_BR.shape[1])
        verdicts: list[Verdict] = []
        worst: Difference | None = None
        for start in range(0, len(names), step):
            part = self._compare_some(names[start : start + step], engine_BR[start : start + step])
            verdicts += part.verdicts
            worst = worse(worst, part.worst)
        return Comparison(verdicts, worst)

    def _compare_some(self, names: Sequence[bytes], engine_BR: torch.Tensor) -> Comparison:
        verdicts = [Verdict.GONE] * len(names)
        record_BR = torch.empty_like(engine_BR)
        there = self._read(names, record_BR)
        others: list[int] = []
        for row in there:
            is_equal = torch.equal(engine_BR[row], record_BR[row])
            verdicts[row] = Verdict.IDENTICAL if is_equal else Verdict.UNJUDGED
            if not is_equal:
                others.append(row)
        if self._tolerance is None or self._element is None or not others:
            return Comparison(verdicts)
        engine_BLE, record_BLE = (
            side[others].view(len(others), len(self._tensors), -1).view(self._element)
            for side in (engine_BR, record_BR)
        )
        differences = difference(engine_BLE, record_BLE)
        worst: Difference | None = None
        for row, found in zip(others, differences, strict=True):
            verdicts[row] = judge(found, self._tolerance)
            worst = worse(worst, found)
        return Comparison(verdicts, worst)

    def _read(self, names: Sequence[bytes], record_BR: torch.Tensor) -> list[int]:
        """Fill the rows whose records are there and sound; returns these rows."""
        pages = Pages([record_BR.data_ptr()], [record_BR.shape[1]], len(names))
        rows: list[int] = []
        for row, name in enumerate(names):
            lease = self._pool.match(name, self._shape)
            try:
                if lease.num_blocks and self._pool.load(lease.refs, pages, [row]) == _LOADED:
                    rows.append(row)
            finally:
                lease.release()
        return rows


_LOADED = bytes([LoadOutcome.LOADED])


def difference(engine_BLE: torch.Tensor, record_BLE: torch.Tensor) -> list[Difference]:
    """How far each block's record is from what the engine has computed, in its worst layer.

    Equal elements count as no difference, infinities and NaNs among them.
    """
    engine, record = engine_BLE.float(), record_BLE.float()
    apart = engine - record
    if not apart.isfinite().all():
        apart[(engine == record) | (engine.isnan() & record.isnan())] = 0
    rms_B, peak_B = (
        _ratio(vector_norm(apart, order, 2), vector_norm(engine, order, 2)).amax(dim=1).tolist()
        for order in (2, torch.inf)
    )
    return [Difference(rms, peak) for rms, peak in zip(rms_B, peak_B, strict=True)]


def element_type(vllm_config: "VllmConfig", kv_BHNC: torch.Tensor) -> torch.dtype | None:
    """What the bytes of a KV tensor are; vLLM keeps fp8 as plain bytes.

    Args:
        vllm_config: vLLM's configuration.
        kv_BHNC: Any of the engine's tensors.

    Returns:
        A type of floating-point numbers; None for formats that mix types within a block.
    """
    if kv_BHNC.dtype.is_floating_point:
        return kv_BHNC.dtype
    cache_dtype = str(vllm_config.cache_config.cache_dtype)
    if cache_dtype in ("fp8", "fp8_e4m3"):
        return current_platform.fp8_dtype()
    return torch.float8_e5m2 if cache_dtype == "fp8_e5m2" else None


def condemn(pool: Pool, namespace: bytes) -> str:
    """Quarantine a namespace, however long the pool's lock is taken.

    Args:
        pool: Where.
        namespace: Its digest.

    Returns:
        What people call it.

    Raises:
        PoolLockTimeout: The lock stayed taken for longer than a silent process may hold it.
    """
    deadline_s = time.monotonic() + 2 * pool.lease_s
    while True:
        try:
            pool.quarantine_namespace(namespace)
            break
        except PoolLockTimeout:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(_RETRY_S)
    digest = namespace.hex()
    return next((use.label for use in pool.namespaces() if use.digest == digest), "") or "unnamed"


def _plain(kv_BHNC: torch.Tensor) -> torch.Tensor:
    """The same bytes in a type that every device can gather, which fp8 is not."""
    return kv_BHNC.view(torch.uint8) if kv_BHNC.element_size() == 1 else kv_BHNC


def _ratio(apart_BL: torch.Tensor, whole_BL: torch.Tensor) -> torch.Tensor:
    """`apart / whole`, with 0 / 0 as none."""
    return torch.where(apart_BL == 0, apart_BL, apart_BL / whole_BL)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
