"""An adapter reloaded in place under its name: the engine's own prefix cache must not mix them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.models import tiny_lora
from tests.engine.engines import Engine, Engines, prompt

LORA: dict[str, Any] = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}


def adapter(folder: Path, number: int, *, load_inplace: bool = False) -> Any:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    return LoRARequest(folder.name, number, str(folder), load_inplace=load_inplace)


def replace_contents(folder: Path, model: Path, seed: int) -> None:
    shutil.rmtree(folder)
    tiny_lora(folder, model, seed=seed)


@pytest.fixture
def engine(engines: Engines, model: Path, pool_options: dict[str, Any]) -> Engine:
    return engines.get(model, pool_options, **LORA)


def test_engine_misses_its_own_cache_after_the_adapter_was_reloaded_in_place(
    engine: Engine, model: Path, tmp_path: Path
) -> None:
    folder, tokens = tiny_lora(tmp_path / "tuned", model, seed=31), prompt(500)
    old = engine.ask(tokens, lora=adapter(folder, 31))
    control = engine.ask(tokens, lora=adapter(folder, 31))
    assert control.kvext["local_tokens"] == 384, "unchanged files hit"
    assert control.same_as(old)
    replace_contents(folder, model, seed=32)
    new = engine.ask(tokens, lora=adapter(folder, 31, load_inplace=True))
    assert new.cached_tokens == 0
    again = engine.ask(tokens, lora=adapter(folder, 31))
    engine.ask(tokens, lora=adapter(folder, 31))
    assert engine.ask(tokens, lora=adapter(folder, 31)).cached_tokens == 384
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    expected = engine.ask(tokens, lora=adapter(Path(elsewhere), 32))
    assert new.same_as(expected)
    assert again.same_as(expected)
    assert not new.same_as(old)


def test_what_the_old_adapter_computed_after_its_files_changed_is_not_the_new_ones(
    engine: Engine, model: Path, tmp_path: Path
) -> None:
    folder, tokens = tiny_lora(tmp_path / "stale", model, seed=41), prompt(510)
    engine.ask(prompt(511), lora=adapter(folder, 41))
    replace_contents(folder, model, seed=42)
    still_old = engine.ask(tokens, lora=adapter(folder, 41))
    new = engine.ask(tokens, lora=adapter(folder, 41, load_inplace=True))
    assert new.cached_tokens == 0
    assert not new.same_as(still_old)
