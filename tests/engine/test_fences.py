"""Old KV of a model becomes unreachable at once under a running engine, and nothing else does."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvext.pool import NamespaceState, NamespaceUse
from kvext.testing.models import tiny_llama, tiny_lora
from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached


@pytest.fixture
def options(pool_options: dict[str, Any]) -> dict[str, Any]:
    return {**pool_options, "pool_name": "fences"}


def warm_tokens(engine: Engine, tokens: list[int], **request: Any) -> int:
    """What the pool has of a prompt for an engine that has nothing itself."""
    engine.forget_local()
    return int(engine.ask(tokens, **request).kvext["pool_tokens"])


def live(options: dict[str, Any]) -> list[NamespaceUse]:
    with attached(options) as pool:
        return [use for use in pool.namespaces() if use.state is NamespaceState.LIVE]


def test_fenced_model_is_unreachable_at_once_and_stored_anew(
    engines: Engines, model: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    lora = LoRARequest("a", 1, str(tiny_lora(tmp_path / "a", model, seed=1)))
    engine = engines.get(model, options, enable_lora=True, max_lora_rank=8, max_loras=2)
    tokens = prompt(750)
    requests: list[dict[str, Any]] = [{}, {"salt": "acme"}, {"lora": lora}]
    for request in requests:
        engine.ask(tokens, **request)
        assert warm_tokens(engine, tokens, **request) == 384, "the control: no fence, a hit"
    held = [use for use in live(options) if use.num_blocks]
    (digest,) = {use.model for use in held}
    assert digest != "00" * 32
    with attached(options) as pool:
        assert pool.fence(b"\x01" * 32).num_records == 0, "another model's fence"
    assert warm_tokens(engine, tokens) == 384
    with attached(options) as pool:
        report = pool.fence(bytes.fromhex(digest))
    assert report.num_namespaces == 3
    assert report.num_records >= 3 * 12
    for request in requests:
        engine.forget_local()
        cold = engine.ask(tokens, **request)
        assert cold.kvext["pool_tokens"] == 0
        assert cold.kvext["reason"] == "not_found"
        engine.forget_local()
        again = engine.ask(tokens, **request)
        assert again.kvext["pool_tokens"] == 384
        assert again.same_as(cold)
    assert {use.label for use in live(options)} == {use.label for use in held}
    assert {use.model for use in live(options)} == {digest}, "the next fence must reach it, too"


def test_fencing_all_but_one_model_leaves_that_one_and_nothing_else(
    engines: Engines, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    options = {**pool_options, "pool_name": "all-but"}
    old, new = tiny_llama(tmp_path / "old", seed=61), tiny_llama(tmp_path / "new", seed=62)
    tokens = prompt(760)
    engines.get(old, options).ask(tokens)
    (first,) = live(options)
    engine = engines.get(new, options)
    engine.ask(tokens)
    (second,) = (use for use in live(options) if use.model != first.model)
    with attached(options) as pool:
        assert pool.fence_all_but(bytes.fromhex(second.model)).num_namespaces == 1
    assert warm_tokens(engine, tokens) == 384
    moved = Path(shutil.copytree(old, tmp_path / "old again"))
    back = engines.get(moved, options)
    assert warm_tokens(back, tokens) == 0, "the same weights at another path are fenced as well"
    assert warm_tokens(back, tokens) == 384, "what is stored after the fence counts"


def test_resets_of_the_engine_leave_the_shared_pool_alone(
    engines: Engines, model: Path, options: dict[str, Any]
) -> None:
    engine, tokens = engines.get(model, options), prompt(770)
    engine.ask(tokens)
    with attached(options) as pool:
        before = pool.stat()
        assert engine.llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        # Pausing, sleeping and weight updates reset everything in this way.
        core = engine.llm.llm_engine.engine_core.engine_core
        core._reset_caches()  # noqa: SLF001 - vLLM's own callers have no other name for it
        after = pool.stat()
    assert before.num_committed == after.num_committed > 0
    assert after.counters["cleared"] == before.counters["cleared"]
    assert engine.ask(tokens).kvext["pool_tokens"] == 384
