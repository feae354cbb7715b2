"""Hits that are computed again: right KV verifies clean, wrong KV with a valid sum is caught."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from kvext.pool import NamespaceState
from kvext.testing.models import tiny_lora
from tests.engine.engines import Answer, Engine, Engines, prompt
from tests.engine.pools import attached, rewrite

NUM_BLOCKS = 384 // 32
"""What a prompt of 400 tokens could have loaded."""


@pytest.fixture
def options(pool_options: dict[str, Any]) -> dict[str, Any]:
    return {**pool_options, "pool_name": "shadow", "shadow_share": 1.0}


def shadowed(engine: Engine, ask: Callable[[], Answer]) -> Answer:
    """Ask until the comparison was told before the request had ended; it runs beside the steps."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        engine.forget_local()
        answer = ask()
        assert answer.kvext["reason"] == "shadow"
        assert answer.kvext["pool_tokens"] == 0
        if sum(answer.kvext.get("verified", {}).values()) >= NUM_BLOCKS:
            return answer
    raise AssertionError("no request ever heard of its comparison")


def figure(name: str) -> float:
    """A counter of the engine's `/metrics`, over all its labels."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == f"kvext:{name}_total"
    )


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        step()


@pytest.mark.parametrize("load", ["sync", "async"])
def test_healthy_pool_verifies_clean_and_goes_on_being_used(
    engines: Engines,
    model: Path,
    options: dict[str, Any],
    load: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, tokens = engines.get(model, {**options, "load": load}), prompt(700)
    cold = engine.ask(tokens, max_tokens=40)
    warm = shadowed(engine, lambda: engine.ask(tokens, max_tokens=40))
    verified = warm.kvext["verified"]
    assert set(verified) <= {"identical", "within_tolerance"}
    assert warm.same_as(cold)
    with attached(options) as pool:
        assert {use.state for use in pool.namespaces()} == {NamespaceState.LIVE}
        assert pool.stat().num_pinned == 0
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_salted_and_adapted_requests_are_verified_like_any_other(
    engines: Engines, model: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    lora = LoRARequest("a", 1, str(tiny_lora(tmp_path / "a", model, seed=1)))
    engine, tokens = (
        engines.get(model, options, enable_lora=True, max_lora_rank=8, max_loras=2),
        prompt(710),
    )
    for request in ({"salt": "acme"}, {"lora": lora}):
        engine.ask(tokens, **request)
        engine.forget_local()
        answer = shadowed(engine, lambda: engine.ask(tokens, max_tokens=40, **request))  # noqa: B023
        assert "failed" not in answer.kvext["verified"]


def test_wrong_record_with_a_valid_checksum_is_caught_and_its_namespace_quarantined(
    engines: Engines,
    model: Path,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, tokens = engines.get(model, options, disable_log_stats=False), prompt(720)
    cold = engine.ask(tokens)
    engine.ask(prompt(721), salt="other")
    assert rewrite(options, tokens, lambda record: record * np.float32(1.05)) == NUM_BLOCKS
    failed, identical = figure("shadow_failed_blocks"), figure("shadow_identical_blocks")

    engine.forget_local()
    hurt = engine.ask(tokens)
    assert hurt.kvext["pool_tokens"] == 0
    assert hurt.same_as(cold)

    until(
        lambda: figure("shadow_failed_blocks") > failed,
        lambda: engine.ask(prompt(722, 20), max_tokens=2),
    )
    assert figure("shadow_failed_blocks") == failed + NUM_BLOCKS
    assert figure("shadow_identical_blocks") == identical
    assert figure("shadow_verified_blocks") >= NUM_BLOCKS
    with attached(options) as pool:
        states = {use.state: use for use in pool.namespaces() if use.num_blocks}
        assert set(states) == {NamespaceState.QUARANTINED, NamespaceState.LIVE}
        condemned = states[NamespaceState.QUARANTINED]
    (error,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert condemned.digest in error.getMessage()
    assert condemned.label in error.getMessage()
    assert f"--namespace {condemned.digest[:12]}`" in error.getMessage()
    assert "kvext pool release shadow --folder " in error.getMessage()

    # Without a reset: what the engine has loaded of it before is forgotten, too.
    after = engine.ask(tokens)
    assert (after.cached_tokens, after.kvext["pool_tokens"]) == (0, 0)
    assert after.kvext["reason"] == "not_found"
    assert after.kvext["stored_blocks"] == 0
    assert after.same_as(cold)

    with attached(options) as pool:
        assert pool.release_namespace(bytes.fromhex(condemned.digest))
    engine.forget_local()
    assert engine.ask(tokens, max_tokens=40).kvext["reason"] == "not_found"
    healed = shadowed(engine, lambda: engine.ask(tokens, max_tokens=40))
    assert "failed" not in healed.kvext["verified"]


def test_without_a_share_nothing_is_compared_and_no_thread_is_there(
    engines: Engines, model: Path, options: dict[str, Any]
) -> None:
    engine, tokens = engines.get(model, {**options, "shadow_share": 0}, fresh=True), prompt(730)
    engine.ask(tokens)
    for _ in range(5):
        engine.forget_local()
        answer = engine.ask(tokens)
        assert answer.kvext["pool_tokens"] == 384
        assert "verified" not in answer.kvext
    assert not [name for name in map(str, threading.enumerate()) if "kvext-shadow" in name]


def test_sampled_hits_are_rare_by_default(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine, tokens = engines.get(model, {**pool_options, "pool_name": "shadow"}), prompt(740, 70)
    engine.ask(tokens, max_tokens=1)
    for _ in range(60):
        engine.forget_local()
        assert engine.ask(tokens, max_tokens=1).kvext["pool_tokens"] == 64
