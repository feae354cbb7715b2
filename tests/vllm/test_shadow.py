"""Computed blocks against the pool's records: bits first, then numbers, layer by layer."""

import fcntl
import math
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvext.connector.mover import DirectMover
from kvext.connector.shadow import Verdict
from kvext.connector.shadow_checks import Comparison
from kvext.cxl import create_region
from kvext.pool import NamespaceState, Pages, Pool
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome

torch = pytest.importorskip("torch", reason="needs the engine's tensor library")

NUM_BLOCKS, NUM_LAYERS, PIECE = 12, 3, 2 * 32 * 16
SHAPE = RecordShape(32)
NAMESPACE = b"n" * 32
MAX_RECORD_BYTES = NUM_LAYERS * PIECE * 4

Tensors = list[Any]


def keys_of(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(32, "big") for number in numbers)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    path = tmp_path / "kvext-shadow.pool"
    create_region(path, 2 << 20, Pool.initialise, on_progress=lambda *_: None)
    with Pool.attach(
        path, extent_bytes=MAX_RECORD_BYTES, label="shadow", lock_wait_s=0.05
    ) as attached:
        yield attached


def random_tensors(seed: int, dtype: Any = torch.bfloat16) -> Tensors:
    torch.manual_seed(seed)
    drawn = (torch.randn(NUM_BLOCKS, 2, 32, 16) for _ in range(NUM_LAYERS))
    return [layer.to(dtype).view(torch.uint8 if dtype.itemsize == 1 else dtype) for layer in drawn]


def store(pool: Pool, tensors: Tensors, keys: bytes, block_ids: Sequence[int]) -> None:
    piece_bytes = PIECE * tensors[0].element_size()
    pages = Pages([tensor.data_ptr() for tensor in tensors], [piece_bytes] * NUM_LAYERS, NUM_BLOCKS)
    mover = DirectMover(pool, pages, SHAPE, piece_bytes * NUM_LAYERS)
    assert set(mover.store(keys, NAMESPACE, block_ids)) == {StoreOutcome.STORED}


def no_draw() -> float:
    raise AssertionError("there was room for all")


def compare(
    pool: Pool, tensors: Tensors, keys: bytes, block_ids: Sequence[int], dtype: Any = torch.bfloat16
) -> Comparison:
    from kvext.vllm.shadow import TorchVerifier  # noqa: PLC0415 - needs torch

    begun = TorchVerifier(pool, tensors, SHAPE, dtype, no_draw).begin(keys, block_ids)
    return Comparison() if begun is None else begun()


def test_equal_blocks_are_identical_wherever_they_lie_and_unknown_ones_are_left_out(
    pool: Pool,
) -> None:
    tensors = random_tensors(1)
    store(pool, tensors, keys_of(1, 2, 4), [3, 0, 7])
    moved = [layer.clone() for layer in tensors]
    for layer in moved:
        layer[[5, 6, 8]] = layer[[3, 0, 7]]
    found = compare(pool, moved, keys_of(1, 2, 3, 4), [5, 6, 9, 8])
    assert found == Comparison([Verdict.IDENTICAL] * 3)
    assert pool.stat().num_pinned == 0


def test_nothing_is_copied_where_the_pool_has_nothing(pool: Pool) -> None:
    from kvext.vllm.shadow import TorchVerifier  # noqa: PLC0415 - needs torch

    verifier = TorchVerifier(pool, random_tensors(1), SHAPE, torch.bfloat16, no_draw)
    assert verifier.begin(keys_of(1, 2), [0, 1]) is None


def test_strides_of_the_engines_memory_do_not_matter(pool: Pool) -> None:
    tensors = random_tensors(1)
    packed = torch.zeros(NUM_BLOCKS, NUM_LAYERS, 32, 2, 16, dtype=torch.bfloat16)
    views = [packed[:, layer].transpose(1, 2) for layer in range(NUM_LAYERS)]
    for view, tensor in zip(views, tensors, strict=True):
        view.copy_(tensor)
    store(pool, tensors, keys_of(1, 2), [0, 1])
    assert compare(pool, views, keys_of(1, 2), [0, 1]).verdicts == [Verdict.IDENTICAL] * 2


def test_the_copy_is_what_is_compared_not_what_the_engine_writes_after_it(pool: Pool) -> None:
    from kvext.vllm.shadow import TorchVerifier  # noqa: PLC0415 - needs torch

    tensors = random_tensors(1)
    store(pool, tensors, keys_of(1), [0])
    begun = TorchVerifier(pool, tensors, SHAPE, torch.bfloat16, no_draw).begin(keys_of(1), [0])
    assert begun is not None
    for layer in tensors:
        layer.zero_()
    assert begun().verdicts == [Verdict.IDENTICAL]


@pytest.mark.parametrize(
    ("dtype", "noise"),
    [
        (torch.float32, 1e-4),
        (torch.float16, 0.003),
        (torch.bfloat16, 0.01),
        (torch.float8_e4m3fn, 0.02),
        (torch.float8_e5m2, 0.02),
    ],
)
def test_rounding_is_tolerated_and_what_is_no_rounding_fails(
    pool: Pool, dtype: Any, noise: float
) -> None:
    def stored(layer: Any) -> Any:
        return layer.to(dtype).view(torch.uint8 if dtype.itemsize == 1 else dtype)

    tensors = random_tensors(1, dtype)
    values = [layer.view(dtype).float() for layer in tensors]
    rounded = [stored(layer + noise * torch.randn_like(layer)) for layer in values]
    scaled = [stored(layer * 1.5) for layer in values]
    store(pool, rounded, keys_of(1), [4])
    store(pool, scaled, keys_of(2), [4])
    store(pool, random_tensors(2, dtype), keys_of(3), [4])
    found = compare(pool, tensors, keys_of(1, 2, 3), [4, 4, 4], dtype)
    assert found.verdicts == [Verdict.TOLERATED, Verdict.FAILED, Verdict.FAILED]
    assert found.worst is not None
    assert found.worst.rms > 1


