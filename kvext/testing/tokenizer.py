"""The tokenizer of the tiny test models: byte-level BPE, written by hand as JSON.

Every byte is a token and every pair of sixteen frequent letters is a merge, so any text encodes and
every token id decodes; three special tokens frame the chat template. No tokenizer package is
needed to write it, and vLLM serves completions and chat with it.
"""

import json
from pathlib import Path

__all__ = [
    "BOS_ID",
    "EOS_ID",
    "VOCAB_SIZE",
    "byte_alphabet",
    "special_token",
    "write_json",
    "write_tiny_tokenizer",
]

VOCAB_SIZE = 512
BOS_ID, EOS_ID, TURN_ID = 256, 257, 258
_BOS, _EOS, _TURN = "<|begin|>", "<|end|>", "<|turn|>"
_FREQUENT_LETTERS = "etaoinshrdlucmfw"
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|turn|>{{ message['role'] }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant: {% endif %}"
)


def byte_alphabet() -> list[str]:
    """The printable character that byte-level BPE writes for each byte, by byte value.

    Printable Latin-1 bytes stand for themselves; the others take the code points from 256 on, in
    order (the alphabet that GPT-2 introduced).
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    alphabet, next_code_point = [], 256
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(next_code_point))
            next_code_point += 1
    return alphabet


def special_token(token_id: int, text: str) -> dict[str, object]:
    """An `added_tokens` entry of tokenizer.json for a token that text never spells by merges."""
    return {
        "id": token_id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def write_tiny_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json for `VOCAB_SIZE` tokens into a folder."""
    specials = {_BOS: BOS_ID, _EOS: EOS_ID, _TURN: TURN_ID}
    tokens = [*byte_alphabet(), *specials]
    pairs = [(left, right) for left in _FREQUENT_LETTERS for right in _FREQUENT_LETTERS]
    merges = pairs[: VOCAB_SIZE - len(tokens)]
    tokens += [left + right for left, right in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [special_token(token_id, text) for text, token_id in specials.items()],
        "pre_tokenizer": byte_level | {"use_regex": True},
        "decoder": byte_level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _BOS,
        "eos_token": _EOS,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, content: object) -> None:
    """Write one JSON document, UTF-8, the same bytes for the same content."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
