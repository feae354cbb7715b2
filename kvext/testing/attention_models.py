"""Tiny random models whose KV caches are shaped otherwise than a Llama's.

Sliding windows beside full attention (Gemma 3, gpt-oss) and one latent vector for all heads
(DeepSeek): each is the smallest model of its kind that vLLM serves on a CPU.
"""

from collections.abc import Mapping
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

__all__ = ["tiny_deepseek", "tiny_gemma3", "tiny_gpt_oss"]

_HIDDEN_SIZE = 256
_MLP_SIZE = 512
_NUM_HEADS = 8
_NUM_KV_HEADS = 4
_HEAD_SIZE = 32
_CONTEXT_TOKENS = 8192
_LATENT_SIZE, _ROPE_SIZE = 512, 64
"""The only sizes for which vLLM's reference kernel of latent attention is compiled."""


def tiny_gemma3(
    folder: Path,
    dtype: DType = "float32",
    seed: int = 0,
    *,
    window_tokens: int = 64,
    layers: str = "ssfssf",
) -> Path:
    """Write a random Gemma-3-style model: sliding-window layers and full ones in turn.

    Args:
        folder: created if missing; files of the same names are replaced.
        dtype: of the weights.
        seed: of the weights.
        window_tokens: tokens that a sliding layer sees, the newest included.
        layers: one letter a layer: `s` for a sliding window, `f` for full attention.

    Returns:
        The folder.
    """
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "head_dim": _HEAD_SIZE,
        "query_pre_attn_scalar": _HEAD_SIZE,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": [_layer_type(letter) for letter in layers],
        "sliding_window": window_tokens,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    }
    rng = np.random.default_rng(seed)
    # Gemma's norms multiply by one plus their weight and its embeddings by the root of their size.
    identity = np.zeros(_HIDDEN_SIZE, np.float32)
    head_identity = np.zeros(_HEAD_SIZE, np.float32)
    weights = _ends(rng, identity, embedding_gain=_HIDDEN_SIZE**-0.5)
    for layer in range(len(layers)):
        stem = f"model.layers.{layer}"
        weights |= {
            **_attention_weights(rng, stem),
            f"{stem}.self_attn.q_norm.weight": head_identity + np.float32(QUERY_GAIN - 1),
            f"{stem}.self_attn.k_norm.weight": head_identity,
            **mlp_weights(rng, stem, _HIDDEN_SIZE, _MLP_SIZE),
            f"{stem}.input_layernorm.weight": identity,
            f"{stem}.post_attention_layernorm.weight": identity,
            f"{stem}.pre_feedforward_layernorm.weight": identity,
            f"{stem}.post_feedforward_layernorm.weight": identity,
        }
    return _write(folder, dtype, len(layers), config, weights)


def tiny_gpt_oss(
    folder: Path,
    dtype: DType = "float32",
    seed: int = 0,
    *,
    window_tokens: int = 64,
    num_layers: int = 4,
    num_experts: int = 2,
) -> Path:
    """Write a random gpt-oss-style model: every second layer slides, with attention sinks.

    Args:
        folder: created if missing; files of the same names are replaced.
        dtype: of the weights.
        seed: of the weights.
        window_tokens: tokens that a sliding layer sees, the newest included.
        num_layers: decoder layers; the first one slides.
        num_experts: experts a layer, of which each token uses one.

    Returns:
        The folder.
    """
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "head_dim": _HEAD_SIZE,
        "hidden_act": "silu",
        "attention_bias": True,
        "layer_types": [_layer_type("sf"[layer % 2]) for layer in range(num_layers)],
        "sliding_window": window_tokens,
        "num_local_experts": num_experts,
        "num_experts_per_tok": 1,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 2.0,
            "original_max_position_embeddings": _CONTEXT_TOKENS // 2,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
    }
    rng = np.random.default_rng(seed)
    ones = np.ones(_HIDDEN_SIZE, np.float32)
    weights = _ends(rng, ones)
    for layer in range(num_layers):
        stem = f"model.layers.{layer}"
        experts = f"{stem}.mlp.experts"
        weights |= {
            **_attention_weights(rng, stem, gain=QUERY_GAIN),
            **_zero_biases(stem),
            f"{stem}.self_attn.sinks": rng.standard_normal(_NUM_HEADS, np.float32),
            f"{stem}.mlp.router.weight": projection(rng, num_experts, _HIDDEN_SIZE),
            f"{stem}.mlp.router.bias": np.zeros(num_experts, np.float32),
            f"{experts}.gate_up_proj": _experts(rng, num_experts, _HIDDEN_SIZE, 2 * _MLP_SIZE),
            f"{experts}.gate_up_proj_bias": np.zeros((num_experts, 2 * _MLP_SIZE), np.float32),
            f"{experts}.down_proj": _experts(rng, num_experts, _MLP_SIZE, _HIDDEN_SIZE),
            f"{experts}.down_proj_bias": np.zeros((num_experts, _HIDDEN_SIZE), np.float32),
            f"{stem}.input_layernorm.weight": ones,
            f"{stem}.post_attention_layernorm.weight": ones,
        }
    return _write(folder, dtype, num_layers, {**config, "intermediate_size": _MLP_SIZE}, weights)


