"""Two tensor-parallel ranks of one host: each has its shard of a block in the pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from kvext.protocol.layout import RecordShape
from kvext.testing.engine_metrics import EngineMetrics
from tests.engine.engines import BLOCK_TOKENS, Engine, Engines, prompt
from tests.engine.pools import attached, keys_of
from tests.engine.test_identity_options import assert_apart

pytestmark = [pytest.mark.engine_heavy, pytest.mark.timeout(420)]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where vLLM puts it
TWO: dict[str, Any] = {"tensor_parallel_size": 2}
BLOCK_BYTES = BLOCK_TOKENS * 4096
"""Of the tiny model, over both ranks."""
SHARDS = [RecordShape(BLOCK_TOKENS, rank, 2) for rank in range(2)]


@pytest.fixture(autouse=True)
def own_processes(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers are new processes, which a fork of this one, full of threads, must not be."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    before = set(SHARED_MEMORY.glob("vllm_dist_*"))
    yield
    engines.close()
    # vLLM's ranks talk through shared memory and leave it behind.
    for left in set(SHARED_MEMORY.glob("vllm_dist_*")) - before:
        left.unlink()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"pool_folder": str(tmp_path), "pool_size": "32MiB"}


def wreck_shard(options: dict[str, Any], tokens: list[int], rank: int, block: int) -> None:
    """Make one rank's shard of a block wrong by far."""
    with attached(options) as pool:
        _, keys = keys_of(pool, tokens, SHARDS[rank])
        lease = pool.match(keys[32 * block : 32 * block + 32], SHARDS[rank])
        values = np.frombuffer(pool.record(lease.refs), np.float32)
        values *= -3
        lease.release()


def scramble(engine: Engine) -> None:
    """Fill the engine's memory, so that a recycled block does not hold the right bytes by luck."""
    engine.ask_all([prompt(9000 + index, 1000) for index in range(6)])
    engine.forget_local()


def test_what_two_ranks_stored_the_next_engine_of_two_ranks_finds(
    engines: Engines, model: Path, options: dict[str, Any]
) -> None:
    tokens = prompt(970)
    stock = engines.get(model, None, **TWO).ask(tokens)
    cold = engines.get(model, options, **TWO).ask(tokens)
    assert cold.same_as(stock)
    assert cold.kvext["stored_blocks"] + cold.kvext["unreported_stores"] == 12
    engine = engines.get(model, options, fresh=True, disable_log_stats=False, **TWO)
    warm = engine.ask(tokens)
    assert warm.same_as(stock)
    assert (warm.kvext["pool_tokens"], warm.kvext["loaded_blocks"]) == (384, 12)
    assert warm.kvext["loads"] == {"async": 1}
    figures = EngineMetrics.parse(generate_latest().decode())
    assert figures.value("kvext:loaded_blocks_total") == 12
    assert figures.value("kvext:loaded_bytes_total") == 12 * BLOCK_BYTES
    with attached(options) as pool:
        _, keys = keys_of(pool, tokens, SHARDS[0])
        assert [pool.lookup(keys, shard) for shard in SHARDS] == [b"\1" * 12] * 2
        assert pool.stat().num_pinned == 0


def test_one_rank_and_two_ranks_have_kv_of_their_own(
    engines: Engines, model: Path, options: dict[str, Any]
) -> None:
    assert_apart(engines, model, options, {}, TWO)


@pytest.mark.parametrize("rank", [0, 1])
def test_bad_or_missing_shard_of_one_rank_is_computed_again(
    engines: Engines, model: Path, options: dict[str, Any], rank: int
) -> None:
    tokens = prompt(980)
    engine = engines.get(model, options, **TWO)
    cold = engine.ask(tokens)
    scramble(engine)
    wreck_shard(options, tokens, rank, 5)
    hurt = engine.ask(tokens)
    assert hurt.kvext["failed_loads"] == {"corrupt": 1}
    assert hurt.kvext["pool_tokens"] == 5 * BLOCK_TOKENS
    assert hurt.same_as(cold)
    scramble(engine)
    again = engine.ask(tokens)
    assert again.kvext["pool_tokens"] == 384, "what was bad is stored anew"
    assert again.same_as(cold)
    with attached(options) as pool:
        _, keys = keys_of(pool, tokens, SHARDS[rank])
        lease = pool.match(keys[32 * 7 : 32 * 8], SHARDS[rank])
        refs = lease.refs
        lease.release()
        assert pool.evict(refs) == 1
    scramble(engine)
    shorter = engine.ask(tokens)
    assert shorter.kvext["pool_tokens"] == 7 * BLOCK_TOKENS
    assert shorter.same_as(cold)
