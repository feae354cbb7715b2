"""What the agent is worth: hits and room made, against a pool that only its writers look after.

usage: python benchmarks/agent.py --traces FOLDER [--json]

FOLDER holds Mooncake's public traces, as for eviction.py. Three parts:
  replayed  the traces through the agent's code and the model of a pool's slots (agent_model.py)
  pool      made-up chat through a real pool, with a real agent beside it and without one
  look      what a look at a pool of many records costs the agent
Exit code 1 if a target is missed.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from agent_model import Replay
from over_traces import run_over_traces

from kvext.agent import AgentSettings
from kvext.agent.counters import Counters
from kvext.agent.health import Health
from kvext.agent.reclaim import Reclaimer
from kvext.cxl import create_region, region_path
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape
from kvext.simulation.generators import Chat, generate
from kvext.simulation.trace import Trace

TRACES = {
    "conversation": "mooncake_conversation_trace.jsonl",
    "synthetic": "mooncake_synthetic_trace.jsonl",
}
SIZES = (2500, 5000, 10_000, 20_000)
NO_AGENT = "no agent (CLOCK)"
POLICIES = ("insured", "lru2", "arc", "duel")
WORST_LOSS_POINTS = 2.0
MOST_WRITER_EVICTIONS = 0.1

NAMESPACE = b"n" * 32
SHAPE = RecordShape(block_tokens=512)
BLOCK_BYTES = 64 << 10
POOL_BLOCKS = 1500
TRAFFIC = Chat(
    sessions_per_second=0.5, first_blocks=8, blocks_per_turn=3, shared_blocks=6, mean_turns=5,
    mean_think_s=60,
)  # fmt: skip
TRAFFIC_S, TIMES_FASTER = 900.0, 18.0
LOOK_RECORDS = 100_000


def replayed(traces: dict[str, Trace], tell: Callable[[str], None]) -> dict[str, object]:
    """Hits in percent and the writers' own evictions, by trace, policy and size."""
    tables: dict[str, object] = {}
    for name, trace in traces.items():
        hits, evictions = {}, {}
        for policy in (None, *POLICIES):
            tell(f"{name}, {policy or NO_AGENT}")
            outcomes = [Replay(size, policy).run(trace.accesses) for size in SIZES]
            hits[policy or NO_AGENT] = [outcome.hits_percent for outcome in outcomes]
            evictions[policy or NO_AGENT] = [outcome.writer_evictions for outcome in outcomes]
        tables[name] = {"sizes": SIZES, "hits_percent": hits, "writer_evictions": evictions}
    return tables


def gains(tables: dict[str, object], policy: str) -> list[float]:
    """Points of hits that a policy wins over no agent, cell by cell."""
    won: list[float] = []
    for table in tables.values():
        assert isinstance(table, dict)
        hits = table["hits_percent"]
        cells = zip(hits[policy], hits[NO_AGENT], strict=True)
        won += [round(ours - theirs, 2) for ours, theirs in cells]
    return won


