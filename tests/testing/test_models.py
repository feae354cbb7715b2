"""Tiny models: reproducible, well-formed, and sensitive to their context in the real engine."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from kvext.testing import tiny_deepseek, tiny_gemma3, tiny_gpt_oss, tiny_llama, tiny_lora
from kvext.testing.models import DType
from kvext.testing.tokenizer import VOCAB_SIZE, byte_alphabet
from tests.testing.one_engine import ask_engine


def load_file_names(folder: Path) -> list[str]:
    with safe_open(folder / "model.safetensors", framework="np") as file:
        return list(file.keys())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    first, second = tiny_llama(tmp_path / "a"), tiny_llama(tmp_path / "b")
    assert contents(first) == contents(second)


@pytest.mark.parametrize("make", [tiny_gemma3, tiny_gpt_oss, tiny_deepseek])
def test_models_of_other_cache_shapes_are_reproducible_and_complete(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    first, second = make(tmp_path / "a"), make(tmp_path / "b")
    assert contents(first) == contents(second)
    config = json.loads((first / "config.json").read_text())
    layers = {
        name.split(".")[2] for name in load_file_names(first) if name.startswith("model.layers.")
    }
    assert len(layers) == config["num_hidden_layers"]


def test_layers_of_a_windowed_model_slide_where_they_are_told_to(tmp_path: Path) -> None:
    folder = tiny_gemma3(tmp_path / "model", layers="sf", window_tokens=96)
    config = json.loads((folder / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert config["sliding_window"] == 96


def test_another_seed_changes_the_weights_and_nothing_else(tmp_path: Path) -> None:
    first = contents(tiny_llama(tmp_path / "a", seed=0))
    second = contents(tiny_llama(tmp_path / "b", seed=1))
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}


@pytest.mark.parametrize(("dtype", "stored"), [("float32", "F32"), ("bfloat16", "BF16")])
def test_weights_are_stored_in_the_dtype_of_the_config(
    tmp_path: Path, dtype: DType, stored: str
) -> None:
    folder = tiny_llama(tmp_path / "model", dtype)
    assert json.loads((folder / "config.json").read_text())["dtype"] == dtype
    with safe_open(folder / "model.safetensors", framework="np") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {stored}  # noqa: SIM118


def test_architecture_arguments_reach_the_shapes(tmp_path: Path) -> None:
    folder = tiny_llama(
        tmp_path / "model", num_layers=1, hidden_size=64, num_heads=2, num_kv_heads=1, head_size=64
    )
    weights = load_file(folder / "model.safetensors")
    assert weights["model.layers.0.self_attn.q_proj.weight"].shape == (128, 64)
    assert weights["model.layers.0.self_attn.k_proj.weight"].shape == (64, 64)
    assert not any(name.startswith("model.layers.1.") for name in weights)


def test_every_token_id_decodes_and_any_text_survives(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_llama(tmp_path / "model") / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    assert all(tokenizer.id_to_token(token_id) for token_id in range(VOCAB_SIZE))
    text = "the caché\n\x00 \N{SLIGHTLY SMILING FACE} 128"
    encoded = tokenizer.encode(text).ids
    assert tokenizer.decode(encoded) == text
    assert len(encoded) < len(text.encode())  # merges are used


def test_byte_alphabet_is_the_one_of_byte_level_tokenizers() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet) == sorted(ByteLevel.alphabet())
    (word,) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("a \n\xe9")
    assert word[0] == "".join(alphabet[byte] for byte in "a \n\xe9".encode())


def test_adapter_fits_the_model_it_was_made_for(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model")
    adapter = load_file(
        tiny_lora(tmp_path / "adapter", model, rank=4) / "adapter_model.safetensors"
    )
    weights = load_file(model / "model.safetensors")
    stems = {name.rsplit(".lora_", 1)[0] for name in adapter}
    assert len(stems) == 4 * 3  # layers times targets
    for stem in stems:
        update = adapter[f"{stem}.lora_B.weight"] @ adapter[f"{stem}.lora_A.weight"]
        base = weights[f"{stem.removeprefix('base_model.model.')}.weight"]
        assert update.shape == base.shape
        assert np.std(update) > 0.1 * np.std(base)


@pytest.mark.engine
def test_engine_output_varies_and_depends_on_an_early_token_and_on_the_adapter(
    tmp_path: Path,
) -> None:
    model = tiny_llama(tmp_path / "model")
    adapter = tiny_lora(tmp_path / "adapter", model)
    tail = " and then the same hundred words follow" * 5
    prompts = ["one" + tail, "two" + tail, "one" + tail]
    answers = ask_engine(model, "float32", prompts=prompts, adapter=adapter)
    one, two, again, one_adapted, *_ = (answer.token_ids for answer in answers)
    assert one == again
    assert one != two
    assert one != one_adapted
    assert len(set(one)) > len(one) // 2
