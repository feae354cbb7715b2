"""Hit ratios as a picture: drawn in the terminal, or by matplotlib into a file.

Invariant: both forms show the same `Chart`; matplotlib is imported only to write a file.
"""

import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path

from kvext.errors import InvalidOption

__all__ = ["TERMINAL", "Bars", "Chart", "Curves", "check_target", "draw", "save"]

TERMINAL = "-"
"""The target of a plot that is drawn in the terminal."""

_SUFFIXES = (".png", ".svg", ".pdf")
_MARKS = "●▲■◆○△□◇✚✖"
_BETWEEN = "·"
_HEIGHT = 16
_LABEL_EVERY = 5
_MIN_CELLS = 20
_MAX_CELLS = 72
_PERCENT_CELLS = 7
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Curves:
    """Ratios over sizes.

    Attributes:
        title: What is shown.
        lines: By name, points of blocks and ratio in the order of the blocks.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Bars:
    """One ratio for each name."""

    title: str
    rows: Sequence[tuple[str, float]]


Chart = Curves | Bars


def check_target(target: str) -> None:
    """Refuse a plot that could not be written, before anything is replayed.

    Raises:
        InvalidOption: The file's kind or folder is impossible, or matplotlib is not installed.
    """
    if target == TERMINAL:
        return
    path = Path(target)
    if path.suffix.lower() not in _SUFFIXES:
        remedy = f"name a file that ends in {', '.join(_SUFFIXES)}, or - for the terminal"
        raise InvalidOption("--plot", target, remedy)
    if not path.absolute().parent.is_dir():
        raise InvalidOption("--plot", target, "its folder does not exist; make it first")
    if path.is_dir():
        raise InvalidOption("--plot", target, "that is a folder; name a file in it")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise InvalidOption("--plot", target, "it may not be written; choose another file")
    if importlib.util.find_spec("matplotlib") is None:
        remedy = "matplotlib is not installed; pip install 'kvext[plot]', or --plot - draws here"
        raise InvalidOption("--plot", target, remedy)


def save(chart: Chart, path: Path) -> None:
    """Let matplotlib draw the chart into a file.

    Raises:
        InvalidOption: The file cannot be written.
    """
    # The object interface: pyplot would look for a display and keep the figure.
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(8, 4.5), layout="constrained"
    )
    axes = figure.subplots()
    axes.set_title(chart.title)
    if isinstance(chart, Bars):
        axes.barh([name for name, _ in chart.rows], [100 * ratio for _, ratio in chart.rows])
        axes.invert_yaxis()
        axes.set_xlabel("%")
    else:
        for name, points in chart.lines.items():
            blocks, ratios = zip(*points, strict=True)
            axes.plot(blocks, [100 * ratio for ratio in ratios], marker="o", label=name)
        axes.set(xscale="log", xlabel="blocks", ylabel="hits, %", ylim=(0, None))
        sizes = sorted({size for line in chart.lines.values() for size, _ in line})
        axes.set_xticks([], minor=True)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        remedy = f"{error.strerror or error}; choose another file"
        raise InvalidOption("--plot", str(path), remedy) from error


def draw(chart: Chart, width_cells: int) -> str:
    """The chart as lines of text.

    Args:
        chart: What to show.
        width_cells: How wide the text may be.

    Returns:
        Text that ends without a line end.
    """
    if isinstance(chart, Bars):
        lines = _bar_lines(chart, width_cells)
    else:
        lines = _curve_lines(chart, width_cells)
    return "\n".join((chart.title, *lines))


def _bar_lines(bars: Bars, width_cells: int) -> Iterator[str]:
    name_cells = max(len(name) for name, _ in bars.rows)
    cells = min(max(width_cells - name_cells - _PERCENT_CELLS - 2, _MIN_CELLS), _MAX_CELLS)
    longest = max(ratio for _, ratio in bars.rows) or 1.0
    for name, ratio in bars.rows:
        eighths = round(8 * cells * ratio / longest)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        yield f"{name:>{name_cells}} {bar:<{cells}} {ratio:{_PERCENT_CELLS - 1}.1%}"


def _curve_lines(curves: Curves, width_cells: int) -> Iterator[str]:
    cells = min(max(width_cells - _PERCENT_CELLS - 2, _MIN_CELLS), _MAX_CELLS)
    points = [point for line in curves.lines.values() for point in line]
    left, right = (pick(math.log(blocks) for blocks, _ in points) for pick in (min, max))
    top = max(ratio for _, ratio in points) or 1.0
    grid = [[" "] * cells for _ in range(_HEIGHT)]

    def column(blocks: int) -> int:
        return round((math.log(blocks) - left) / ((right - left) or 1) * (cells - 1))

    def row(ratio: float) -> int:
        return round((1 - ratio / top) * (_HEIGHT - 1))

    marks = dict(zip(curves.lines, cycle(_MARKS), strict=False))
    for name, line in curves.lines.items():
        for (blocks, ratio), (next_blocks, next_ratio) in pairwise(line):
            start, end = column(blocks), column(next_blocks)
            for at in range(start + 1, end):
                share = (at - start) / (end - start)
                cell = grid[row(ratio + share * (next_ratio - ratio))]
                cell[at] = _BETWEEN if cell[at] == " " else cell[at]
        for blocks, ratio in line:
            grid[row(ratio)][column(blocks)] = marks[name]
    for at, cells_of_row in enumerate(grid):
        label = f"{top * (1 - at / (_HEIGHT - 1)):.1%}" if at % _LABEL_EVERY == 0 else ""
        yield f"{label:>{_PERCENT_CELLS}} ┤{''.join(cells_of_row)}".rstrip()
    yield f"{'':>{_PERCENT_CELLS}} └{'─' * cells}"
    yield f"{'':>{_PERCENT_CELLS}}  {_size_labels(curves, column, cells)}".rstrip()
    yield "  ".join(f"{mark} {name}" for name, mark in marks.items())


def _size_labels(curves: Curves, column: Callable[[int], int], cells: int) -> str:
    """Sizes below their points, as far as they do not run into one another."""
    text = ""
    for blocks in sorted({blocks for line in curves.lines.values() for blocks, _ in line}):
        label = f"{blocks:,}"
        start = min(max(column(blocks) - len(label) // 2, 0), cells - len(label))
        if start >= len(text) + bool(text):
            text = f"{text:<{start}}{label}"
    return text
