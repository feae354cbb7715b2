"""Drafts are guesses: only accepted tokens are stored, and warm answers equal cold ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.attention_models import tiny_gemma3
from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached

NGRAM: dict[str, Any] = {
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    },
    "disable_log_stats": False,
}


@pytest.fixture(params=["one_group", "three_groups"])
def groups(request: pytest.FixtureRequest) -> int:
    return {"one_group": 1, "three_groups": 3}[request.param]


@pytest.fixture
def drafting(
    engines: Engines,
    model: Path,
    groups: int,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Engine]:
    """An engine in a process of its own: n-gram drafting compiles with numba, which would break
    the next engine of this one.
    """
    engines.close()
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    folder = model if groups == 1 else tiny_gemma3(tmp_path / "hybrid")
    engine = Engine(folder, options, **NGRAM)
    monkeypatch.undo()
    yield engine
    engine.close()


@pytest.fixture
def options(pool_options: dict[str, Any], groups: int) -> dict[str, Any]:
    return {**pool_options, "pool_name": f"drafts-{groups}"}


def counted(engine: Engine, name: str) -> int:
    return sum(metric.value for metric in engine.llm.get_metrics() if metric.name == name)


@pytest.mark.engine_heavy
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings(  # vLLM's client leaves its sockets to the collector
    "ignore:Exception ignored in. <function Context.__del__:pytest.PytestUnraisableExceptionWarning"
)
def test_only_accepted_tokens_are_stored_and_warm_equals_cold(
    drafting: Engine, options: dict[str, Any], groups: int
) -> None:
    tokens = prompt(650, 50) * 3
    cold = drafting.ask(tokens, max_tokens=100)
    num_drafted = counted(drafting, "vllm:spec_decode_num_draft_tokens")
    assert 0 < counted(drafting, "vllm:spec_decode_num_accepted_tokens") < num_drafted
    # The last token's KV is never needed; of all others every full block is there, and no other.
    num_blocks = (len(tokens) + len(cold.tokens) - 1) // 32
    with attached(options) as pool:
        assert pool.stat().num_committed == num_blocks * groups
    drafting.forget_local()
    warm = drafting.ask(tokens, max_tokens=100)
    assert warm.kvext["pool_tokens"] == 128
    assert warm.same_as(cold)
    drafting.forget_local()
    follow_up = tokens + list(cold.tokens)
    shared = drafting.ask(follow_up)
    assert shared.kvext["pool_tokens"] == num_blocks * 32
    with attached(options) as pool:
        pool.clear()
    drafting.forget_local()
    assert shared.same_as(drafting.ask(follow_up))
