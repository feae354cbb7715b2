"""`kvext simulate`: what a pool of a given size would hit, before it is bought."""

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from kvext.cli import simulate_plot, simulate_view
from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.errors import InvalidOption, UnknownPolicy
from kvext.simulation.hints import with_session_hints
from kvext.simulation.replay import ProgressCallback
from kvext.simulation.scenario import load_scenario
from kvext.simulation.shares import check_capacity
from kvext.simulation.sizing import check_capacities, size_trace
from kvext.simulation.tenancy import run_scenario
from kvext.simulation.trace import DEFAULT_BLOCK_TOKENS, Trace, read_trace
from kvext.tenancy.policies import DEFAULT_POLICY, POLICIES, POLICY_NAMES

__all__ = ["simulate"]

_ALL = "all"
_SIZE = re.compile(r"\s*([0-9_]+(?:\.[0-9]+)?)\s*([kKmM]?)\s*")
_FACTORS = {"": 1, "k": 1000, "m": 1_000_000}
_SIZE_REMEDY = 'give a whole number of blocks above 0, such as "2500" or "2.5k"'


@dataclass(frozen=True, slots=True)
class _Request:
    """The command's options as they were typed."""

    trace: Path | None
    scenario: Path | None
    blocks: tuple[str, ...]
    policy: tuple[str, ...]
    seed: int | None
    seeds: int
    block_tokens: int | None
    session_hints: float | None
    unfair: bool
    by_seconds: bool
    optimum: bool
    plot: str | None

    def check(self, *, as_json: bool) -> None:
        """Refuse what cannot be meant; raises click.UsageError or InvalidOption."""
        if (self.trace is None) == (self.scenario is None):
            raise click.UsageError("give a --trace or a --scenario (and not both)")
        if self.trace is not None:
            if not self.blocks:
                raise click.UsageError("--trace needs --blocks: how many blocks the cache holds")
            if self.unfair:
                raise click.UsageError("--unfair is about the tenants of a --scenario")
        elif self.block_tokens is not None or self.session_hints is not None or self.seeds > 1:
            message = "--block-tokens, --session-hints and --seeds go with --trace; a scenario "
            raise click.UsageError(message + "says them itself")
        if self.plot is not None:
            if self.plot == simulate_plot.TERMINAL and as_json:
                raise click.UsageError("--plot - would stand among the JSON; name a file")
            simulate_plot.check_target(self.plot)
        if self.session_hints is not None and math.isnan(self.session_hints):
            raise click.UsageError("--session-hints is a share between 0 and 1")

    def capacities(self) -> list[int]:
        """The sizes of --blocks, each once; raises InvalidOption."""
        texts = [text for value in self.blocks for text in value.split(",")]
        return list(dict.fromkeys(_parse_blocks(text) for text in texts))

    def policies(self) -> list[str]:
        """The names of --policy, each once; raises UnknownPolicy."""
        names = [name.strip() for value in self.policy for name in value.split(",")]
        for name in names:
            if name not in (*POLICY_NAMES, _ALL):
                nearest = difflib.get_close_matches(name, POLICY_NAMES, n=1)
                known = ", ".join((*POLICY_NAMES, _ALL))
                raise UnknownPolicy(name, nearest[0] if nearest else "", known)
        return list(POLICY_NAMES) if _ALL in names else list(dict.fromkeys(names))


def _parse_blocks(text: str) -> int:
    match = _SIZE.fullmatch(text)
    try:
        # A fraction is exact where a float would round "4.1k", or a number of many digits.
        blocks = Fraction(match[1]) * _FACTORS[match[2].lower()] if match else Fraction(0)
    except ValueError:  # underscores in the wrong places
        blocks = Fraction(0)
    if blocks < 1 or blocks.denominator != 1:
        raise InvalidOption("--blocks", text, _SIZE_REMEDY)
    return int(blocks)


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Requests of one cache: Mooncake's JSON lines, plain or gzipped.",
)
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    help="TOML file of several tenants, each with a trace or a generator.",
)
@click.option(
    "--blocks",
    multiple=True,
    metavar="N[,N...]",
    help='Blocks that the cache holds, such as "2500" or "1k,2.5k,10k"; may be repeated.',
)
@click.option(
    "--policy",
    multiple=True,
    metavar="NAME[,NAME...]",
    help=f"{', '.join(POLICY_NAMES)} or {_ALL}; may be repeated.  [default: {DEFAULT_POLICY}]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Of all that is drawn by lot.  [default: 0, or what the scenario says]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Replay with as many seeds and give the means.",
)
@click.option(
    "--block-tokens",
    type=click.IntRange(1, 10**6),
    help=f"Tokens of a block of the trace.  [default: {DEFAULT_BLOCK_TOKENS}]",
)
@click.option(
    "--session-hints",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of the conversations of which the application says when they are over.",
)
@click.option(
    "--unfair", is_flag=True, help="Put a scenario's tenants in one cache without shares."
)
@click.option(
    "--by-seconds",
    is_flag=True,
    help="Let policies that can aim at seconds saved instead of hits.",
)
@click.option(
    "--optimum/--no-optimum",
    default=True,
    show_default=True,
    help="Find what a policy that knows the future would hit, too.",
)
@click.option(
    "--plot", metavar="FILE", help='Draw the hits into a .png, .svg or .pdf; "-": the terminal.'
)
@json_option
@answering
@example(
    "kvext simulate --trace requests.jsonl --blocks 2.5k",
    "kvext simulate --trace requests.jsonl --blocks 1k,2.5k,10k --policy lru,arc --plot -",
    "kvext simulate --scenario tenants.toml --json",
)
def simulate(*, as_json: bool, **options: Any) -> None:
    """Replay requests against caches of given sizes and say what they would hit.

    A hit is a block in the longest cached prefix of a prompt. Beside it stands the optimum, which
    knows the future, and the prefill time that the hits save.
    """
    request = _Request(**options)
    request.check(as_json=as_json)
    if request.trace is not None:
        _simulate_trace(request, request.trace, as_json=as_json)
    elif request.scenario is not None:
        _simulate_scenario(request, request.scenario, as_json=as_json)


