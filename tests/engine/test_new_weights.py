"""Weights that change inside a running engine: old KV is never met, new KV has its own name."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.models import tiny_llama
from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder whose weights a test replaces."""
    return tiny_llama(tmp_path / "served", seed=51)


def replace_weights(folder: Path, source: Path) -> None:
    """Put other weights under the same name, and let the file system's clock move on."""
    for file in source.glob("*.safetensors"):
        shutil.copyfile(file, folder / file.name)
    changed_s = max(file.stat().st_ctime for file in folder.glob("*.safetensors"))
    while time.time() < changed_s + 0.1:
        time.sleep(0.01)


def await_new_identity(engine: Engine, seed: int) -> None:
    """Ask new questions until one is stored: the digest of the new weights takes a moment."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        seed += 1000
        if engine.ask(prompt(seed, 80)).kvext["stored_blocks"]:
            return
    raise AssertionError("the new weights' digest never came")


def test_reloaded_weights_meet_no_old_kv_and_share_with_a_fresh_engine(
    engines: Engines, served: Path, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    other, tokens = tiny_llama(tmp_path / "other", seed=52), prompt(600)
    engine = engines.get(served, pool_options)
    old = engine.ask(tokens, max_tokens=16)
    engine.forget_local()
    assert engine.ask(tokens).kvext["pool_tokens"] == 384, "the control: no reload, a hit"
    replace_weights(served, other)
    engine.llm.collective_rpc("reload_weights")
    # Without a reset: vLLM's own cache must not serve old KV either.
    new = engine.ask(tokens, max_tokens=16)
    assert (new.cached_tokens, new.kvext["pool_tokens"]) == (0, 0)
    await_new_identity(engine, 601)
    engine.forget_local()
    engine.ask(tokens)
    engine.forget_local()
    warm = engine.ask(tokens, max_tokens=16)
    assert warm.kvext["pool_tokens"] == 384
    fresh = engines.get(other, pool_options)
    shared = fresh.ask(tokens, max_tokens=16)
    assert shared.kvext["pool_tokens"] == 384
    with attached(pool_options) as pool:
        pool.clear()
    fresh.forget_local()
    expected = fresh.ask(tokens, max_tokens=16)
    assert new.same_as(expected)
    assert warm.same_as(expected)
    assert shared.same_as(expected)
    assert not old.same_as(expected)


def test_request_that_lived_through_a_reload_stores_nothing(
    engines: Engines, served: Path, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    from vllm import SamplingParams  # noqa: PLC0415

    other, tokens = tiny_llama(tmp_path / "other", seed=53), prompt(610, 200)
    engine = engines.get(served, pool_options)
    sampling = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    core = engine.llm.llm_engine
    core.add_request("through", {"prompt_token_ids": tokens}, sampling)
    core.step()
    replace_weights(served, other)
    engine.llm.collective_rpc("reload_weights")
    outputs = []
    while core.has_unfinished_requests():
        outputs += [output for output in core.step() if output.finished]
    (output,) = outputs
    counts = output.kv_transfer_params["kvext"]
    assert counts["reason"].startswith("the engine's weights were changed by reload_weights")
    assert counts["stored_blocks"] + counts["existing_blocks"] <= 200 // 32
    await_new_identity(engine, 611)
    engine.ask(tokens)
    follow_up = tokens + list(output.outputs[0].token_ids)
    mixed = engine.ask(follow_up)
    assert mixed.cached_tokens > 192, "vLLM's own cache has the blocks of both"
    engine.forget_local()
    assert engine.ask(follow_up).kvext["pool_tokens"] == 192


def test_weights_touched_by_a_callers_function_stay_unknown(
    engines: Engines,
    served: Path,
    pool_options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, tokens = engines.get(served, pool_options), prompt(620)
    engine.ask(tokens)
    engine.llm.apply_model(lambda model: None)  # noqa: ARG005 - what it does, nobody can know
    engine.llm.collective_rpc("reload_weights")
    engine.forget_local()
    answer = engine.ask(tokens)
    assert (answer.kvext["pool_tokens"], answer.kvext["stored_blocks"]) == (0, 0)
    assert "changed by apply_model; restart the engine" in answer.kvext["reason"]
    warnings = [record for record in caplog.records if "weights were changed" in record.message]
    assert len(warnings) == 1
