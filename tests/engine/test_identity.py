"""The same bytes are found under any name, other bytes never; each miss has a control that hits."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.models import tiny_llama, tiny_lora
from tests.engine.engines import Answer, Engines, prompt


def hit(answer: Answer) -> bool:
    return bool(answer.kvext["pool_tokens"])


def flip_one_weight(folder: Path) -> None:
    """Change one element of the weights and put size and modification time back."""
    (file,) = folder.glob("*.safetensors")
    before = file.stat()
    with file.open("r+b") as weights:
        weights.seek(-1000, os.SEEK_END)
        byte = weights.read(1)
        weights.seek(-1000, os.SEEK_END)
        weights.write(bytes([byte[0] ^ 0x40]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def test_replaced_weights_miss_and_the_same_weights_elsewhere_hit(
    engines: Engines, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    original, tokens = tiny_llama(tmp_path / "original", seed=7), prompt(100)
    moved = Path(shutil.copytree(original, tmp_path / "moved"))
    assert not hit(engines.get(original, pool_options).ask(tokens))
    flip_one_weight(original)
    changed = engines.get(original, pool_options, fresh=True)
    answer = changed.ask(tokens)
    assert not hit(answer)
    assert "reason" in answer.kvext
    assert answer.kvext["reason"] == "not_found", (
        "an unknown identity would miss for another reason"
    )
    assert hit(engines.get(moved, pool_options).ask(tokens))


def test_other_dtype_misses_and_the_same_dtype_hits(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(110)
    assert not hit(engines.get(model, pool_options).ask(tokens))
    other = engines.get(model, pool_options, dtype="bfloat16").ask(tokens)
    assert other.kvext["reason"] == "not_found"
    assert not hit(other)
    assert hit(engines.get(model, pool_options).ask(tokens))


def test_other_block_size_misses_and_keeps_its_own_records(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(120)
    options = {**pool_options, "pool_name": "block-sizes"}
    assert not hit(engines.get(model, options, block_size=64).ask(tokens))
    assert not hit(engines.get(model, options).ask(tokens))
    assert hit(engines.get(model, options, fresh=True).ask(tokens))
    assert hit(engines.get(model, options, block_size=64).ask(tokens))


def test_other_salt_misses_and_the_same_salt_hits(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine, tokens = engines.get(model, pool_options), prompt(130)
    engine.ask(tokens, salt="acme")
    engine.forget_local()
    assert not hit(engine.ask(tokens, salt="rival"))
    assert not hit(engine.ask(tokens))
    engine.forget_local()
    assert hit(engine.ask(tokens, salt="acme"))


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    tiny_lora(folder / "a", model, seed=1)
    tiny_lora(folder / "b", model, seed=2)
    shutil.copytree(folder / "a", folder / "a-again")
    return folder


def test_other_adapter_misses_and_the_same_adapter_under_another_name_hits(
    engines: Engines, model: Path, adapters: Path, pool_options: dict[str, Any]
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    engine = engines.get(model, pool_options, enable_lora=True, max_lora_rank=8, max_loras=2)
    tokens = prompt(140)
    with_a = engine.ask(tokens, lora=LoRARequest("a", 1, str(adapters / "a")))
    assert not hit(with_a)
    engine.forget_local()
    assert not hit(engine.ask(tokens, lora=LoRARequest("b", 2, str(adapters / "b"))))
    assert not hit(engine.ask(tokens))
    engine.forget_local()
    again = engine.ask(tokens, lora=LoRARequest("renamed", 3, str(adapters / "a-again")))
    assert hit(again)
    assert again.same_as(with_a)


def test_adapter_changed_under_the_engine_is_neither_read_nor_stored(
    engines: Engines, model: Path, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    folder = tiny_lora(tmp_path / "changing", model, seed=3)
    request = LoRARequest("changing", 11, str(folder))
    engine = engines.get(model, pool_options, enable_lora=True, max_lora_rank=8, max_loras=2)
    tokens = prompt(150)
    engine.ask(tokens, lora=request)
    engine.forget_local()
    assert hit(engine.ask(tokens, lora=request)), "the control: unchanged files hit"
    tiny_lora(folder, model, seed=4)
    engine.forget_local()
    after = engine.ask(tokens, lora=request)
    assert not hit(after)
    assert (after.kvext["stored_blocks"], after.kvext["unreported_stores"]) == (0, 0)