@contextmanager
def agent_of(folder: Path) -> Iterator[None]:
    """A real agent on the folder's pool, once it holds the role."""
    code = "from kvext.cli import main; main()"
    command = [sys.executable, "-c", code, "agent", "--folder", str(folder), "--port", "0"]
    with subprocess.Popen(
        [*command, "--interval", "0.2", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while '"holder"' not in process.stdout.readline():
            assert process.poll() is None, "the agent has ended"
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)


def pool_figures(*, with_agent: bool) -> dict[str, object]:
    """Chat through a real pool, in a fraction of its time."""
    trace = generate(TRAFFIC, duration_s=TRAFFIC_S, block_tokens=512, seed=0)
    memory = np.zeros(BLOCK_BYTES, np.uint8)
    pages = Pages([memory.ctypes.data], [BLOCK_BYTES], 1)
    with TemporaryDirectory(prefix="kvext-bench-") as name:
        path = region_path(Path(name), "default")
        create_region(path, POOL_BLOCKS * (BLOCK_BYTES + 1024), Pool.initialise)
        with Pool.attach(path, extent_bytes=BLOCK_BYTES, label="engine") as pool:
            if not with_agent:
                return _chat(trace, pool, pages)
            with agent_of(Path(name)):
                return _chat(trace, pool, pages)


def _chat(trace: Trace, pool: Pool, pages: Pages) -> dict[str, object]:
    num_hits, us_a_block, begun_s = 0, [], time.perf_counter()
    for access in trace.accesses:
        time.sleep(max(0, begun_s + access.now_ms / 1000 / TIMES_FASTER - time.perf_counter()))
        keys = b"".join(key.to_bytes(8, "little") * 4 for key in access.keys)
        lease = pool.match(keys, SHAPE)
        num_hits += lease.num_blocks
        missing = keys[32 * lease.num_blocks :]
        num_missing = len(missing) // 32
        if num_missing:
            start = time.perf_counter()
            pool.store(missing, SHAPE, NAMESPACE, pages, [0] * num_missing)
            us_a_block.append((time.perf_counter() - start) * 1e6 / num_missing)
        lease.release()
    counters = pool.stat().counters
    return {
        "num_extents": pool.num_extents,
        "hits_percent": round(100 * num_hits / trace.num_blocks, 2),
        "stores": counters["stores"],
        "writer_evictions": counters["evictions"],
        "reclaimed": counters["reclaims"],
        "store_us_a_block": {
            "median": round(statistics.median(us_a_block), 1),
            "p99": round(statistics.quantiles(us_a_block, n=100)[98], 1),
        },
    }


def look_figures() -> dict[str, object]:
    """Times of the agent's steps on a pool of many records."""
    memory = np.zeros(4096, np.uint8)
    pages = Pages([memory.ctypes.data], [4096], 1)
    with TemporaryDirectory(prefix="kvext-bench-") as name:
        path = region_path(Path(name), "default")
        create_region(path, LOOK_RECORDS * (4096 + 640), Pool.initialise)
        with Pool.attach(path, extent_bytes=4096, label="engine") as pool:
            keys = np.random.default_rng(0).bytes(32 * LOOK_RECORDS)
            pool.store(keys, SHAPE, NAMESPACE, pages, [0] * LOOK_RECORDS)
            settings = AgentSettings()
            reclaimer = Reclaimer(
                settings.watermarks, settings.make_ranking, Counters(),
                Health(time.monotonic, 1e9), time.monotonic,
            )  # fmt: skip
            first_ms = _ms(lambda: reclaimer.look(pool))
            return {
                "num_records": pool.stat().num_committed,
                "snapshot_ms": min(_ms(pool.records) for _ in range(9)),
                "first_look_ms": first_ms,
                "look_ms": min(_ms(lambda: reclaimer.look(pool)) for _ in range(9)),
                "reclaim_3000_ms": _ms(lambda: reclaimer.make_room(pool, 3000)),
            }


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return round((time.perf_counter() - start) * 1e3, 2)


def figures_of(traces: dict[str, Trace], tell: Callable[[str], None]) -> dict[str, object]:
    """All parts."""
    tables = replayed(traces, tell)
    won = {policy: gains(tables, policy) for policy in POLICIES}
    tell("a real pool, without and with an agent")
    without, with_agent = pool_figures(with_agent=False), pool_figures(with_agent=True)
    tell("looks")
    mean_gain = round(statistics.mean(won["insured"]), 2)
    share = int(str(with_agent["writer_evictions"])) / int(str(with_agent["stores"]))
    return {
        "watermarks": asdict(AgentSettings().watermarks),
        "replayed": tables,
        "points_over_no_agent": {
            policy: {"mean": round(statistics.mean(cells), 2), "worst": min(cells)}
            for policy, cells in won.items()
        },
        "pool": {"no_agent": without, "agent": with_agent},
        "look": look_figures(),
        "checks": {
            "default_gains_on_average": _check(mean_gain, 0, holds=mean_gain > 0),
            "default_loses_little_at_worst": _check(
                min(won["insured"]), -WORST_LOSS_POINTS,
                holds=min(won["insured"]) >= -WORST_LOSS_POINTS,
            ),
            "writers_evict_for_themselves": _check(
                round(share, 4), MOST_WRITER_EVICTIONS, holds=share <= MOST_WRITER_EVICTIONS
            ),
        },
    }  # fmt: skip


def _check(value: float, bound: float, *, holds: bool) -> dict[str, object]:
    return {"value": value, "bound": bound, "holds": holds}


def main() -> None:
    """Measure, print, keep the result; fails if a target is missed."""
    run_over_traces("agent", __doc__ or "", TRACES, figures_of)


if __name__ == "__main__":
    main()
