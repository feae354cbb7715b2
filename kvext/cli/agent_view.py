"""The agent's events and state in words."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvext.config import format_bytes

__all__ = ["sentence", "show_status"]

_ROLES = {
    "idle": "no engine is attached to {pool}: nothing to do",
    "holder": "this is the agent of {pool}",
    "standby": "on standby: another agent looks after {pool}",
}


def sentence(event: str, facts: Mapping[str, Any]) -> str:
    """One event as a line for people."""
    if event == "created":
        return f"created {facts['path']} of {format_bytes(facts['region_bytes'])}"
    if event == "serving":
        return f"admin port at {facts['url']}"
    if event == "role":
        return _ROLES[facts["role"]].format(pool=facts["pool"])
    return f"{event}: {', '.join(str(fact) for fact in facts.values())}"


def show_status(name: str, document: Mapping[str, Any]) -> None:
    """Print what `/stat` told."""
    agent, pool = document["agent"], document["pool"]
    table = Table(
        box=box.SIMPLE_HEAD, show_header=False, title=f"agent of pool {name}", title_justify="left"
    )
    state = "healthy" if agent["healthy"] else "unhealthy"
    table.add_row("state", f"{state}, {agent['role']}, pid {agent['pid']}")
    for reason in agent["reasons"]:
        table.add_row("", escape(f"{reason['step']}: {reason['error']} (for {reason['for_s']} s)"))
    table.add_row("up", f"{agent['uptime_s']:.0f} s")
    marks = agent["watermarks"]
    table.add_row("policy", f"{agent['policy']}, {marks['low']:.1%} to {marks['high']:.1%} free")
    if pool is not None and pool["num_extents"]:
        share = pool["num_free"] / pool["num_extents"]
        table.add_row(
            "free", f"{pool['num_free']:,} of {pool['num_extents']:,} extents, {share:.1%}"
        )
    done = [
        f"{key.replace('_', ' ')} {count:,}" for key, count in agent["counters"].items() if count
    ]
    table.add_row("done", ", ".join(done) or "nothing yet")
    failed = [f"{step} {count:,}" for step, count in agent["failures"].items()]
    if failed:
        table.add_row("failures", ", ".join(failed))
    Console().print(table)
