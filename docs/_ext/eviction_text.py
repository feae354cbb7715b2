"""The tables of the page about eviction, as Markdown from `benchmarks/results/eviction.json`."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "table_text"]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "eviction.json"

Figures = dict[str, Any]


def table_text(name: str) -> str:
    """The Markdown of one of `TABLES`."""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    return TABLES[name](figures)


def _markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _blocks(size: int) -> str:
    return f"{size / 1000:g}k" if size >= 1000 else str(size)  # noqa: PLR2004


def _percents(values: Iterable[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _headed(title: str, table: str) -> str:
    return f"**{title}**\n\n{table}"


def _hits_table(table: Figures) -> str:
    rows = [
        *([f"`{policy}`", *_percents(hits)] for policy, hits in table["hits_percent"].items()),
        ["optimum", *_percents(table["optimum_percent"])],
    ]
    return _markdown(["blocks", *(_blocks(size) for size in table["sizes"])], rows)


def _sizes(figures: Figures) -> str:
    tables = figures["sizes"].items()
    return "\n\n".join(_headed(name, _hits_table(table)) for name, table in tables)


def _saved(figures: Figures) -> str:
    texts = []
    for name, table in figures["sizes"].items():
        head = ["seconds saved", *(_blocks(size) for size in table["sizes"]), "blocks/s"]
        rows = [
            [f"`{policy}`", *saved, f"{table['accesses_per_second'][policy] / 1e6:.1f} M"]
            for policy, saved in table["saved_s"].items()
        ]
        texts.append(_headed(name, _markdown(head, rows)))
    return "\n\n".join(texts)


def _hints(figures: Figures) -> str:
    texts = []
    for name, rows in figures["hints"].items():
        head = ["hints from", *(_blocks(size) for size in rows[0]["sizes"])]
        texts.append(_headed(name, _markdown(head, [_hint_row(row) for row in rows])))
    return "\n\n".join(texts)


def _hint_row(row: Figures) -> list[str]:
    who = "nobody"
    if row["hinted_share"]:
        who = f"{row['hinted_share']:.0%} of the conversations"
        who += ", with when" if row["says_when"] else ""
    cells = zip(row["hits_percent"], row["share_of_gap_closed"], strict=True)
    return [who, *(f"{hits:.1f} ({gap:.0%})" for hits, gap in cells)]


def _currency(figures: Figures) -> str:
    texts = []
    for name, by in figures["currency"].items():
        sizes = figures["sizes"][name]["sizes"]
        rows = [
            [f"by {currency}", *(f"{hits:.1f} % / {saved} s" for hits, saved in _pairs(row))]
            for currency, row in by.items()
        ]
        texts.append(_headed(name, _markdown(["index", *map(_blocks, sizes)], rows)))
    return "\n\n".join(texts)


def _pairs(row: Figures) -> Iterable[tuple[float, int]]:
    return zip(row["hits_percent"], row["saved_s"], strict=True)


def _tenants(figures: Figures) -> str:
    head = ["scanner", "blocks", "chat: shared / alone", "second: shared / alone", "worst"]
    head += ["total", "one LRU cache", "best unfair", "optimum"]
    return _markdown(head, [_tenants_row(row) for row in figures["tenants"]])


def _tenants_row(row: Figures) -> list[str]:
    parts = [row["tenants"][name] for name in ("chat", "second")]
    return [
        f"{row['scanner_requests_a_second']:g}/s",
        _blocks(row["capacity_blocks"]),
        *(f"{part['hits_percent']:.1f} / {part['alone_percent']:.1f}" for part in parts),
        f"{row['worst_tenant']:.2f}",
        f"{row['total_percent']:.1f}",
        f"{row['lru_percent']:.1f}",
        f"{row['best_unfair_percent']:.1f} (`{row['best_unfair']}`)",
        f"{row['optimum_percent']:.1f}",
    ]


def _shadow_cost(figures: Figures) -> str:
    cost = figures["shadow_cost"]
    return (
        f"The shadows of one tenant took {cost['us_a_request']:.0f} µs of CPU a request of the "
        f"conversation trace: {cost['share_of_prefill']:.3%} of the modelled prefill time of what "
        "was not found. It is most of what a simulation takes."
    )


def _admission(figures: Figures) -> str:
    texts = []
    for name, rows in figures["admission"].items():
        sizes = figures["sizes"][name]["sizes"]
        body = [
            [who, *(f"{hits:.1f} % / {written:.1f}" for hits, written in _written(row))]
            for who, row in rows.items()
        ]
        texts.append(_headed(name, _markdown(["tier", *map(_blocks, sizes)], body)))
    return "\n\n".join(texts)


def _written(row: Figures) -> Iterable[tuple[float, float]]:
    return zip(row["hits_percent"], row["written_per_hit"], strict=True)


def _traffic(figures: Figures) -> str:
    tables = figures["traffic"].items()
    return "\n\n".join(_headed(name, _hits_table(table)) for name, table in tables)


TABLES: dict[str, Callable[[Figures], str]] = {
    "sizes": _sizes,
    "saved": _saved,
    "hints": _hints,
    "currency": _currency,
    "tenants": _tenants,
    "shadow-cost": _shadow_cost,
    "admission": _admission,
    "traffic": _traffic,
}
"""Each table by its name in the page."""
