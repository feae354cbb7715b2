"""The tables of the page about the agent, as Markdown from `benchmarks/results/agent.json`."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "table_text"]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "agent.json"

Figures = dict[str, Any]


def table_text(name: str) -> str:
    """The Markdown of one of `TABLES`."""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    return TABLES[name](figures)


def _markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _hits(figures: Figures) -> str:
    """Hits by policy; a column for each trace and size."""
    tables, over = figures["replayed"], figures["points_over_no_agent"]
    head = [
        "blocks",
        *(f"{name}, {size:,}" for name, table in tables.items() for size in table["sizes"]),
    ]
    rows = []
    for policy in next(iter(tables.values()))["hits_percent"]:
        hits = [
            f"{cell:.1f}" for table in tables.values() for cell in table["hits_percent"][policy]
        ]
        mean = f"{over[policy]['mean']:+.1f}" if policy in over else ""
        rows.append([policy if policy not in over else f"`{policy}`", *hits, mean])
    return _markdown([*head, "points over no agent, mean"], rows)


def _room(figures: Figures) -> str:
    """A real pool with and without an agent."""
    without, with_agent = figures["pool"]["no_agent"], figures["pool"]["agent"]
    rows = [
        ["hits", *(f"{part['hits_percent']:.1f} %" for part in (without, with_agent))],
        ["blocks stored", *(f"{part['stores']:,}" for part in (without, with_agent))],
        ["of those, evicted for by the writer itself"]
        + [f"{part['writer_evictions'] / part['stores']:.1%}" for part in (without, with_agent)],
    ]
    return _markdown(["", "no agent", "agent"], rows)


TABLES: dict[str, Callable[[Figures], str]] = {"hits": _hits, "room": _room}
