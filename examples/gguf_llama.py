"""Write a Llama-style GGUF file out as a Hugging Face folder in bfloat16.

Everything comes from the file itself: architecture, weights, tokenizer, chat template. Weights are
dequantised by the `gguf` package; this module only renames and reorders them, and rebuilds the
byte-level BPE tokenizer as tokenizer.json.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize

from kvext.testing.safetensors import Float32Array, Tensor, to_bfloat16, write_safetensors
from kvext.testing.tokenizer import special_token, write_json

__all__ = ["half_split_rows", "write_llama_folder"]

_ORDINARY_TOKEN = 1
_GLOBAL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

Metadata = Mapping[str, Any]
"""The key-value section of a GGUF file; the type of a value depends on its key."""


def write_llama_folder(
    gguf: Path, folder: Path, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Write config, weights, tokenizer and generation defaults into a new folder.

    Args:
        gguf: a file of the `llama` architecture with a byte-level BPE (`gpt2`) tokenizer.
        folder: created here.
        on_progress: called with the number of tensors done and the number of all.
    """
    reader = GGUFReader(gguf)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    folder.mkdir()
    weights: dict[str, Tensor] = {}
    for num_done, tensor in enumerate(reader.tensors, start=1):
        rows = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        weights[_hugging_face_name(tensor.name)] = to_bfloat16(
            _reordered(tensor.name, rows, metadata)
        )
        on_progress(num_done, len(reader.tensors))
    write_safetensors(folder / "model.safetensors", weights)
    tied = "lm_head.weight" not in weights
    write_json(folder / "config.json", _config(metadata, tie_word_embeddings=tied))
    write_json(folder / "generation_config.json", _special_token_ids(metadata))
    write_json(folder / "tokenizer.json", _tokenizer(metadata))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))


def half_split_rows(rows: Float32Array, num_heads: int) -> Float32Array:
    """Undo the row order that GGUF gives to query and key projections.

    GGUF interleaves the two halves of each head (its rotary embedding turns neighbouring rows);
    Hugging Face turns row i with row i + head_size / 2.

    Args:
        rows: [num_heads * head_size, hidden_size], interleaved.
        num_heads: of this projection.

    Returns:
        The same rows, each head's first half first.
    """
    num_rows, hidden_size = rows.shape
    pairs = rows.reshape(num_heads, num_rows // num_heads // 2, 2, hidden_size)
    return pairs.swapaxes(1, 2).reshape(num_rows, hidden_size)


def _reordered(name: str, rows: Float32Array, metadata: Metadata) -> Float32Array:
    if name.endswith(".attn_q.weight"):
        return half_split_rows(rows, metadata["llama.attention.head_count"])
    if name.endswith(".attn_k.weight"):
        return half_split_rows(rows, metadata["llama.attention.head_count_kv"])
    return rows


def _hugging_face_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"


def _config(metadata: Metadata, *, tie_word_embeddings: bool) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "num_hidden_layers": metadata["llama.block_count"],
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata["llama.rope.dimension_count"],
        "max_position_embeddings": metadata["llama.context_length"],
        "vocab_size": metadata["llama.vocab_size"],
        "hidden_act": "silu",
        # GGUF keeps float32: the shortest decimal that means the same is the number once written.
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": tie_word_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
    } | _special_token_ids(metadata)


def _special_token_ids(metadata: Metadata) -> dict[str, object]:
    return {
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def _tokenizer(metadata: Metadata) -> dict[str, object]:
    tokens = metadata["tokenizer.ggml.tokens"]
    token_types = metadata["tokenizer.ggml.token_type"]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": metadata["tokenizer.ggml.add_space_prefix"],
        "trim_offsets": True,
        "use_regex": True,
    }
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "added_tokens": [
            special_token(token_id, token)
            for token_id, (token, token_type) in enumerate(zip(tokens, token_types, strict=True))
            if token_type != _ORDINARY_TOKEN
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }


def _tokenizer_config(metadata: Metadata) -> dict[str, object]:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "chat_template": metadata["tokenizer.chat_template"],
    }
