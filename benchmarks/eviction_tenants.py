"""The table of `eviction.py` in which three tenants share a cache."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from kvext.simulation.replay import prefix_cost_s
from kvext.simulation.scenario import Scenario, load_scenario
from kvext.simulation.tenancy import TenancyRun, run_scenario
from kvext.tenancy.policies import DEFAULT_POLICY, POLICY_NAMES
from kvext.tenancy.policy import Access
from kvext.tenancy.shadows import Shadows
from kvext.tenancy.shared_cache import SharedCache
from kvext.tenancy.shares import Share

if TYPE_CHECKING:
    from kvext.simulation.trace import Trace

__all__ = ["checks", "shadow_cost", "three_tenants"]

SIZES = (9000, 18_000, 36_000)
SCANNER_RATES = (4.0, 0.5)
SLOW = 0.5
WORST_TENANT = 0.98
SLOW_LOSS = 0.02
FLOORS_PER_CAPACITY = 12
SHADOW_COST = 0.01

Row = dict[str, object]


def three_tenants(traces: Mapping[str, "Trace"]) -> list[Row]:
    """Shares against one cache for all, with a fast scanner and with a slow one."""
    return [_row(traces, rate, size) for rate in SCANNER_RATES for size in SIZES]


def shadow_cost(trace: "Trace") -> Row:
    """CPU time of a tenant's shadows, beside the modelled prefill time of what was not found."""
    see, spent_s, prefill_s = Shadows.see, 0.0, 0.0

    def timed(shadows: Shadows, access: Access, num_hits: int) -> None:
        nonlocal spent_s
        begun_s = time.process_time()
        see(shadows, access, num_hits)
        spent_s += time.process_time() - begun_s

    cache = SharedCache(SIZES[1], [Share("chat"), Share("second"), Share("scanner")])
    with patch.object(Shadows, "see", timed):
        for access in trace.accesses:
            num_hits = cache.access("chat", access).num_hits
            prefill_s += prefix_cost_s(access, len(access.keys)) - prefix_cost_s(access, num_hits)
    return {
        "us_a_request": round(1e6 * spent_s / len(trace.accesses), 1),
        "share_of_prefill": round(spent_s / prefill_s, 6),
    }


def checks(rows: list[Row], cost: Row) -> dict[str, dict[str, object]]:
    """What the table must show."""
    worst = min(_number(row, "worst_tenant") for row in rows)
    over_lru = min(_number(row, "total_percent") - _number(row, "lru_percent") for row in rows)
    slow = min(
        _number(row, "total_percent") / _number(row, "best_unfair_percent")
        for row in rows
        if row["scanner_requests_a_second"] == SLOW
    )
    return {
        "worst_tenant_shared_over_alone": {
            "value": worst,
            "bound": WORST_TENANT,
            "holds": worst >= WORST_TENANT,
        },
        "total_over_one_lru_cache": {
            "value": round(over_lru, 2),
            "bound": 0,
            "holds": over_lru > 0,
        },
        "slow_scanner_total_over_best_unfair": {
            "value": round(slow, 3),
            "bound": 1 - SLOW_LOSS,
            "holds": slow >= 1 - SLOW_LOSS,
        },
        "shadows_share_of_prefill": {
            "value": cost["share_of_prefill"],
            "bound": SHADOW_COST,
            "holds": _number(cost, "share_of_prefill") < SHADOW_COST,
        },
    }


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def _row(traces: Mapping[str, "Trace"], rate: float, size: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(_scenario_text(traces, rate, size), encoding="utf-8")
        scenario = load_scenario(path)
    shared = _run(scenario, DEFAULT_POLICY, size, fair=True)
    unfair = {
        policy: _run(scenario, policy, size, fair=False).total.hit_ratio for policy in POLICY_NAMES
    }
    best = max(unfair, key=lambda policy: unfair[policy])
    return {
        "scanner_requests_a_second": rate,
        "capacity_blocks": size,
        "tenants": {
            tenant.name: {
                "hits_percent": _percent(tenant.shared.hit_ratio),
                "alone_percent": _percent(tenant.alone.hit_ratio),
            }
            for tenant in shared.tenants
        },
        "worst_tenant": round(shared.min_shared_over_alone or 0.0, 3),
        "total_percent": _percent(shared.total.hit_ratio),
        "lru_percent": _percent(unfair["lru"]),
        "best_unfair": best,
        "best_unfair_percent": _percent(unfair[best]),
        "optimum_percent": _percent(shared.optimal_hit_ratio or 0.0),
        "accesses_per_second": round(shared.accesses_per_second),
    }


def _run(scenario: Scenario, policy: str, size: int, *, fair: bool) -> TenancyRun:
    return run_scenario(
        scenario, policy=policy, capacity_blocks=size, shared_fairly=fair, with_optimum=fair
    )


def _percent(ratio: float) -> float:
    return round(100 * ratio, 2)


def _scenario_text(traces: Mapping[str, "Trace"], rate: float, size: int) -> str:
    floor = size // FLOORS_PER_CAPACITY
    lines = [f"capacity_blocks = {size}"]
    for name, trace in (("chat", traces["conversation"]), ("second", traces["synthetic"])):
        path = Path(trace.name).resolve()
        lines += ["[[tenant]]", f'name = "{name}"', f'trace = "{path}"', f"floor_blocks = {floor}"]
    lines += [
        "[[tenant]]",
        'name = "scanner"',
        f"floor_blocks = {floor}",
        "[tenant.generator]",
        'kind = "unique"',
        f"requests_per_second = {rate}",
        "blocks_per_prompt = 96",
    ]
    return "\n".join(lines) + "\n"
