"""Pinning against a driver that keeps the real one's rules; the real one needs a device."""

import mmap
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from kvext.errors import PinningRefused
from kvext.kernels import PinnedRegion


class CudaError(Enum):
    """The answers of the CUDA runtime that matter here, with its numbers."""

    SUCCESS = 0
    INVALID_VALUE = 1
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713


@dataclass
class Driver:
    """Registers each byte at most once and lets go only what was registered, as CUDA does."""

    ranges: dict[int, int] = field(default_factory=dict)
    flags: list[int] = field(default_factory=list)

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int, /) -> CudaError:  # noqa: N802
        if num_bytes == 0:
            return CudaError.INVALID_VALUE
        for begin, length in self.ranges.items():
            if address < begin + length and begin < address + num_bytes:
                return CudaError.HOST_MEMORY_ALREADY_REGISTERED
        self.ranges[address] = num_bytes
        self.flags.append(flags)
        return CudaError.SUCCESS

    def cudaHostUnregister(self, address: int, /) -> CudaError:  # noqa: N802
        if self.ranges.pop(address, None) is None:
            return CudaError.HOST_MEMORY_NOT_REGISTERED
        return CudaError.SUCCESS


def test_a_mapped_file_is_pinned_until_the_region_closes(tmp_path: Path) -> None:
    path, driver = tmp_path / "region", Driver()
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
        address = np.frombuffer(mapping, np.uint8).ctypes.data
        with PinnedRegion.register(address, 8192, driver) as region:
            assert driver.ranges == {address: 8192}
            assert driver.flags == [3]
            assert region.is_pinned
        assert driver.ranges == {}
        assert not region.is_pinned


def test_closing_twice_unpins_once() -> None:
    driver = Driver()
    region = PinnedRegion.register(4096, 4096, driver)
    region.close()
    with PinnedRegion.register(4096, 4096, driver):
        region.close()
        assert driver.ranges == {4096: 4096}


def test_a_refusal_says_how_much_and_why_and_leaves_nothing_pinned() -> None:
    driver = Driver()
    with PinnedRegion.register(4096, 8 << 20, driver):
        with pytest.raises(PinningRefused, match=r"8\.0 MiB.*ALREADY_REGISTERED") as caught:
            PinnedRegion.register(8192, 8 << 20, driver)
        assert caught.value.num_bytes == 8 << 20
    assert driver.ranges == {}


def test_what_the_driver_does_not_let_go_is_told() -> None:
    driver = Driver()
    region = PinnedRegion.register(4096, 4096, driver)
    driver.ranges.clear()
    with pytest.raises(PinningRefused, match="NOT_REGISTERED"):
        region.close()
