"""Pools as tables for people. Widths follow the terminal; nothing here touches a pool."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvext.config import format_bytes
from kvext.errors import PoolError
from kvext.pool import NamespaceState, NamespaceUse, PoolStat

__all__ = ["show_list", "show_stat", "stderr", "stdout"]

_BAR_CELLS = 24
_DIGEST_DIGITS = 12


def stderr() -> Console:
    """The console for progress, so that standard output stays the answer alone."""
    return Console(stderr=True)


def stdout() -> Console:
    """The console for answers."""
    return Console()


def show_stat(name: str, figures: PoolStat, uses: Sequence[NamespaceUse]) -> None:
    """Print one pool: occupancy, namespaces, attached processes, counters."""
    console = Console()
    console.print(_occupancy(name, figures))
    if uses:
        console.print(_namespaces(uses))
    if figures.processes:
        console.print(_processes(figures))
    counted = [f"{key} {count:,}" for key, count in figures.counters.items() if count]
    console.print(f"since creation: {', '.join(counted) or 'nothing happened yet'}")


def show_list(folder: str, found: Sequence[tuple[str, PoolStat | PoolError]]) -> None:
    """Print one line a pool."""
    if not found:
        Console().print(
            f"no pools in {escape(folder)}; make one with kvext pool create --size 8GiB",
            soft_wrap=True,  # what is to be copied stays on one line, however long the folder is
        )
        return
    table = _table("pool", "size", "held", "blocks", "attached")
    for name, figures in found:
        if isinstance(figures, PoolError):
            table.add_row(escape(name), f"[red]{type(figures).__name__}[/red]")
            continue
        table.add_row(
            escape(name),
            format_bytes(figures.region_bytes),
            format_bytes(figures.committed_bytes),
            f"{figures.num_committed:,}",
            str(len(figures.processes)),
        )
    console = Console()
    console.print(table)
    for _, figures in found:
        if isinstance(figures, PoolError):
            console.print(escape(str(figures)), soft_wrap=True)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    return table


def _occupancy(name: str, figures: PoolStat) -> Table:
    table = Table(box=None, show_header=False, title=f"pool {escape(name)}", title_justify="left")
    table.add_row("region", f"{escape(figures.path)}, {format_bytes(figures.region_bytes)}")
    if figures.bypassed:
        table.add_row("bypass", "on: engines neither load nor store; kvext pool bypass off")
    if not figures.num_extents:
        table.add_row("extents", "none yet: the first engine fixes their size")
        return table
    used = 1 - figures.num_free / figures.num_extents
    filled = round(used * _BAR_CELLS)
    bar = "█" * filled + "░" * (_BAR_CELLS - filled)
    table.add_row(
        "occupied",
        f"{bar} {used:.1%}, {figures.num_extents - figures.num_free:,} of "
        f"{figures.num_extents:,} extents of {format_bytes(figures.extent_bytes)}",
    )
    table.add_row(
        "blocks",
        f"{figures.num_committed:,} committed ({format_bytes(figures.committed_bytes)}), "
        f"{figures.num_pinned:,} pinned, {figures.num_reserved:,} being written, "
        f"{figures.num_quarantined:,} quarantined",
    )
    if figures.num_limbo:
        table.add_row("limbo", f"{figures.num_limbo:,} extents wait for a process that is stopped")
    if figures.agent_label:
        table.add_row(
            "agent", f"{escape(figures.agent_label)}, {figures.agent_age_ms / 1000:.1f} s ago"
        )
    return table


def _namespaces(uses: Sequence[NamespaceUse]) -> Table:
    table = _table("namespace", "model", "blocks", "held", "what", title="namespaces")
    for use in uses:
        is_live = use.state is NamespaceState.LIVE
        table.add_row(
            use.digest[:_DIGEST_DIGITS],
            use.model[:_DIGEST_DIGITS] if use.model.strip("0") else "",
            f"{use.num_blocks:,}",
            format_bytes(use.held_bytes),
            escape(use.label) + ("" if is_live else f" [yellow]({use.state.value})[/yellow]"),
        )
    return table


def _processes(figures: PoolStat) -> Table:
    table = _table("pid", "pins", "heartbeat", "label", title="attached processes")
    for process in figures.processes:
        table.add_row(
            str(process.pid),
            f"{process.num_pins:,}",
            f"{process.heartbeat_age_ms / 1000:.1f} s ago",
            escape(process.label),
        )
    return table
