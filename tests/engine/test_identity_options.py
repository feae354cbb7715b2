"""Engine options under which the same files give other KV: each keeps its own."""

from pathlib import Path
from typing import Any

import pytest

from kvext.testing.models import tiny_llama, tiny_lora
from tests.engine.engines import Engines, prompt


def assert_apart(
    engines: Engines,
    folder: Path,
    options: dict[str, Any],
    one: dict[str, Any],
    other: dict[str, Any],
    lora: Any = None,
) -> None:
    """What an engine with options `one` stored is found by such an engine and not by `other`."""
    tokens = prompt(160)
    engines.get(folder, options, **one).ask(tokens, lora=lora)
    crossed = engines.get(folder, options, **other).ask(tokens, lora=lora)
    assert (crossed.kvext["pool_tokens"], crossed.kvext["reason"]) == (0, "not_found")
    control = engines.get(folder, options, **one).ask(tokens, lora=lora)
    assert control.kvext["pool_tokens"] == 384


def test_option_that_changes_an_adapters_effect_separates_its_kv(
    engines: Engines, model: Path, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    options = {**pool_options, "pool_name": "adapter-options"}
    whole = {"enable_lora": True, "max_lora_rank": 8}
    part = {**whole, "lora_target_modules": ["o_proj"]}
    lora = LoRARequest("a", 1, str(tiny_lora(tmp_path / "a", model, seed=1)))
    assert_apart(engines, model, options, whole, part, lora)


def test_two_fp8_formats_separate_kv(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    import torch  # noqa: PLC0415

    if not torch.cpu._is_avx512_supported():  # noqa: SLF001
        pytest.skip("vLLM's fp8 KV needs AVX-512 or AMX on a CPU")
    options = {**pool_options, "pool_name": "fp8"}
    e4m3, e5m2 = (
        {"dtype": "bfloat16", "kv_cache_dtype": name} for name in ("fp8_e4m3", "fp8_e5m2")
    )
    assert_apart(engines, model, options, e4m3, e5m2)


def test_two_weights_formats_in_one_folder_separate_kv(
    engines: Engines, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    folder, other = tiny_llama(tmp_path / "both", seed=1), tiny_llama(tmp_path / "other", seed=2)
    torch.save(load_file(other / "model.safetensors"), folder / "model.pt")
    options = {**pool_options, "pool_name": "formats"}
    assert_apart(engines, folder, options, {"load_format": "auto"}, {"load_format": "pt"})
