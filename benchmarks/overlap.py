"""How much of a load hides behind computing: time to first token with the load before or within it.

usage: python benchmarks/overlap.py [--json] [--rounds N] [--gb-s X]

One engine in this process, on one core; the memory is a MODEL: each load takes as long as from a
far tier of --gb-s GB/s, the rest of which passes asleep. Each round asks three times for the same
cached beginning with a new end of equal length: the load not throttled, throttled and blocking,
throttled and layer by layer.

  hidden = 1 - (layerwise - unthrottled) / (blocking - unthrottled)    >= 0.7, median of the rounds

The engine's own reports say the same in another way: the part of the copy that no step waited for.
"""

import argparse
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from results import record

from kvext.testing.models import tiny_llama

os.environ.update(
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
)

HIDDEN = 0.7
NUM_LAYERS = 12
CACHED_TOKENS = 2048
NEW_TOKENS = 224
POOL_FOLDER = Path("/dev/shm")  # noqa: S108 - what the pool itself uses
MODES = ("unthrottled", "blocking", "layerwise")


@dataclass(slots=True)
class Samples:
    """Milliseconds to the first token, by mode, round by round; and what the reports said."""

    unthrottled: list[float] = field(default_factory=list)
    blocking: list[float] = field(default_factory=list)
    layerwise: list[float] = field(default_factory=list)
    load_ms: list[float] = field(default_factory=list)
    waited_ms: list[float] = field(default_factory=list)

    @property
    def hidden(self) -> list[float]:
        """The share of each round."""
        rounds = zip(self.unthrottled, self.blocking, self.layerwise, strict=True)
        return [1 - (layerwise - base) / (blocking - base) for base, blocking, layerwise in rounds]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request took and what kvext said of it."""

    ttft_ms: float
    kvext: dict[str, Any]


class Engine:
    """A live engine whose connector's memory has a speed."""

    def __init__(self, model: Path, pool_folder: Path) -> None:
        """Start it."""
        from far_connector import far_connector  # noqa: PLC0415 - imports the engine: seconds
        from vllm import LLM, SamplingParams  # noqa: PLC0415

        self._llm = LLM(
            model=str(model),
            dtype="float32",
            max_model_len=4096,
            max_num_batched_tokens=4096,
            enforce_eager=True,
            block_size=32,
            kv_cache_memory_bytes=512 << 20,
            kv_transfer_config={
                "kv_connector": "FarConnector",
                "kv_connector_module_path": "far_connector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {
                    "pool_folder": str(pool_folder),
                    "pool_size": "1GiB",
                    "always_load": True,
                },
            },
        )
        self._sampling = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
        self._num_requests = 0
        self.connector = far_connector()

    def ask(self, tokens: Sequence[int]) -> Answer:
        """One request, of which the engine's own cache knows nothing."""
        core = self._llm.llm_engine
        self._llm.reset_prefix_cache()
        self._num_requests += 1
        begun_s = time.perf_counter()
        name = f"r{self._num_requests}"
        core.add_request(name, {"prompt_token_ids": list(tokens)}, self._sampling)
        ttft_ms = 0.0
        while True:
            for output in core.step():
                if not ttft_ms and output.outputs[0].token_ids:
                    ttft_ms = (time.perf_counter() - begun_s) * 1e3
                if output.finished:
                    return Answer(ttft_ms, dict(output.kv_transfer_params["kvext"]))


def measure(engine: Engine, num_rounds: int, bytes_per_s: float) -> Samples:
    """All rounds; the first, which warms up, does not count."""
    source = random.Random(7)  # noqa: S311 - reproducible, not secret
    cached = [source.randrange(3, 500) for _ in range(CACHED_TOKENS)]
    engine.ask(cached)
    samples = Samples()
    for at in range(num_rounds + 1):
        for mode in MODES if at % 2 else reversed(MODES):
            engine.connector.overlap_from(math.inf if mode == "blocking" else 0)
            engine.connector.pace_loads(0 if mode == "unthrottled" else bytes_per_s)
            end = [source.randrange(3, 500) for _ in range(NEW_TOKENS)]
            answer = engine.ask(cached + end)
            assert answer.kvext["pool_tokens"] == CACHED_TOKENS, answer.kvext
            if at == 0:
                continue
            getattr(samples, mode).append(answer.ttft_ms)
            if mode == "layerwise":
                assert answer.kvext["loads"] == {"layerwise": 1}, answer.kvext
                samples.load_ms.append(answer.kvext["load_ms"])
                samples.waited_ms.append(answer.kvext["load_wait_ms"])
    return samples


def figures_of(samples: Samples, gb_s: float) -> dict[str, object]:
    """Medians, the hidden share with its quartiles, and the check."""
    hidden = statistics.median(samples.hidden)
    pairs = zip(samples.waited_ms, samples.load_ms, strict=True)
    by_report = [1 - waited / load for waited, load in pairs]
    return {
        "memory": f"a model: loads paced to {gb_s:g} GB/s, asleep for the rest of the time",
        "median_ms": {
            name: round(statistics.median(values), 2) for name, values in asdict(samples).items()
        },
        "hidden_share": {
            "median": round(hidden, 3),
            "quartiles": _quartiles(samples.hidden),
            "of_medians": round(_share_of_medians(samples), 3),
        },
        "not_waited_for": {
            "median": round(statistics.median(by_report), 3),
            "quartiles": _quartiles(by_report),
        },
        "checks": {
            "hidden_share": {"value": round(hidden, 3), "bound": HIDDEN, "holds": hidden >= HIDDEN}
        },
        "model": {"layers": NUM_LAYERS, "cached_tokens": CACHED_TOKENS, "new_tokens": NEW_TOKENS},
        "samples_ms": {
            name: [round(value, 1) for value in values] for name, values in asdict(samples).items()
        },
    }


def _quartiles(values: Sequence[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4)
    return [round(low, 3), round(high, 3)]


def _share_of_medians(samples: Samples) -> float:
    base = statistics.median(samples.unthrottled)
    return 1 - (statistics.median(samples.layerwise) - base) / (
        statistics.median(samples.blocking) - base
    )


def main() -> None:
    """Measure, print, and keep the result beside the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--rounds", type=int, default=15, help="three requests each")
    parser.add_argument("--gb-s", type=float, default=1.0, help="speed of the far tier, a model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvext-overlap-", dir=POOL_FOLDER) as folder:
        model = tiny_llama(
            Path(folder) / "model",
            num_layers=NUM_LAYERS,
            hidden_size=512,
            num_heads=8,
            num_kv_heads=8,
            head_size=64,
        )
        samples = measure(Engine(model, Path(folder)), options.rounds, options.gb_s * 1e9)
    figures = figures_of(samples, options.gb_s)
    record("overlap", figures)
    if options.json:
        print(json.dumps(figures))
        return
    print(json.dumps({name: figures[name] for name in ("memory", "median_ms", "hidden_share")}))


if __name__ == "__main__":
    main()
