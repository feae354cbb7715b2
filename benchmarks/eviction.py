"""What each eviction policy hits: on public traces, with hints, among tenants, on made-up traffic.

usage: python benchmarks/eviction.py --traces FOLDER [--json]

FOLDER holds mooncake_conversation_trace.jsonl and mooncake_synthetic_trace.jsonl (Mooncake's
repository, folder FAST25-release/traces, Apache-2.0). The figures are replayed, not measured on an
engine, and but for the speeds they are the same on every machine. docs/eviction.md shows them.
Exit code 1 if a target is missed.
"""

from collections.abc import Callable

import eviction_sizing
import eviction_tenants
import eviction_traffic
from over_traces import run_over_traces

from kvext.simulation.trace import Trace

TRACES = {
    "conversation": "mooncake_conversation_trace.jsonl",
    "synthetic": "mooncake_synthetic_trace.jsonl",
}


def figures_of(traces: dict[str, Trace], tell: Callable[[str], None]) -> dict[str, object]:
    """All tables."""
    tell("policies and sizes")
    sizes = eviction_sizing.policies_and_sizes(traces)
    tell("session hints")
    hints = eviction_sizing.session_hints(traces)
    tell("currency")
    currency = eviction_sizing.currencies(traces)
    tell("store admission")
    admission = eviction_sizing.store_admission(traces)
    tell("tenants")
    tenants = eviction_tenants.three_tenants(traces)
    shadow_cost = eviction_tenants.shadow_cost(traces["conversation"])
    tell("made-up traffic")
    traffic = eviction_traffic.made_up_traffic()
    return {
        "sizes": sizes,
        "hints": hints,
        "currency": currency,
        "admission": admission,
        "tenants": tenants,
        "shadow_cost": shadow_cost,
        "traffic": traffic,
        "checks": {
            **eviction_sizing.checks(sizes, hints),
            **eviction_tenants.checks(tenants, shadow_cost),
            **eviction_traffic.checks(traffic),
        },
    }


def main() -> None:
    """Replay, print, keep the result; fails if a target is missed."""
    run_over_traces("eviction", __doc__ or "", TRACES, figures_of)


if __name__ == "__main__":
    main()
