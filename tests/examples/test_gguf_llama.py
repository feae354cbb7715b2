"""The GGUF converter on a small file made here by the format's own writer."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf_llama import half_split_rows, write_llama_folder
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import deserialize
from tokenizers import Tokenizer

from kvext.testing.safetensors import to_bfloat16
from kvext.testing.tokenizer import byte_alphabet

HIDDEN, HEADS, KV_HEADS, HEAD_SIZE = 8, 2, 1, 4
TOKENS = ["<|im_start|>", "<|im_end|>", *byte_alphabet(), "he", "12"]
CONTROL, NORMAL = 3, 1


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(16)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([CONTROL] * 2 + [NORMAL] * (len(TOKENS) - 2))
    writer.add_token_merges(["h e", "1 2"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_add_space_prefix(value=False)
    writer.add_chat_template("{{ messages }}")
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(TOKENS), HIDDEN),
        "blk.0.attn_q": (HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_bfloat16(path: Path) -> dict[str, NDArray[np.uint16]]:
    """The tensors' bits by name: numpy knows no bfloat16, and torch is slow to import."""
    return {
        name: np.frombuffer(entry["data"], np.uint16).reshape(entry["shape"])
        for name, entry in deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    }


@given(num_heads=st.integers(1, 4), half=st.integers(1, 4), hidden=st.integers(1, 3))
def test_half_split_rows_undoes_the_interleaving(num_heads: int, half: int, hidden: int) -> None:
    size = num_heads * 2 * half * hidden
    rows = np.arange(size, dtype=np.float32).reshape(num_heads * 2 * half, hidden)
    heads = rows.reshape(num_heads, 2 * half, hidden)
    interleaved = np.concatenate(
        [head[row] for head in heads for i in range(half) for row in ([i], [i + half])]
    )
    np.testing.assert_array_equal(half_split_rows(interleaved, num_heads), rows)


def test_config_carries_the_architecture_of_the_file(gguf: Path, tmp_path: Path) -> None:
    write_llama_folder(gguf, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    expected = {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5,
        "vocab_size": len(TOKENS),
        "tie_word_embeddings": True,
        "eos_token_id": 1,
        "dtype": "bfloat16",
    }
    assert {key: config[key] for key in expected} == expected


def test_only_query_and_key_rows_are_reordered(gguf: Path, tmp_path: Path) -> None:
    write_llama_folder(gguf, tmp_path / "model")
    rng = np.random.default_rng(0)
    embedding, query, key, value = (
        rng.standard_normal(shape, np.float32)
        for shape in ((len(TOKENS), HIDDEN), (8, HIDDEN), (4, HIDDEN), (4, HIDDEN))
    )
    expected = {
        "model.embed_tokens.weight": embedding,
        "model.layers.0.self_attn.q_proj.weight": query[[0, 2, 1, 3, 4, 6, 5, 7]],
        "model.layers.0.self_attn.k_proj.weight": key[[0, 2, 1, 3]],
        "model.layers.0.self_attn.v_proj.weight": value,
    }
    found = stored_bfloat16(tmp_path / "model" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[name], to_bfloat16(rows))


def test_tokenizer_merges_bytes_splits_digits_and_keeps_control_tokens_whole(
    gguf: Path, tmp_path: Path
) -> None:
    write_llama_folder(gguf, tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    assert tokenizer.encode("he12<|im_end|>").tokens == ["he", "1", "2", "<|im_end|>"]


def test_progress_counts_every_tensor(gguf: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    write_llama_folder(gguf, tmp_path / "model", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
