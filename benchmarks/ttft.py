"""Time to first token of a real model over HTTP: cold, from the engine's own cache, from the pool.

usage: python benchmarks/ttft.py [--json] [--model FOLDER] [--rounds N] [--block-size N]

Each round asks one long question in all three ways, in one engine, with a memcpy of as many bytes
in between. Targets (ratios of medians; absolute figures move from run to run):
  cold / warm                >= 15
  warm                       <= local hit + bytes / (0.6 x memcpy) + 5 ms
  storing / cold             <= 0.01, as the engine's worker counts its time
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from results import record

from kvext.cxl import region_path
from kvext.testing.long_prompts import Messages, log_question, warm_up_question
from kvext.testing.serving import ServedEngine

COLD_TO_WARM = 15.0
STORE_TO_COLD = 0.01
MEMCPY_SHARE = 0.6
ALLOWANCE_MS = 5.0
REPEATS = 3
ANSWER_TOKENS = 4
POOL_FOLDER = Path("/dev/shm")  # noqa: S108 - what the pool itself uses
MODEL_SCRIPT = Path(__file__).parents[1] / "examples" / "smollm2.py"


@dataclass(slots=True)
class Samples:
    """Milliseconds, and what was moved; all lists grow round by round."""

    cold_ms: list[float] = field(default_factory=list)
    store_ms: list[float] = field(default_factory=list)
    local_hit_ms: list[float] = field(default_factory=list)
    warm_ms: list[float] = field(default_factory=list)
    load_ms: list[float] = field(default_factory=list)
    memcpy_ms: list[float] = field(default_factory=list)
    loaded_bytes: list[int] = field(default_factory=list)
    reused_tokens: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Check:
    """One target: `value` compared with `bound`."""

    value: float
    bound: float
    holds: bool

    def rounded(self) -> dict[str, float]:
        """As the results show it."""
        return {"value": round(self.value, 4), "bound": round(self.bound, 4), "holds": self.holds}


class Memcpy:
    """A copy out of shared memory into private memory, as a load is."""

    def __init__(self, folder: Path, num_bytes: int) -> None:
        """Reserve and touch both sides."""
        self._shared = np.memmap(folder / "memcpy", np.uint8, "w+", shape=num_bytes)
        self._shared[:] = 1
        self._private = np.ones(num_bytes, np.uint8)

    def ms(self) -> float:
        """Time of the best of three copies, which is the strictest measure for the load."""
        return min(self._once_ms() for _ in range(3))

    def _once_ms(self) -> float:
        start = time.perf_counter()
        np.copyto(self._private, self._shared)
        return (time.perf_counter() - start) * 1e3


def measure(engine: ServedEngine, num_rounds: int, folder: Path) -> Samples:
    """All rounds, each with a prompt of its own."""
    samples = Samples()
    engine.chat(warm_up_question(), max_tokens=8)
    memcpy: Memcpy | None = None
    for number in range(num_rounds):
        question = log_question(f"Station {number}")
        measure_cold(engine, question, samples)
        memcpy = memcpy or Memcpy(folder, engine.metrics().stored_bytes)
        for _ in range(REPEATS):
            samples.memcpy_ms.append(memcpy.ms())
            answer = engine.chat(question, ANSWER_TOKENS)
            samples.local_hit_ms.append(answer.ttft_s * 1e3)
            samples.memcpy_ms.append(memcpy.ms())
            measure_warm(engine, question, samples)
    return samples


def measure_cold(engine: ServedEngine, question: Messages, samples: Samples) -> None:
    """A prompt that neither the engine nor the pool has seen."""
    before = engine.metrics()
    answer = engine.chat(question, ANSWER_TOKENS)
    counted = engine.metrics_with(before, answer.prompt_tokens)
    assert not counted.local_hits
    assert not counted.external_hits
    samples.cold_ms.append(answer.ttft_s * 1e3)
    samples.store_ms.append(counted.store_s * 1e3)
    samples.prompt_tokens.append(answer.prompt_tokens)


def measure_warm(engine: ServedEngine, question: Messages, samples: Samples) -> None:
    """The same prompt after the engine has forgotten it: only the pool remembers."""
    engine.reset_prefix_cache()
    before = engine.metrics()
    answer = engine.chat(question, ANSWER_TOKENS)
    counted = engine.metrics_with(before, answer.prompt_tokens)
    assert not counted.local_hits
    assert counted.external_hits
    samples.warm_ms.append(answer.ttft_s * 1e3)
    samples.load_ms.append(counted.load_s * 1e3)
    samples.loaded_bytes.append(counted.loaded_bytes)
    samples.reused_tokens.append(counted.external_hits)


def figures_of(samples: Samples, memcpy_bytes: int) -> dict[str, object]:
    """Medians and the three checks."""
    median = {name: statistics.median(values) for name, values in asdict(samples).items()}
    bytes_a_ms = memcpy_bytes / median["memcpy_ms"]
    bound_ms = (
        median["local_hit_ms"] + median["loaded_bytes"] / (MEMCPY_SHARE * bytes_a_ms) + ALLOWANCE_MS
    )
    cold_to_warm = median["cold_ms"] / median["warm_ms"]
    store_to_cold = sum(samples.store_ms) / sum(samples.cold_ms)
    checks = {
        "cold_to_warm": Check(cold_to_warm, COLD_TO_WARM, cold_to_warm >= COLD_TO_WARM),
        "warm_ms": Check(median["warm_ms"], bound_ms, median["warm_ms"] <= bound_ms),
        "store_to_cold": Check(store_to_cold, STORE_TO_COLD, store_to_cold <= STORE_TO_COLD),
    }
    return {
        "median": {name: round(value, 2) for name, value in median.items()},
        "memcpy_gb_s": round(bytes_a_ms / 1e6, 2),
        "load_to_memcpy": round(median["loaded_bytes"] / median["load_ms"] / bytes_a_ms, 2),
        "checks": {name: check.rounded() for name, check in checks.items()},
        "samples_ms": {
            name: [round(value, 1) for value in values]
            for name, values in asdict(samples).items()
            if name.endswith("_ms")
        },
    }


def run(model: str, num_rounds: int, block_size: int) -> dict[str, object]:
    """Serve on a pool of its own, measure, and take everything away."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvext-ttft-")))
        shared = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="kvext-ttft-", dir=POOL_FOLDER)
        )
        command = ["kvext", "serve", model, "--pool", "1GiB", "--pool-folder", shared]
        command += ["--max-model-len=8192", "--kv-cache-memory-bytes=512M", "--enforce-eager"]
        command += [f"--block-size={block_size}"]
        engine = stack.enter_context(ServedEngine(command, log=folder / "engine.log", cores="0"))
        samples = measure(engine, num_rounds, Path(shared))
        assert region_path(Path(shared), "default").exists()
        memcpy_bytes = (Path(shared) / "memcpy").stat().st_size
    return {"block_size": block_size, **figures_of(samples, memcpy_bytes)}


def main() -> None:
    """Measure, print, and keep the result beside the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--model", help="a chat model's folder; SmolLM2-135M-Instruct by default")
    parser.add_argument("--rounds", type=int, default=5, help="prompts, three samples each")
    parser.add_argument("--block-size", type=int, default=32, help="of the engine, in tokens")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    model = options.model or subprocess.check_output([sys.executable, str(MODEL_SCRIPT)], text=True)
    figures = run(model.strip(), options.rounds, options.block_size)
    record("ttft", figures)
    if options.json:
        print(json.dumps(figures))
        return
    print(json.dumps({name: figures[name] for name in ("median", "memcpy_gb_s")}, indent=2))
    for name, check in dict(figures["checks"]).items():  # type: ignore[call-overload]
        print(f"{name}: {check['value']} (target {check['bound']}): {check['holds']}")


if __name__ == "__main__":
    main()
