"""A vLLM that kvext was not tested with is served if its hooks are as known; else it runs stock."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvext.vllm import compat, entry
from tests.engine.engines import Engines, prompt


@pytest.fixture
def choose_again(engines: Engines) -> Iterator[None]:
    """What was chosen for the real vLLM does not hold for a changed one, nor the reverse."""
    engines.close()
    entry.connector_class.cache_clear()
    yield
    engines.close()
    entry.connector_class.cache_clear()


@pytest.mark.usefixtures("choose_again")
def test_vllm_without_a_hook_serves_uncached_and_names_the_hook_once(
    engines: Engines,
    model: Path,
    pool_options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: PLC0415

    tokens = prompt(600)
    expected = engines.get(model, None).ask(tokens)
    engines.close()
    monkeypatch.delattr(KVCacheManager, "evict_blocks")
    with caplog.at_level(logging.WARNING, "kvext"):
        engine = engines.get(model, pool_options)
        answers = [engine.ask(tokens)]
        engine.forget_local()
        answers.append(engine.ask(tokens))
    assert all(answer.same_as(expected) for answer in answers)
    assert [(answer.cached_tokens, answer.kvext) for answer in answers] == [(0, {})] * 2
    (warning,) = (
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("kvext") and record.levelno >= logging.WARNING
    )
    assert "KVCacheManager.evict_blocks is gone" in warning


@pytest.mark.usefixtures("choose_again")
def test_untested_vllm_with_every_hook_is_served(
    engines: Engines,
    model: Path,
    pool_options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "TESTED_RELEASES", ("0.1",))
    tokens = prompt(610)
    with caplog.at_level(logging.INFO, "kvext"):
        engine = engines.get(model, pool_options)
        engine.ask(tokens)
        engine.forget_local()
        assert engine.ask(tokens).kvext["pool_tokens"] == 384
    assert any("not tested with this vLLM" in record.getMessage() for record in caplog.records)
