"""Results of `kvext simulate` as tables for people, and as charts."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvext.cli.simulate_plot import Bars, Chart, Curves
from kvext.simulation.scenario import Scenario
from kvext.simulation.sizing import Sizing
from kvext.simulation.tenancy import TenancyRun
from kvext.simulation.trace import Trace

__all__ = ["show_sizings", "show_tenancy", "sizing_chart", "tenancy_chart"]

_OPTIMUM = "optimum"
_NONE = "-"


def show_sizings(trace: Trace, sizings: Sequence[Sizing]) -> None:
    """Print one line for each size and policy, and the optimum of each size."""
    console = Console()
    console.print(
        f"[bold]{escape(trace.name)}[/bold]: {trace.num_requests:,} requests, "
        f"{trace.num_blocks:,} block accesses, {trace.distinct_blocks():,} distinct blocks of "
        f"{trace.block_tokens} tokens",
        highlight=False,
        soft_wrap=True,
    )
    table = _table("blocks", "policy", "hits", "saved", "written per hit", "accesses/s")
    for capacity, group in groupby(sizings, lambda sizing: sizing.capacity_blocks):
        ranked = list(group)
        best = max(sizing.hit_ratio for sizing in ranked)
        for sizing in ranked:
            is_best = len(ranked) > 1 and sizing.hit_ratio == best
            table.add_row(
                f"{capacity:,}",
                f"[bold]{sizing.policy}[/bold]" if is_best else sizing.policy,
                _percent_of_seeds(sizing),
                _duration(sizing.saved_s),
                _NONE if sizing.written_per_hit is None else f"{sizing.written_per_hit:.1f}",
                f"{sizing.accesses_per_second:,.0f}",
            )
        if (optimal := ranked[0].optimal) is not None:
            hits = _percent(ranked[0].optimal_hit_ratio)
            table.add_row(f"{capacity:,}", _OPTIMUM, hits, _duration(optimal.saved_s), style="dim")
        table.add_section()
    console.print(table)


def show_tenancy(scenario: Scenario, runs: Sequence[TenancyRun]) -> None:
    """Print one table for each run: its tenants, then what they come to."""
    console = Console()
    for run in runs:
        console.print(
            f"[bold]{escape(str(scenario.document.path))}[/bold]: {run.capacity_blocks:,} blocks, "
            f"{run.policy}, {'shares' if run.shared_fairly else 'one cache without shares'}",
            highlight=False,
            soft_wrap=True,
        )
        table = _table("tenant", "accesses", "entitled", "holds", "hits", "alone", "ratio", "saved")
        for tenant in run.tenants:
            table.add_row(
                escape(tenant.name),
                f"{tenant.shared.num_blocks:,}",
                f"{tenant.entitled_blocks:,}",
                f"{tenant.held_blocks:,}",
                _percent(tenant.shared.hit_ratio),
                _percent(tenant.alone.hit_ratio),
                _NONE if tenant.shared_over_alone is None else f"{tenant.shared_over_alone:.3f}",
                _duration(tenant.shared.saved_s),
            )
        console.print(table)
        facts = [f"all {_percent(run.total.hit_ratio)}"]
        if run.optimal_hit_ratio is not None:
            facts.append(f"optimum {_percent(run.optimal_hit_ratio)}")
        if run.min_shared_over_alone is not None:
            facts.append(f"worst ratio {run.min_shared_over_alone:.3f}")
        facts.append(f"saved {_duration(run.total.saved_s)}")
        facts.append(f"{run.accesses_per_second:,.0f} accesses/s")
        console.print(", ".join(facts), highlight=False, soft_wrap=True)


def sizing_chart(sizings: Sequence[Sizing]) -> Chart:
    """Hits over sizes, or by policy if there is one size."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for sizing in sorted(sizings, key=lambda sizing: sizing.capacity_blocks):
        lines.setdefault(sizing.policy, []).append((sizing.capacity_blocks, sizing.hit_ratio))
    for sizing in sorted(sizings, key=lambda sizing: sizing.capacity_blocks):
        if sizing.policy == sizings[0].policy and sizing.optimal_hit_ratio is not None:
            point = (sizing.capacity_blocks, sizing.optimal_hit_ratio)
            lines.setdefault(_OPTIMUM, []).append(point)
    return _chart(lines)


def tenancy_chart(runs: Sequence[TenancyRun]) -> Chart:
    """Hits of all tenants over sizes; of each tenant, shared and alone, if there is one run."""
    if len(runs) == 1:
        rows = []
        for tenant in runs[0].tenants:
            rows.append((tenant.name, tenant.shared.hit_ratio))
            rows.append((f"{tenant.name} alone", tenant.alone.hit_ratio))
        return Bars(f"hits at {runs[0].capacity_blocks:,} blocks, {runs[0].policy}", rows)
    lines: dict[str, list[tuple[int, float]]] = {}
    for run in sorted(runs, key=lambda run: run.capacity_blocks):
        lines.setdefault(run.policy, []).append((run.capacity_blocks, run.total.hit_ratio))
    return _chart(lines)


def _chart(lines: dict[str, list[tuple[int, float]]]) -> Chart:
    sizes = {blocks for points in lines.values() for blocks, _ in points}
    if len(sizes) > 1:
        return Curves("hits by blocks", lines)
    rows = [(name, points[0][1]) for name, points in lines.items()]
    return Bars(f"hits at {sizes.pop():,} blocks", rows)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        is_name = column in ("policy", "tenant")
        table.add_column(column, justify="left" if is_name else "right")
    return table


def _percent(ratio: float | None) -> str:
    return _NONE if ratio is None else f"{ratio:.2%}"


def _percent_of_seeds(sizing: Sizing) -> str:
    if len(sizing.seeds) == 1:
        return _percent(sizing.hit_ratio)
    half_range = (max(sizing.hit_ratios) - min(sizing.hit_ratios)) / 2
    return f"{100 * sizing.hit_ratio:.2f} ± {100 * half_range:.2f}%"


def _duration(seconds: float) -> str:
    """Prefill time for people."""
    if seconds < 120:  # noqa: PLR2004 - two minutes, in seconds
        return f"{seconds:,.1f} s"
    if seconds < 7200:  # noqa: PLR2004 - two hours
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h"
