"""Tiny random Llama models and adapters: the real engine serves them in seconds, without a hub.

Equal arguments give equal bytes, so that identity tests can compare folders. The weights are
scaled so that attention is sharp and the next token depends on the whole context: a model drawn
with the usual small weights repeats one token whatever its KV cache holds.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvext.testing.safetensors import Float32Array, write_safetensors
from kvext.testing.tokenizer import (
    BOS_ID,
    EOS_ID,
    VOCAB_SIZE,
    write_json,
    write_tiny_tokenizer,
)
from kvext.testing.weights import (
    LOGIT_GAIN,
    QUERY_GAIN,
    DType,
    mlp_weights,
    projection,
    stored,
)

__all__ = ["DType", "tiny_llama", "tiny_lora"]


def tiny_llama(  # noqa: PLR0913 - each argument is one number of the architecture
    folder: Path,
    dtype: DType = "float32",
    seed: int = 0,
    *,
    num_layers: int = 4,
    hidden_size: int = 256,
    num_heads: int = 8,
    num_kv_heads: int = 4,
    head_size: int = 32,
    context_tokens: int = 8192,
) -> Path:
    """Write a random Llama-style model with a byte-level tokenizer in Hugging Face format.

    The defaults make a float32 model of 14 MB whose KV cache takes 4 KiB a token (2 KiB in
    bfloat16).

    Args:
        folder: created if missing; files of the same names are replaced.
        dtype: of weights and, by default, of the engine that loads them.
        seed: of the weights.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides `num_heads`.
        head_size: elements a head; one that the engine's attention accepts.
        context_tokens: the longest sequence the model claims to take.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": dtype,
        "num_hidden_layers": num_layers,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": context_tokens,
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
    weights = _random_weights(
        np.random.default_rng(seed),
        num_layers=num_layers,
        hidden_size=hidden_size,
        query_size=num_heads * head_size,
        kv_size=num_kv_heads * head_size,
    )
    write_json(folder / "config.json", config)
    write_tiny_tokenizer(folder)
    write_safetensors(folder / "model.safetensors", stored(weights, dtype))
    return folder


def tiny_lora(
    folder: Path,
    model_folder: Path,
    seed: int = 0,
    *,
    rank: int = 8,
    targets: Sequence[str] = ("q_proj", "k_proj", "v_proj"),
) -> Path:
    """Write a random LoRA adapter in PEFT format that visibly changes a tiny model's output.

    Args:
        folder: created if missing; files of the same names are replaced.
        model_folder: made by `tiny_llama`; gives the shapes and the dtype.
        seed: of the adapter's weights.
        rank: of the update of each target.
        targets: projections of the attention: q_proj, k_proj, v_proj, o_proj.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((model_folder / "config.json").read_text(encoding="utf-8"))
    query_size = config["num_attention_heads"] * config["head_dim"]
    kv_size = config["num_key_value_heads"] * config["head_dim"]
    hidden_size = config["hidden_size"]
    shapes = {
        "q_proj": (query_size, hidden_size),
        "k_proj": (kv_size, hidden_size),
        "v_proj": (kv_size, hidden_size),
        "o_proj": (hidden_size, query_size),
    }
    rng = np.random.default_rng(seed)
    weights: dict[str, Float32Array] = {}
    for layer in range(config["num_hidden_layers"]):
        for target in targets:
            output_size, input_size = shapes[target]
            stem = f"base_model.model.model.layers.{layer}.self_attn.{target}"
            weights[f"{stem}.lora_A.weight"] = projection(rng, rank, input_size)
            weights[f"{stem}.lora_B.weight"] = projection(rng, output_size, rank)
    adapter = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(targets),
    }
    write_json(folder / "adapter_config.json", adapter)
    write_safetensors(folder / "adapter_model.safetensors", stored(weights, config["dtype"]))
    return folder


def _random_weights(
    rng: np.random.Generator,
    *,
    num_layers: int,
    hidden_size: int,
    query_size: int,
    kv_size: int,
) -> dict[str, Float32Array]:
    ones = np.ones(hidden_size, np.float32)
    weights = {
        "model.embed_tokens.weight": rng.standard_normal((VOCAB_SIZE, hidden_size), np.float32)
    }
    for layer in range(num_layers):
        stem = f"model.layers.{layer}"
        weights |= {
            f"{stem}.input_layernorm.weight": ones,
            f"{stem}.self_attn.q_proj.weight": projection(
                rng, query_size, hidden_size, gain=QUERY_GAIN
            ),
            f"{stem}.self_attn.k_proj.weight": projection(rng, kv_size, hidden_size),
            f"{stem}.self_attn.v_proj.weight": projection(rng, kv_size, hidden_size),
            f"{stem}.self_attn.o_proj.weight": projection(rng, hidden_size, query_size),
            f"{stem}.post_attention_layernorm.weight": ones,
            **mlp_weights(rng, stem, hidden_size, 2 * hidden_size),
        }
    weights["model.norm.weight"] = ones
    weights["lm_head.weight"] = projection(rng, VOCAB_SIZE, hidden_size, gain=LOGIT_GAIN)
    return weights
