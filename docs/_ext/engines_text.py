"""The tables of the comparison page, as Markdown from `benchmarks/results/engines.json`."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "table_text"]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "engines.json"
NONE = "-"

Figures = dict[str, Any]

_SYSTEMS = {
    "vllm": "vLLM alone",
    "kvext": "kvext",
    "lmcache_engine_driven": "LMCache, the engine copies",
    "lmcache_lmcache_driven": "LMCache, its server copies",
}
_CHECKS = {
    "load_to_lmcache": "load bandwidth over LMCache's better way, at least",
    "warm_over_local_ms": "hit in the pool over one in the engine, ms at most",
    "stall_ms": "stall when a process dies in the pool's lock, ms at most",
}


def table_text(name: str) -> str:
    """The Markdown of one of `TABLES`."""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    return TABLES[name](figures)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _spread(found: Figures | None, digits: int) -> str:
    if found is None:
        return NONE
    median, least, greatest = (found[name] for name in ("median", "least", "greatest"))
    return f"{median:.{digits}f} ({least:.{digits}f}-{greatest:.{digits}f})"


def _served(figures: Figures) -> str:
    head = ["", "cold, ms", "own cache, ms", "the store, ms", "tokens reused"]
    rows = [
        [
            _SYSTEMS[name],
            *(_spread(found.get(key), 0) for key in ("cold_ms", "local_hit_ms", "warm_ms")),
            f"{found['reused_tokens']:.0f}" if "reused_tokens" in found else NONE,
        ]
        for name, found in figures["systems"].items()
    ]
    return _markdown(head, rows)


def _bandwidth(figures: Figures) -> str:
    head = ["", "store", "load, waited", "load, counted", "load, from outside", "memcpy"]
    rows = [
        [
            _SYSTEMS[name],
            *(
                _spread(found.get(key), 1)
                for key in ("store_gb_s", "load_gb_s", "load_reported_gb_s")
            ),
            str(found["load_outside_gb_s"] or "too short to tell"),
            _spread(found["memcpy_gb_s"], 1),
        ]
        for name, found in figures["systems"].items()
        if "reused_tokens" in found
    ]
    return _markdown(head, rows)


def _stalls(figures: Figures) -> str:
    head = ["", "struck", "before, ms", "after, ms", "failed", "stall, ms"]
    rows = [
        [
            _SYSTEMS[name],
            found["struck"],
            *(_spread(found[key], 0) for key in ("before_ms", "after_ms")),
            str(found["num_failed"]),
            f"{found['stall_ms']:.0f}",
        ]
        for name, found in figures["stalls"].items()
    ]
    return _markdown(head, rows)


def _checks(figures: Figures) -> str:
    rows = [
        [text, f"{check['bound']:.1f}", f"{check['value']:.1f}", "yes" if check["holds"] else "no"]
        for name, text in _CHECKS.items()
        if (check := figures["checks"].get(name))
    ]
    return _markdown(["target", "bound", "measured", "met"], rows)


TABLES: dict[str, Callable[[Figures], str]] = {
    "served": _served,
    "bandwidth": _bandwidth,
    "stalls": _stalls,
    "checks": _checks,
}
"""Each table by its name in the page."""
