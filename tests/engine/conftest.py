from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.models import tiny_llama
from tests.engine.engines import Engines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "engine" in item.path.parent.parts[-1:]:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """The one live engine of this process."""
    keeper = Engines()
    yield keeper
    keeper.close()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def pool_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of a pool that the tests of this session share."""
    return {"pool_folder": str(tmp_path_factory.mktemp("pool")), "pool_size": "32MiB"}


@pytest.fixture
def async_scheduling(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM's default on GPUs; its CPU platform switches it off, but the CPU runner can do it."""
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415

    check = CpuPlatform.check_and_update_config.__func__

    def forced(cls: Any, config: Any) -> None:
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    engines.close()
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", classmethod(forced))
    yield
    engines.close()
