"""Several tenants on one capacity: a scenario file made ready to be replayed.

Invariant: keys of different tenants differ, all requests are in the order of their time, and the
same file makes the same requests.
"""

import difflib
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from kvext.errors import TraceError
from kvext.simulation.generators import expected_blocks, generate
from kvext.simulation.hints import with_session_hints
from kvext.simulation.replay import Arrival
from kvext.simulation.scenario_schema import Document, TenantTable, read_document
from kvext.simulation.trace import Trace, read_trace
from kvext.tenancy.policies import DEFAULT_POLICY, POLICY_NAMES
from kvext.tenancy.policy import Access

__all__ = ["Scenario", "Tenant", "load_scenario", "owner_of"]

_KEY_BITS = 44
"""Of a key within its tenant; the bits above are the tenant's."""
_MAX_MADE_UP_BLOCKS = 20_000_000
"""Two gigabytes of memory."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's requests, and what the scenario says of it."""

    table: TenantTable
    trace: Trace

    @property
    def name(self) -> str:
        """What the scenario calls it."""
        return self.table.name


@dataclass(frozen=True, slots=True)
class Scenario:
    """Tenants whose requests meet in one cache."""

    document: Document
    seed: int
    tenants: tuple[Tenant, ...]
    arrivals: Sequence[Arrival]
    """Everybody's requests, with the position of their tenant."""
    distinct_blocks: int
    """Of all tenants together: a cache of this size never has to evict."""

    @property
    def capacity_blocks(self) -> int:
        """What the file says that the shared cache holds."""
        return self.document.table.capacity_blocks

    @property
    def policy(self) -> str:
        """The policy that the file names, or the default."""
        return self.document.table.policy or DEFAULT_POLICY

    @property
    def num_blocks(self) -> int:
        """Block accesses of all tenants."""
        return sum(tenant.trace.num_blocks for tenant in self.tenants)


def load_scenario(path: Path, *, seed: int | None = None) -> Scenario:
    """Read a scenario, its traces and what its generators make.

    Args:
        path: The scenario file; traces are named relative to its folder.
        seed: Instead of the file's.

    Returns:
        The scenario.

    Raises:
        ScenarioError: The file is broken or contradicts itself; names the line.
        TraceError: A trace of it is broken.
    """
    document = read_document(path)
    _check_policy(document)
    _check_tenants(document)
    seed = document.table.seed if seed is None else seed
    traces = _read_traces(document, seed)
    _make_traces(document, traces, seed)
    tenants = tuple(
        Tenant(table, _own_keys(traces[at], at)) for at, table in enumerate(document.table.tenant)
    )
    arrivals = sorted(
        ((at, access) for at, tenant in enumerate(tenants) for access in tenant.trace.accesses),
        key=_time_ms,
    )
    distinct_blocks = sum(tenant.trace.distinct_blocks() for tenant in tenants)
    return Scenario(document, seed, tenants, arrivals, distinct_blocks)


def _time_ms(arrival: Arrival) -> int:
    return arrival[1].now_ms


def _check_policy(document: Document) -> None:
    name = document.table.policy
    if name is not None and name not in POLICY_NAMES:
        nearest = difflib.get_close_matches(name, POLICY_NAMES, n=1)
        remedy = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(POLICY_NAMES)}"
        raise document.fault(("policy",), f"there is no eviction policy {name!r}", remedy)


def _check_tenants(document: Document) -> None:
    names: set[str] = set()
    for at, table in enumerate(document.table.tenant):
        place = ("tenant", at)
        if table.name in names:
            reason = f"a second tenant is called {table.name!r}"
            raise document.fault((*place, "name"), reason, "give each tenant a name of its own")
        names.add(table.name)
        if table.trace is None and table.generator is None:
            reason = f"tenant {table.name!r} has no requests"
            raise document.fault(place, reason, "give it a trace, or a [tenant.generator]")
        if table.trace is not None and table.generator is not None:
            reason = f"tenant {table.name!r} has a trace and a generator"
            raise document.fault((*place, "generator"), reason, "give it one of the two")
        if table.trace is None and table.trace_tenant is not None:
            reason = "'trace_tenant' chooses lines of a trace, and there is none"
            raise document.fault((*place, "trace_tenant"), reason, "leave it out")
        for number, part in enumerate(table.retention.ranges if table.retention else ()):
            if part.end_token is not None and part.end_token <= part.start_token:
                reason = f"tokens {part.start_token} to {part.end_token} are no range"
                remedy = "'end_token' is one past the last"
                raise document.fault((*place, "retention", "ranges", number), reason, remedy)


