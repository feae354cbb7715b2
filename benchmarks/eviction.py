"""What each eviction policy hits: on public traces, with hints, among tenants, on made-up traffic.

usage: python benchmarks/eviction.py --traces FOLDER [--json]

FOLDER holds mooncake_conversation_trace.jsonl and mooncake_synthetic_trace.jsonl (Mooncake's
repository, folder FAST25-release/traces, Apache-2.0). The figures are replayed, not measured on an
engine, and but for the speeds they are the same on every machine. docs/eviction.md shows them.
Exit code 1 if a target is missed.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import eviction_sizing
import eviction_tenants
import eviction_traffic
from results import record

from kvext.simulation.trace import Trace, read_trace

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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, help="folder of the public traces")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    traces = {name: read_trace(options.traces / file) for name, file in TRACES.items()}

    def tell(part: str) -> None:
        if not options.json:
            print(f"replaying: {part}", file=sys.stderr)

    figures = figures_of(traces, tell)
    record("eviction", figures)
    print(json.dumps(figures, indent=None if options.json else 2))
    checks = figures["checks"]
    assert isinstance(checks, dict)
    sys.exit(0 if all(check["holds"] for check in checks.values()) else 1)


if __name__ == "__main__":
    main()