def _simulate_trace(request: _Request, path: Path, *, as_json: bool) -> None:
    capacities, policies = request.capacities(), request.policies() or [DEFAULT_POLICY]
    trace = _read(request, path)
    first_seed = request.seed or 0
    seeds = range(first_seed, first_seed + request.seeds)
    replays = sum(len(seeds) if POLICIES[name].seeded else 1 for name in policies)
    num_replays = len(capacities) * (replays + request.optimum)
    check_capacities(capacities, trace.distinct_blocks())
    with _progress(num_replays * trace.num_blocks) as on_progress:
        sizings = size_trace(
            trace,
            policies=policies,
            capacities=capacities,
            seeds=seeds,
            by_seconds=request.by_seconds,
            with_optimum=request.optimum,
            on_progress=on_progress,
        )
    chart = simulate_view.sizing_chart(sizings)
    if as_json:
        # The plot first: should it fail, the error is the one document.
        _plot(request.plot, chart)
        _echo_runs({"trace": trace.name}, [sizing.as_dict() for sizing in sizings])
    else:
        simulate_view.show_sizings(trace, sizings)
        _plot(request.plot, chart)


def _read(request: _Request, path: Path) -> Trace:
    trace = read_trace(path, block_tokens=request.block_tokens or DEFAULT_BLOCK_TOKENS)
    if request.session_hints is None:
        return trace
    return with_session_hints(trace, request.session_hints, seed=request.seed or 0)


def _simulate_scenario(request: _Request, path: Path, *, as_json: bool) -> None:
    capacities, policies = request.capacities(), request.policies()
    scenario = load_scenario(path, seed=request.seed)
    policies = policies or [scenario.policy]
    capacities = capacities or [scenario.capacity_blocks]
    for capacity in capacities:
        check_capacity(scenario, capacity)
    calls = [(capacity, policy) for capacity in capacities for policy in policies]
    # The tenants together, each alone, and the optimum.
    num_replays = len(calls) * (2 + request.optimum)
    with _progress(num_replays * scenario.num_blocks) as on_progress:
        runs = [
            run_scenario(
                scenario,
                policy=policy,
                capacity_blocks=capacity,
                shared_fairly=not request.unfair,
                by_seconds=request.by_seconds or scenario.document.table.by_seconds,
                with_optimum=request.optimum,
                on_progress=on_progress,
            )
            for capacity, policy in calls
        ]
    chart = simulate_view.tenancy_chart(runs)
    if as_json:
        _plot(request.plot, chart)
        _echo_runs({"scenario": str(path)}, [run.as_dict() for run in runs])
    else:
        simulate_view.show_tenancy(scenario, runs)
        _plot(request.plot, chart)


def _echo_runs(source: dict[str, object], runs: Sequence[dict[str, object]]) -> None:
    if len(runs) == 1:
        echo_json({**source, **runs[0]})
    else:
        echo_json({**source, "runs": runs})


def _plot(target: str | None, chart: simulate_plot.Chart) -> None:
    if target == simulate_plot.TERMINAL:
        click.echo(simulate_plot.draw(chart, Console().width))
    elif target is not None:
        simulate_plot.save(chart, Path(target))


@contextmanager
def _progress(num_accesses: int) -> Iterator[ProgressCallback]:
    columns = (
        TextColumn("replaying"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("replay", total=num_accesses)
        yield lambda done: bar.advance(task, done)
