"""The bar that shows how memory is reserved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

__all__ = ["reserving_memory"]


@contextmanager
def reserving_memory(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, where that is a terminal.

    Yields:
        What is to be told bytes reserved so far and bytes in all.
    """
    columns = (
        TextColumn("reserving memory"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    console = Console(stderr=True)
    hidden = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("reserve")
        yield lambda done, total: bar.update(task, completed=done, total=total)
