"""Order of the whole run: quick answers first, real engines last."""

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine draws examples says nothing of the code: on a busy one these checks fail.
settings.register_profile(
    "kvext", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("kvext")

_SLOWER_MARKS = ("benchmark", "faults", "native", "engine")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the slowest mark; within one kind the collected order stays."""
    items.sort(key=_slowness)


def _slowness(item: pytest.Item) -> int:
    return max(
        (rank for rank, mark in enumerate(_SLOWER_MARKS, start=1) if item.get_closest_marker(mark)),
        default=0,
    )
