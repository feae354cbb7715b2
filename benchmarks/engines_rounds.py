"""Time to first token of every system in turns: cold, from the engine's own cache, from the store.

A round asks one long question that no system has seen. Each system in its turn computes it, then
answers it again and again from its own cache and, after that was emptied, from its store. So what
disturbs the machine disturbs all of them.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engines_systems import System
from spread import Distribution
from ttft import Memcpy

from kvext.testing.engine_metrics import EngineMetrics
from kvext.testing.long_prompts import Messages, log_question, warm_up_question

__all__ = ["Samples", "figures_of", "measure"]

ANSWER_TOKENS = 4
LOG_DAYS = 32
REPEATS = 3
FORGET_DEADLINE_S = 60.0
RETRY_S = 0.2


@dataclass(slots=True)
class Samples:
    """What one system did; pairs in `local_ms`, `memcpy_gb_s` and `warm_ms` follow one another."""

    cold_ms: list[float] = field(default_factory=list)
    local_ms: list[float] = field(default_factory=list)
    warm_ms: list[float] = field(default_factory=list)
    memcpy_gb_s: list[float] = field(default_factory=list)
    store_ms: list[float] = field(default_factory=list)
    load_ms: list[float] = field(default_factory=list)
    own_load_ms: list[float] = field(default_factory=list)
    reused_tokens: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: its time to the first token, what was counted and spent meanwhile."""

    ttft_ms: float
    prompt_tokens: int
    counted: EngineMetrics
    load_ms: float
    store_ms: float


class _TimedMemcpy:
    """A copy of as many bytes out of shared memory."""

    def __init__(self, folder: Path, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._memcpy = Memcpy(folder, num_bytes)

    def gb_s(self) -> float:
        return self._num_bytes / self._memcpy.ms() / 1e6


def measure(
    systems: Sequence[System], num_rounds: int, memory: Path, token_bytes: int
) -> dict[str, Samples]:
    """All rounds; who begins moves on from round to round."""
    samples = {system.name: Samples() for system in systems}
    for system in systems:
        system.engine.chat(warm_up_question(), ANSWER_TOKENS)
    memcpy: _TimedMemcpy | None = None
    for number in range(num_rounds):
        question = log_question(f"Station {number}", days=LOG_DAYS)
        for turn in range(len(systems)):
            system = systems[(number + turn) % len(systems)]
            own = samples[system.name]
            _measure_cold(system, question, own)
            memcpy = memcpy or _TimedMemcpy(memory, own.prompt_tokens[0] * token_bytes)
            for _ in range(REPEATS):
                _measure_hits(system, question, own, memcpy)
    return samples


def _measure_cold(system: System, question: Messages, samples: Samples) -> None:
    asked = _ask(system, question)
    assert not asked.counted.local_hits
    assert not asked.counted.external_hits
    samples.cold_ms.append(asked.ttft_ms)
    samples.store_ms.append(asked.store_ms)
    samples.prompt_tokens.append(asked.prompt_tokens)


def _measure_hits(
    system: System, question: Messages, samples: Samples, memcpy: _TimedMemcpy
) -> None:
    local = _ask(system, question)
    assert local.counted.local_hits
    samples.local_ms.append(local.ttft_ms)
    if system.probe is None:
        return
    samples.memcpy_gb_s.append(memcpy.gb_s())
    warm = _ask_forgotten(system, question)
    samples.warm_ms.append(warm.ttft_ms)
    samples.load_ms.append(warm.load_ms)
    samples.own_load_ms.append(warm.counted.load_s * 1e3)
    samples.reused_tokens.append(warm.counted.external_hits)


def _ask_forgotten(system: System, question: Messages) -> Asked:
    """Once the engine's own cache is empty, which it refuses while a store reads from it."""
    end_s = time.monotonic() + FORGET_DEADLINE_S
    while True:
        system.engine.reset_prefix_cache()
        asked = _ask(system, question)
        if not asked.counted.local_hits:
            assert asked.counted.external_hits, f"{system.name} found nothing in its store"
            return asked
        if time.monotonic() > end_s:
            raise TimeoutError(f"{system.name} does not give up its own prefix cache")
        time.sleep(RETRY_S)


def _ask(system: System, question: Messages) -> Asked:
    before, (load_s, store_s) = system.engine.metrics(), system.spent()
    answer = system.engine.chat(question, ANSWER_TOKENS)
    counted = system.engine.metrics_with(before, answer.prompt_tokens)
    load_after_s, store_after_s = system.spent()
    return Asked(
        answer.ttft_s * 1e3,
        answer.prompt_tokens,
        counted,
        (load_after_s - load_s) * 1e3,
        (store_after_s - store_s) * 1e3,
    )


def figures_of(samples: Samples, token_bytes: int, *, is_blocking: bool) -> dict[str, Any]:
    """Medians with their spread.

    Args:
        samples: Of one system.
        token_bytes: KV of one token.
        is_blocking: Whether the connector copies within the calls that are timed.
    """
    figures: dict[str, Any] = {
        "prompt_tokens": statistics.median(samples.prompt_tokens),
        "cold_ms": asdict(Distribution.of(samples.cold_ms, 1)),
        "local_hit_ms": asdict(Distribution.of(samples.local_ms, 1)),
    }
    if not samples.warm_ms:
        return figures
    pairs = zip(samples.warm_ms, samples.local_ms, strict=True)
    over_local_ms = [warm - local for warm, local in pairs]
    reused_tokens = statistics.median(samples.reused_tokens)
    reused_bytes = round(reused_tokens * token_bytes)
    figures |= {
        "warm_ms": asdict(Distribution.of(samples.warm_ms, 1)),
        "warm_over_local_ms": asdict(Distribution.of(over_local_ms, 1)),
        "reused_tokens": reused_tokens,
        "reused_bytes": reused_bytes,
        "memcpy_gb_s": asdict(Distribution.of(samples.memcpy_gb_s, 2)),
        "load_outside_gb_s": _gb_s_outside(reused_bytes, statistics.median(over_local_ms)),
    }
    if is_blocking:
        figures["load_gb_s"] = _gb_s(reused_bytes, samples.load_ms)
        figures["store_gb_s"] = _gb_s(reused_bytes, samples.store_ms)
    if any(samples.own_load_ms):
        figures["load_reported_gb_s"] = _gb_s(reused_bytes, samples.own_load_ms)
    return figures


def _gb_s(num_bytes: int, times_ms: Sequence[float]) -> dict[str, float]:
    return asdict(Distribution.of([num_bytes / time_ms / 1e6 for time_ms in times_ms], 2))


def _gb_s_outside(num_bytes: int, over_local_ms: float) -> float | None:
    """None where a hit in the store came as soon as one in the engine's own cache."""
    return round(num_bytes / over_local_ms / 1e6, 2) if over_local_ms > 0 else None
