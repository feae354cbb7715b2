"""The agent's figures in Prometheus's text format 0.0.4."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kvext.pool import PoolStat

__all__ = ["METRICS", "metrics_text"]

METRICS = {
    "kvext_agent_healthy": ("gauge", "1 while no step fails"),
    "kvext_agent_role_held": ("gauge", "1 while this process is the pool's agent, 0 on standby"),
    "kvext_agent_failures_total": ("counter", "Failures of each step"),
    "kvext_agent_looks_total": ("counter", "Snapshots of the pool's records"),
    "kvext_agent_reclaims_total": ("counter", "Times that room was made"),
    "kvext_agent_reclaimed_records_total": ("counter", "Records evicted ahead of need"),
    "kvext_agent_reclaimed_without_policy_total": (
        "counter",
        "Of those, chosen by their last access alone because the policy had failed",
    ),
    "kvext_agent_reaps_total": ("counter", "Times that dead and hung processes were looked for"),
    "kvext_agent_dead_processes_total": ("counter", "Processes found dead"),
    "kvext_agent_hung_processes_total": ("counter", "Processes fenced as hung"),
    "kvext_agent_freed_extents_total": ("counter", "Extents given back by reaping"),
    "kvext_agent_role_claims_total": ("counter", "Times that this process became the agent"),
    "kvext_agent_role_losses_total": ("counter", "Times that it was replaced as hung"),
    "kvext_pool_extents": ("gauge", "Extents of the pool"),
    "kvext_pool_free_extents": ("gauge", "Extents that are free"),
    "kvext_pool_limbo_extents": ("gauge", "Extents that a fenced process may still be writing"),
    "kvext_pool_committed_bytes": ("gauge", "Bytes of committed records"),
    "kvext_pool_pinned_extents": ("gauge", "Extents that somebody uses"),
    "kvext_pool_quarantined_records": ("gauge", "Records whose bytes were found damaged"),
    "kvext_pool_processes": ("gauge", "Processes attached"),
    "kvext_pool_bypassed": ("gauge", "1 while the pool is switched off"),
    "kvext_pool_events_total": ("counter", "The pool's counters, by name, since its creation"),
}
"""Each metric's type and meaning."""

Sample = tuple[str, Mapping[str, str], float]


def metrics_text(agent: Mapping[str, Any], pool: PoolStat | None) -> str:
    """One scrape.

    Args:
        agent: `View.agent`.
        pool: Its pool's figures, where they can be had.
    """
    by_name: dict[str, list[Sample]] = {name: [] for name in METRICS}
    for sample in (*_of_agent(agent), *(() if pool is None else _of_pool(pool))):
        by_name[sample[0]].append(sample)
    lines: list[str] = []
    for name, samples in by_name.items():
        if samples:
            kind, meaning = METRICS[name]
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *_lines(samples)]
    return "\n".join(lines) + "\n"


def _of_agent(agent: Mapping[str, Any]) -> Iterator[Sample]:
    yield "kvext_agent_healthy", {}, agent["healthy"]
    yield "kvext_agent_role_held", {}, agent["role"] == "holder"
    for step, count in agent["failures"].items():
        yield "kvext_agent_failures_total", {"step": step}, count
    for name, count in agent["counters"].items():
        yield f"kvext_agent_{name}_total", {}, count


def _of_pool(pool: PoolStat) -> Iterator[Sample]:
    yield "kvext_pool_extents", {}, pool.num_extents
    yield "kvext_pool_free_extents", {}, pool.num_free
    yield "kvext_pool_limbo_extents", {}, pool.num_limbo
    yield "kvext_pool_committed_bytes", {}, pool.committed_bytes
    yield "kvext_pool_pinned_extents", {}, pool.num_pinned
    yield "kvext_pool_quarantined_records", {}, pool.num_quarantined
    yield "kvext_pool_processes", {}, len(pool.processes)
    yield "kvext_pool_bypassed", {}, pool.bypassed
    for event, count in pool.counters.items():
        yield "kvext_pool_events_total", {"event": event}, count


def _lines(samples: Iterable[Sample]) -> Iterator[str]:
    for name, labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