def _read_traces(document: Document, seed: int) -> dict[int, Trace]:
    traces = {}
    for at, table in enumerate(document.table.tenant):
        if table.trace is None:
            continue
        file = document.path.parent / table.trace
        try:
            trace = read_trace(
                file, block_tokens=document.table.block_tokens, tenant=table.trace_tenant
            )
        except TraceError as error:
            if error.line:
                raise
            place = ("tenant", at, "trace_tenant" if table.trace_tenant else "trace")
            reason = f"trace {table.trace!r}: {error.reason}"
            raise document.fault(place, reason, error.remedy) from None
        traces[at] = _ready(trace, table, seed)
    return traces


def _make_traces(document: Document, traces: dict[int, Trace], seed: int) -> None:
    """Let the generators make their requests, by default for as long as the traces last."""
    longest_s = max((trace.accesses[-1].now_ms / 1000 for trace in traces.values()), default=0.0)
    num_left = float(_MAX_MADE_UP_BLOCKS)
    for at, table in enumerate(document.table.tenant):
        if table.generator is None:
            continue
        place = ("tenant", at, "generator")
        duration_s = table.generator.duration_s or longest_s - table.start_s
        if duration_s <= 0:
            reason = "no 'duration_s', and no trace that is still going on to take it from"
            raise document.fault(place, reason, "say how long the requests arrive")
        num_left -= expected_blocks(table.generator, duration_s)
        if num_left < 0:
            reason = f"the generators would make more than {_MAX_MADE_UP_BLOCKS} block accesses"
            raise document.fault(place, reason, "lower its rate, duration or blocks")
        own_seed = random.Random(f"{seed} {table.name}").getrandbits(63)  # noqa: S311
        made = generate(
            table.generator,
            duration_s=duration_s,
            block_tokens=document.table.block_tokens,
            seed=own_seed,
            name=table.name,
        )
        if not made.accesses:
            reason = f"no request arrives in {duration_s:g} s"
            raise document.fault(place, reason, "raise its rate or its duration_s")
        traces[at] = _ready(made, table, seed)


def _ready(trace: Trace, table: TenantTable, seed: int) -> Trace:
    """A tenant's trace with its hints, beginning when the tenant does."""
    if table.session_hints:
        trace = with_session_hints(trace, table.session_hints, seed=seed)
    if table.start_s:
        start_ms = int(table.start_s * 1000)
        late = [replace(access, now_ms=access.now_ms + start_ms) for access in trace.accesses]
        trace = replace(trace, accesses=late)
    return trace


def _own_keys(trace: Trace, tenant: int) -> Trace:
    """The same requests with keys that no other tenant has."""
    numbers: dict[int, int] | None = None
    if any(max(access.keys) >> _KEY_BITS for access in trace.accesses):
        # The trace's own ids need all 64 bits: number them anew.
        numbers = {}
        for key in chain.from_iterable(access.keys for access in trace.accesses):
            numbers.setdefault(key, len(numbers))
    above = tenant << _KEY_BITS

    def renamed(access: Access) -> Access:
        keys = access.keys if numbers is None else map(numbers.__getitem__, access.keys)
        return replace(access, keys=array("Q", [above | key for key in keys]))

    return replace(trace, accesses=[renamed(access) for access in trace.accesses])


def owner_of(key: int) -> int:
    """The position of the tenant whose block this is."""
    return key >> _KEY_BITS
