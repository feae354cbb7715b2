"""What reports become on `/metrics`."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from kvext.connector.report import LoadReport, StoreReport, WorkerReport
from kvext.connector.shadow import CheckReport
from kvext.protocol.transfer import LoadWay
from kvext.vllm.stats import KvextMetrics, KvextStats

pytestmark = pytest.mark.engine

LABELS = {"model_name": "toy", "engine": "0"}


@pytest.fixture
def metrics() -> Iterator[KvextMetrics]:
    types = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}
    config: Any = SimpleNamespace(kv_transfer_config=None)
    yield KvextMetrics(config, types, list(LABELS), {0: list(LABELS.values())})
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - there is no other way
        if getattr(collector, "_name", "").startswith("kvext:"):
            REGISTRY.unregister(collector)


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(f"kvext:{name}_total", {**LABELS, **labels})
    return 0.0 if found is None else found


def load_of(way: LoadWay, seconds: float, waited_s: float = 0.0) -> LoadReport:
    return LoadReport(1, "r", 4, 4, 400, seconds, way=way, waited_s=waited_s)


def test_loads_are_counted_by_way_and_steps_pay_for_what_did_not_hide(
    metrics: KvextMetrics,
) -> None:
    loads = (
        load_of(LoadWay.BLOCKING, 1.0),
        load_of(LoadWay.LAYERWISE, 8.0, waited_s=0.5),
        load_of(LoadWay.LAYERWISE, 8.0, waited_s=0.25),
        load_of(LoadWay.ASYNC, 16.0),
        LoadReport(0, "", 0, 0, 0, 0.0, way=LoadWay.RECOMPUTE),
    )
    metrics.observe(KvextStats.of(WorkerReport(loads, (), 0)).data)
    ways = {way.value: value("loads", way=way.value) for way in LoadWay}
    assert ways == {
        "blocking": 1.0,
        "layerwise": 2.0,
        "async": 1.0,
        "recompute": 1.0,
        "shadow": 0.0,
        "unreported": 0.0,
    }
    assert value("load_seconds") == 33.0
    assert value("load_stall_seconds") == 1.75


def test_blocks_that_were_not_worth_storing_are_rejections(metrics: KvextMetrics) -> None:
    store = StoreReport("", 7, 0, 0, 0, 0.0, {"used_once": 7})
    metrics.observe(KvextStats.of(WorkerReport((), (store,), 0)).data)
    assert value("rejected_stores", reason="used_once") == 7.0


def test_verified_blocks_are_counted_by_outcome_and_skipped_ones_by_reason(
    metrics: KvextMetrics,
) -> None:
    checks = (
        CheckReport("r", b"n" * 32, num_identical=5, num_tolerated=2, skipped={"gone": 1}),
        CheckReport("s", b"n" * 32, num_identical=1, num_failed=3, skipped={"gone": 1, "busy": 4}),
    )
    metrics.observe(KvextStats.of(WorkerReport((), (), 0, checks=checks)).data)
    outcomes = ("verified", "identical", "tolerated", "failed")
    assert [value(f"shadow_{name}_blocks") for name in outcomes] == [11.0, 6.0, 2.0, 3.0]
    assert value("shadow_skipped_blocks", reason="gone") == 2.0
    assert value("shadow_skipped_blocks", reason="busy") == 4.0
