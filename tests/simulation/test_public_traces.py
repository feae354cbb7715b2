"""The fixed policies reproduce the published figures on the public traces.

Runs only where the environment variable KVEXT_TRACES names the folder of Mooncake's traces.
"""

import os
from pathlib import Path

import pytest

from kvext.simulation.bound import find_bound
from kvext.simulation.sizing import size_trace
from kvext.simulation.trace import Trace, read_trace

_FOLDER = os.environ.get("KVEXT_TRACES")
pytestmark = pytest.mark.skipif(_FOLDER is None, reason="KVEXT_TRACES names no folder of traces")

_SIZES = {
    "conversation": (1000, 2500, 5000, 10_000, 20_000, 50_000),
    "synthetic": (1000, 5000, 10_000, 20_000),
}
_PERCENT = {
    ("conversation", "lru"): (4.5, 5.9, 11.2, 21.2, 28.8, 35.5),
    ("conversation", "lru2"): (7.3, 12.1, 16.4, 21.5, 25.1, 34.3),
    ("conversation", "s3fifo"): (5.6, 8.3, 14.1, 20.0, 25.1, 34.4),
    ("conversation", "arc"): (5.3, 7.6, 11.5, 22.3, 28.9, 34.4),
    ("conversation", "optimum"): (19.1, 27.7, 34.1, 36.6, 36.6, 36.6),
    ("synthetic", "lru"): (8.4, 27.9, 42.4, 57.2),
    ("synthetic", "lru2"): (8.9, 29.7, 44.3, 59.4),
    ("synthetic", "s3fifo"): (9.4, 29.1, 43.0, 59.4),
    ("synthetic", "arc"): (9.3, 28.8, 43.5, 59.3),
    ("synthetic", "optimum"): (27.7, 52.6, 61.8, 64.0),
}


def _read(name: str) -> Trace:
    return read_trace(Path(_FOLDER or "") / f"mooncake_{name}_trace.jsonl")


@pytest.mark.parametrize(("name", "policy"), _PERCENT)
def test_policy_hits_what_was_published(name: str, policy: str) -> None:
    trace = _read(name)
    if policy == "optimum":
        ratios = [find_bound(trace.accesses, size).hit_ratio for size in _SIZES[name]]
    else:
        sizings = size_trace(trace, policies=[policy], capacities=_SIZES[name], with_optimum=False)
        ratios = [sizing.hit_ratio for sizing in sizings]
    # The figures are rounded to 0.1 themselves.
    assert [100 * ratio for ratio in ratios] == pytest.approx(_PERCENT[name, policy], abs=0.1)


def test_traces_have_the_published_number_of_requests() -> None:
    assert _read("conversation").num_requests == 12_031
    assert _read("synthetic").num_requests == 3993
