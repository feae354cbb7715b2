"""Findings for people: one line a fact, one more for its mend."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from kvext.doctor import Finding, Report, Status

__all__ = ["show_report"]

_STYLES = {
    Status.OK: "green",
    Status.NOTE: "cyan",
    Status.WARNING: "yellow",
    Status.ERROR: "bold red",
}
_MAX_DETAILS = 5


def show_report(report: Report) -> None:
    """Print all findings under their sections, then what they come to."""
    console = Console()
    name_cells = max(len(finding.name) for finding in report.findings)
    for section in report.sections:
        console.print(f"[bold]{section.title}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(min_width=max(map(len, Status)))
        table.add_column(min_width=name_cells)
        table.add_column(overflow="fold")
        for finding in section.findings:
            _add(table, finding)
        console.print(Padding(table, (0, 0, 1, 2)))
    counts = (
        f"[{_STYLES[status]}]{report.count(status)} {status.value}[/]"
        for status in reversed(Status)
    )
    console.print(", ".join(counts))


def _add(table: Table, finding: Finding) -> None:
    style = _STYLES[finding.status]
    table.add_row(f"[{style}]{finding.status.value}[/]", finding.name, escape(finding.fact))
    if finding.status is Status.OK:
        return
    for line in finding.details[:_MAX_DETAILS]:
        table.add_row("", "", f"[dim]{escape(line)}[/dim]")
    if (more := len(finding.details) - _MAX_DETAILS) > 0:
        table.add_row("", "", f"[dim]and {more} more: kvext doctor --json[/dim]")
    if finding.mend:
        table.add_row("", "", f"[bold]->[/bold] {escape(finding.mend)}")
