from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.pool import Pool
from tests.pool.engine_memory import RECORD_BYTES


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = tmp_path / "kvext-test.pool"
    create_region(path, 1 << 20, Pool.initialise)
    return path


@pytest.fixture
def pool(region: Path) -> Iterator[Pool]:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="test") as attached:
        yield attached