@pytest.mark.parametrize("layer", range(NUM_LAYERS))
def test_one_wrong_layer_or_one_wrong_element_fails_the_block(pool: Pool, layer: int) -> None:
    tensors = random_tensors(1)
    wrong = [tensor.clone() for tensor in tensors]
    wrong[layer][2] = wrong[layer][3]
    wrong[layer][1, 0, 5, 5] = 1000.0
    wrong[layer][0, 1, 7, 7] = math.nan
    wrong[layer][4] *= 1.2
    store(pool, wrong, keys_of(1, 2, 3, 4, 5), range(5))
    found = compare(pool, tensors, keys_of(1, 2, 3, 4, 5), range(5))
    is_wrong = [True, True, True, False, True]
    assert [verdict is Verdict.FAILED for verdict in found.verdicts] == is_wrong
    assert found.verdicts[3] is Verdict.IDENTICAL


def test_bytes_that_are_no_numbers_are_judged_only_where_they_are_equal(pool: Pool) -> None:
    tensors = random_tensors(1, torch.float8_e4m3fn)
    store(pool, tensors, keys_of(1, 2), [0, 1])
    found = compare(pool, tensors, keys_of(1, 2), [0, 2], None)
    assert found.verdicts == [Verdict.IDENTICAL, Verdict.UNJUDGED]


def test_a_record_that_is_evicted_or_damaged_is_gone_and_its_neighbours_are_compared(
    pool: Pool,
) -> None:
    from kvext.vllm.shadow import TorchVerifier  # noqa: PLC0415 - needs torch

    tensors = random_tensors(1)
    keys = keys_of(1, 2, 3)
    store(pool, tensors, keys, [0, 1, 2])
    begun = TorchVerifier(pool, tensors, SHAPE, torch.bfloat16, no_draw).begin(keys, [0, 1, 2])
    assert begun is not None
    leases = [pool.match(keys[at : at + 32], SHAPE) for at in (0, 32)]
    pool.record(leases[1].refs)[1000] ^= 4
    evicted = leases[0].refs
    for lease in leases:
        lease.release()
    assert pool.evict(evicted) == 1
    assert begun().verdicts == [Verdict.GONE, Verdict.GONE, Verdict.IDENTICAL]
    assert pool.stat().num_pinned == 0


def test_more_than_a_step_may_copy_is_sampled(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvext.vllm import shadow  # noqa: PLC0415 - needs torch

    tensors = random_tensors(1)
    record_bytes = NUM_LAYERS * PIECE * 2
    monkeypatch.setattr(shadow, "_COPY_BYTES", 4 * record_bytes + 1)
    monkeypatch.setattr(shadow, "_CHUNK_BYTES", 3 * record_bytes)
    keys = keys_of(*range(1, 13))
    store(pool, tensors, keys, range(12))
    verifier = shadow.TorchVerifier(pool, tensors, SHAPE, torch.bfloat16, lambda: 0.5)
    begun = verifier.begin(keys, range(12))
    assert begun is not None
    assert begun().verdicts == [Verdict.IDENTICAL] * 4


def test_infinities_and_nans_on_both_sides_are_no_difference() -> None:
    from kvext.vllm.shadow import difference  # noqa: PLC0415 - needs torch

    engine = torch.tensor([[[1.0, math.nan, 2.0, 0.0], [0.0] * 4]])
    record = torch.tensor([[[1.0, math.nan, 2.0, 0.0], [0.0] * 4]])
    engine[0, 1, 0] = record[0, 1, 0] = math.inf
    (found,) = difference(engine, record)
    assert (found.rms, found.peak) == (0, 0)
    record[0, 1, 1] = 1.0
    (found,) = difference(torch.zeros(1, 2, 4), record)
    assert not found.rms <= 1000


@contextmanager
def lock_held(pool: Pool) -> Iterator[None]:
    """The pool's allocation lock as another process would hold it."""
    at = 1 << 60
    with pool.path.open("r+b") as file:
        for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK):
            range_ = struct.pack("hhqqixxxx", kind, 0, at, 1, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, range_)
            if kind == fcntl.F_WRLCK:
                yield


def test_condemning_waits_until_the_pools_lock_is_free_and_answers_with_the_name(
    pool: Pool,
) -> None:
    from kvext.vllm.shadow import condemn  # noqa: PLC0415 - needs torch

    pool.name_namespace(NAMESPACE, "a model", b"m" * 32)
    with ThreadPoolExecutor(1) as thread:
        with lock_held(pool):
            label = thread.submit(condemn, pool, NAMESPACE)
            with pytest.raises(TimeoutError):
                label.result(timeout=0.5)
        assert label.result(timeout=20) == "a model"
    (use,) = pool.namespaces()
    assert use.state is NamespaceState.QUARANTINED
    assert condemn(pool, b"o" * 32) == "unnamed"
