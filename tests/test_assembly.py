"""What configurations are assembled to."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kvext.assembly import make_store_judge
from kvext.config import load_config
from kvext.cxl import create_region
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape

BLOCK_TOKENS = 32
SPAN_BLOCKS = 8
"""256 tokens."""
RECORD_BYTES = 4096


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    path = tmp_path / "kvext-judge.pool"
    create_region(path, 1 << 20, Pool.initialise)
    with Pool.attach(path, extent_bytes=RECORD_BYTES, label="judge") as attached:
        yield attached


def keys_of(prompt: int, num_blocks: int) -> bytes:
    return b"".join(
        hashlib.sha256(f"{prompt}/{block}".encode()).digest() for block in range(num_blocks)
    )


def fill(pool: Pool) -> None:
    memory = np.zeros((1, RECORD_BYTES), np.uint8)
    pages = Pages([memory.ctypes.data], [RECORD_BYTES], 1)
    for number in range(pool.num_extents):
        pool.store(keys_of(number, 1), RecordShape(BLOCK_TOKENS), b"n" * 32, pages, [0])
    assert pool.num_free == 0


def test_admission_is_off_by_default(pool: Pool) -> None:
    assert make_store_judge(load_config({}), pool, BLOCK_TOKENS) is None


def test_a_pool_with_space_takes_everything_and_a_full_one_no_kind_that_never_comes_back(
    pool: Pool,
) -> None:
    judge = make_store_judge(load_config({"store_admission": True}), pool, BLOCK_TOKENS)
    assert judge is not None
    for prompt in range(300):
        assert judge.num_wanted(keys_of(prompt, 2 * SPAN_BLOCKS), "scanner") == sys.maxsize
    fill(pool)
    assert judge.num_wanted(keys_of(1000, 2 * SPAN_BLOCKS), "scanner") == 0
    known_and_new = keys_of(299, 2 * SPAN_BLOCKS)
    assert judge.num_wanted(known_and_new, "scanner") == sys.maxsize, "seen before"


def test_what_of_a_prompt_was_seen_before_is_wanted_and_the_new_rest_is_not(pool: Pool) -> None:
    judge = make_store_judge(load_config({"store_admission": True}), pool, BLOCK_TOKENS)
    assert judge is not None
    for prompt in range(600):
        shared = keys_of(7, SPAN_BLOCKS)
        judge.num_wanted(shared + keys_of(1000 + prompt, SPAN_BLOCKS), "chat")
    fill(pool)
    mixed = keys_of(7, SPAN_BLOCKS) + keys_of(9999, SPAN_BLOCKS)
    assert judge.num_wanted(mixed, "chat") == SPAN_BLOCKS


def test_a_prompt_shorter_than_a_span_is_always_stored(pool: Pool) -> None:
    judge = make_store_judge(load_config({"store_admission": True}), pool, BLOCK_TOKENS)
    assert judge is not None
    fill(pool)
    for prompt in range(1000):
        assert judge.num_wanted(keys_of(prompt, SPAN_BLOCKS - 1), "short") == sys.maxsize
