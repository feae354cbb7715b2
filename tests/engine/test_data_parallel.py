"""Data-parallel engines of one `vllm serve`: two ranks, one pool, one identity."""

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.serving import ServedEngine
from tests.engine.engines import prompt


def complete(engine: ServedEngine, model: Path, rank: int, tokens: Sequence[int]) -> dict[str, Any]:
    """One greedy answer of one rank."""
    document = {
        "model": str(model),
        "prompt": list(tokens),
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{engine.port}/v1/completions",
        json.dumps(document).encode(),
        {"Content-Type": "application/json", "X-data-parallel-rank": str(rank)},
    )
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.mark.engine_heavy
@pytest.mark.timeout(420)
def test_what_one_rank_computed_the_other_finds(model: Path, tmp_path: Path) -> None:
    command = ["kvext", "serve", str(model), "--pool", "64MiB", "--pool-folder", str(tmp_path)]
    command += ["--data-parallel-size=2", "--dtype=float32", "--block-size=32"]
    command += ["--max-model-len=1024", "--kv-cache-memory-bytes=32M", "--enforce-eager"]
    tokens, back = prompt(960), prompt(961)
    with ServedEngine(command, log=tmp_path / "log", cores="0|1") as engine:
        cold = complete(engine, model, 0, tokens)
        warm = complete(engine, model, 1, tokens)
        complete(engine, model, 1, back)
        returned = complete(engine, model, 0, back)
    assert cold["kv_transfer_params"]["kvext"]["pool_tokens"] == 0
    assert warm["kv_transfer_params"]["kvext"]["pool_tokens"] == 384
    assert returned["kv_transfer_params"]["kvext"]["pool_tokens"] == 384
    assert warm["choices"][0]["token_ids"] == cold["choices"][0]["token_ids"]
