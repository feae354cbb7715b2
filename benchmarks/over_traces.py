"""The command line of the benchmarks that replay the public traces."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from results import record

from kvext.simulation.trace import Trace, read_trace

__all__ = ["run_over_traces"]

Figures = Callable[[dict[str, Trace], Callable[[str], None]], dict[str, object]]
"""Computes the figures of some traces and tells which part it is at."""


def run_over_traces(
    name: str, description: str, files: Mapping[str, str], figures_of: Figures
) -> None:
    """Measure, print, keep the result as `results/<name>.json`; exits with 1 on a missed target.

    Args:
        name: Of the benchmark.
        description: What `--help` says.
        files: The traces' files by the names that the figures use.
        figures_of: Measures; its result has `checks`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, help="folder of the public traces")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    traces = {key: read_trace(options.traces / file) for key, file in files.items()}

    def tell(part: str) -> None:
        if not options.json:
            print(f"measuring: {part}", file=sys.stderr)

    figures = figures_of(traces, tell)
    record(name, figures)
    print(json.dumps(figures, indent=None if options.json else 2))
    checks = figures["checks"]
    assert isinstance(checks, dict)
    sys.exit(0 if all(check["holds"] for check in checks.values()) else 1)
