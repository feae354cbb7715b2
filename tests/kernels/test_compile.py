"""The kernel compiled for an H200 on any machine: what the interpreter cannot say."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvext.kernels import PagedKV
from kvext.kernels.triton_copy import NUM_WARPS, constants_of, move_pieces

RUN_TIME = {
    **dict.fromkeys(("record_R", "block_R", "address_L", "stride_L", "start_L", "run_U"), "*i64"),
    "num_records": "i32",
    "num_layers": "i32",
}

NUM_TABLE_LOADS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """What is compiled.

    Attributes:
        inside: (H, N, C) of a block in bytes.
        order: How heads, tokens and content lie in memory.
        record_address: Where the first record begins.
        access: How the machine's instructions for the data must end.
    """

    inside: tuple[int, int, int]
    order: str
    record_address: int
    access: str


CASES = {
    "one run": Case((2, 16, 256), "HNC", 1 << 20, "v2.b64"),
    "runs of one token and head": Case((8, 16, 256), "NHC", 1 << 20, "v2.b64"),
    "eight-byte steps": Case((2, 16, 8), "HNC", (1 << 20) + 8, "b64"),
    "odd bytes": Case((3, 7, 5), "HNC", 1 << 20, "b8"),
}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("to_records", [True, False], ids=["gather", "scatter"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_kernel_compiles_for_sm_90_and_moves_whole_vectors(case: Case, to_records: bool) -> None:  # noqa: FBT001 - a parameter
    heads, tokens, content = case.inside
    laid = case.inside if case.order == "HNC" else (tokens, heads, content)
    memory = torch.zeros(64 * 4 * heads * tokens * content + 64, dtype=torch.uint8)
    start = -memory.data_ptr() % 64
    layer = memory[start : start + 4 * heads * tokens * content].view(4, *laid)
    kv = PagedKV([layer if case.order == "HNC" else layer.transpose(1, 2)])
    (group,) = kv.groups()
    alignment = group.alignment(kv.record_bytes, [case.record_address])
    constants = constants_of(group, alignment, to_records=to_records)
    source = ASTSource(
        move_pieces, {**RUN_TIME, **dict.fromkeys(constants, "constexpr")}, constants
    )
    options = {"num_warps": NUM_WARPS, "enable_fp_fusion": False}
    made = triton.compile(source, GPUTarget("cuda", 90, 32), options)
    assert ".target sm_90" in made.asm["ptx"]
    assert len(made.asm["cubin"]) > 1000
    accesses = re.findall(r"(?:ld|st)\.global\S*?\.((?:v\d\.)?b\d+)\s", made.asm["ptx"])
    assert len(accesses) >= NUM_TABLE_LOADS + 2
    assert set(accesses) == {"b64", case.access}, "the tables have numbers of eight bytes"
