"""What a launch on an H200 would be given: everything but the launch itself, on any machine."""

from pathlib import Path
from typing import Any

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kvext.kernels import PagedKV, triton_copy
from kvext.kernels.triton_copy import KernelPacker, move_pieces
from tests.kernels.caches import CACHES


class AbsentH200:
    """As much of Triton's driver as compiling needs."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


class CompilesOnly:
    """The kernel, whose launches end where the device would begin."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def compile_it(*args: Any, **constants: Any) -> None:
            self.made.append(move_pieces.warmup(*args, grid=grid, **constants))

        return compile_it


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompilesOnly:
    kernel = CompilesOnly()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton_copy, "move_pieces", kernel)
    monkeypatch.setattr(driver, "_active", AbsentH200())  # its own reset wants a device
    return kernel


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("cache", CACHES[:3], ids=lambda cache: cache.name)
def test_a_warm_up_compiles_all_that_later_batches_need(cache: Any, kernel: CompilesOnly) -> None:
    packer = KernelPacker(PagedKV(cache.tensors(9, seed=1)))
    records_RP = torch.zeros((16, PagedKV(cache.tensors(9, 1)).record_bytes), dtype=torch.uint8)  # noqa: N806
    packer.warm_up(records_RP)
    assert len({id(made) for made in kernel.made}) == 2
    for num_records in (1, 5, 16):
        packer.pack([0] * num_records, records_RP[:num_records])
        packer.unpack(records_RP[:num_records], [0] * num_records)
    assert len({id(made) for made in kernel.made}) == 2
    assert len(kernel.made) == 8