def tiny_deepseek(
    folder: Path, dtype: DType = "bfloat16", seed: int = 0, *, num_layers: int = 2
) -> Path:
    """Write a random DeepSeek-V2-style model: all heads share one latent vector a token.

    Args:
        folder: created if missing; files of the same names are replaced.
        dtype: of the weights.
        seed: of the weights.
        num_layers: decoder layers, none of them with experts.

    Returns:
        The folder.
    """
    nope_size, value_size = 128, 128
    config = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_act": "silu",
        "num_key_value_heads": _NUM_HEADS,
        "kv_lora_rank": _LATENT_SIZE,
        "q_lora_rank": None,
        "qk_nope_head_dim": nope_size,
        "qk_rope_head_dim": _ROPE_SIZE,
        "v_head_dim": value_size,
        "first_k_dense_replace": num_layers,
        "n_routed_experts": 2,
        "n_shared_experts": 1,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 64,
        "n_group": 1,
        "topk_group": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    rng = np.random.default_rng(seed)
    ones = np.ones(_HIDDEN_SIZE, np.float32)
    weights = _ends(rng, ones)
    for layer in range(num_layers):
        stem = f"model.layers.{layer}"
        attention = f"{stem}.self_attn"
        query_size = _NUM_HEADS * (nope_size + _ROPE_SIZE)
        up_size = _NUM_HEADS * (nope_size + value_size)
        weights |= {
            f"{attention}.q_proj.weight": projection(
                rng, query_size, _HIDDEN_SIZE, gain=QUERY_GAIN
            ),
            f"{attention}.kv_a_proj_with_mqa.weight": projection(
                rng, _LATENT_SIZE + _ROPE_SIZE, _HIDDEN_SIZE
            ),
            f"{attention}.kv_a_layernorm.weight": np.ones(_LATENT_SIZE, np.float32),
            f"{attention}.kv_b_proj.weight": projection(rng, up_size, _LATENT_SIZE),
            f"{attention}.o_proj.weight": projection(rng, _HIDDEN_SIZE, _NUM_HEADS * value_size),
            **mlp_weights(rng, stem, _HIDDEN_SIZE, _MLP_SIZE),
            f"{stem}.input_layernorm.weight": ones,
            f"{stem}.post_attention_layernorm.weight": ones,
        }
    return _write(folder, dtype, num_layers, config, weights)


def _layer_type(letter: str) -> str:
    return {"s": "sliding_attention", "f": "full_attention"}[letter]


def _ends(
    rng: np.random.Generator, norm: Float32Array, *, embedding_gain: float = 1.0
) -> dict[str, Float32Array]:
    """The first and the last weights of a model."""
    embedding = rng.standard_normal((VOCAB_SIZE, _HIDDEN_SIZE), np.float32)
    return {
        "model.embed_tokens.weight": embedding * np.float32(embedding_gain),
        "model.norm.weight": norm,
        "lm_head.weight": projection(rng, VOCAB_SIZE, _HIDDEN_SIZE, gain=LOGIT_GAIN),
    }


def _attention_weights(
    rng: np.random.Generator, stem: str, *, gain: float = 1.0
) -> dict[str, Float32Array]:
    query_size, kv_size = _NUM_HEADS * _HEAD_SIZE, _NUM_KV_HEADS * _HEAD_SIZE
    return {
        f"{stem}.self_attn.q_proj.weight": projection(rng, query_size, _HIDDEN_SIZE, gain=gain),
        f"{stem}.self_attn.k_proj.weight": projection(rng, kv_size, _HIDDEN_SIZE),
        f"{stem}.self_attn.v_proj.weight": projection(rng, kv_size, _HIDDEN_SIZE),
        f"{stem}.self_attn.o_proj.weight": projection(rng, _HIDDEN_SIZE, query_size),
    }


def _zero_biases(stem: str) -> dict[str, Float32Array]:
    query_size, kv_size = _NUM_HEADS * _HEAD_SIZE, _NUM_KV_HEADS * _HEAD_SIZE
    sizes = {"q": query_size, "k": kv_size, "v": kv_size, "o": _HIDDEN_SIZE}
    return {
        f"{stem}.self_attn.{name}_proj.bias": np.zeros(size, np.float32)
        for name, size in sizes.items()
    }


def _experts(
    rng: np.random.Generator, num_experts: int, input_size: int, output_size: int
) -> Float32Array:
    """Weights [expert, input, output], the order in which gpt-oss stores them."""
    drawn = [projection(rng, output_size, input_size).T for _ in range(num_experts)]
    return np.ascontiguousarray(np.stack(drawn))


def _write(
    folder: Path,
    dtype: DType,
    num_layers: int,
    config: Mapping[str, object],
    weights: dict[str, Float32Array],
) -> Path:
    shared = {
        "dtype": dtype,
        "num_hidden_layers": num_layers,
        "hidden_size": _HIDDEN_SIZE,
        "intermediate_size": _MLP_SIZE,
        "num_attention_heads": _NUM_HEADS,
        "num_key_value_heads": _NUM_KV_HEADS,
        "max_position_embeddings": _CONTEXT_TOKENS,
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {**shared, **config})
    write_tiny_tokenizer(folder)
    write_safetensors(folder / "model.safetensors", stored(weights, dtype))
    return folder
