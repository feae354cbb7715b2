from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.pool import Pages, Pool
from tests.contracts.tier_contract import (
    NUM_BLOCKS,
    PIECE_BYTES,
    RECORD_BYTES,
    Layers,
    TierContract,
)


class TestPool(TierContract):
    @pytest.fixture
    def tier(self, tmp_path: Path) -> Iterator[Pool]:
        path = tmp_path / "kvext-contract.pool"
        create_region(path, 1 << 20, Pool.initialise)
        with Pool.attach(path, extent_bytes=RECORD_BYTES, label="contract") as pool:
            yield pool

    @pytest.fixture
    def capacity(self, tier: Pool) -> int:
        return tier.stat().num_extents

    @pytest.fixture
    def pages(self, layers: Layers) -> Pages:
        addresses = [layer.ctypes.data for layer in layers]
        return Pages(addresses, [PIECE_BYTES] * len(layers), NUM_BLOCKS)
