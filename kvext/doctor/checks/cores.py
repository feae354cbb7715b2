"""Cores, and engines that were bound to the same ones.

By default every vLLM for CPU binds its threads to the first cores that it finds, whatever other
engines do: two of them then share one core while others idle.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise

from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Cores, EngineProcess

__all__ = ["check_cores", "check_engine_binding"]

_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"


def check_cores(cores: Cores, engines: Sequence[EngineProcess]) -> Finding:
    """Which cores this process may use, and which of them no engine is bound to."""
    taken = frozenset[int]().union(*(engine.cores for engine in _bound(cores, engines)))
    free = cores.allowed - taken
    fact = (
        f"{len(cores.allowed)} of {cores.num_online} may be used, load {cores.load:.1f}; "
        f"bound to no engine: {_ranges(free) or 'none'}"
    )
    if cores.quota is not None and cores.quota < len(cores.allowed):
        fact += f"; but a quota of {cores.quota:g} cores stops threads in between"
        whole = sorted(cores.allowed)[: max(int(cores.quota), 1)]
        mend = f"docker --cpuset-cpus instead of --cpus, or {_VARIABLE}={_ranges(whole)}"
        return Finding("cores", Status.NOTE, fact, mend)
    if not free:
        return Finding("cores", Status.NOTE, fact, "leave a core for the schedulers of the engines")
    return Finding("cores", Status.OK, fact)


def check_engine_binding(cores: Cores, engines: Sequence[EngineProcess]) -> Finding:
    """Whether engines that compute on the CPU got in each other's way."""
    on_cpu = [engine for engine in engines if not engine.on_gpu]
    lines = tuple(
        f"pid {engine.pid} ({engine.title}): {_ranges(engine.cores)}" for engine in on_cpu
    )
    bound = _bound(cores, on_cpu)
    if overlap := _overlap(bound):
        fact = f"{len(bound)} engine processes bound, several to core {_ranges(overlap)}"
        return Finding("engine-binding", Status.WARNING, fact, _split(cores, len(on_cpu)), lines)
    if len(on_cpu) > len(bound) and len(on_cpu) > 1:
        fact = f"{len(on_cpu)} engine processes, {len(on_cpu) - len(bound)} of them not bound"
        return Finding("engine-binding", Status.NOTE, fact, _split(cores, len(on_cpu)), lines)
    fact = f"engine processes on the CPU: {len(on_cpu)}"
    return Finding("engine-binding", Status.OK, fact, details=lines)


def _bound(cores: Cores, engines: Sequence[EngineProcess]) -> list[EngineProcess]:
    """Engines that may not use all cores that are to be had."""
    return [engine for engine in engines if not (engine.on_gpu or engine.cores >= cores.allowed)]


def _overlap(bound: Sequence[EngineProcess]) -> frozenset[int]:
    return frozenset[int]().union(*(a.cores & b.cores for a, b in combinations(bound, 2)))


def _split(cores: Cores, num_engines: int) -> str:
    """One value of the variable for each engine, as even as the cores allow."""
    allowed = sorted(cores.allowed)
    if num_engines > len(allowed):
        return f"fewer engines, or more cores: {num_engines} share {len(allowed)}"
    marks = [len(allowed) * n // num_engines for n in range(num_engines + 1)]
    shares = [_ranges(allowed[a:b]) for a, b in pairwise(marks)]
    return "start them with " + ", ".join(f"{_VARIABLE}={share}" for share in shares)


def _ranges(cores: Sequence[int] | frozenset[int]) -> str:
    """Core numbers as the kernel writes them: 0-3,8."""
    spans: list[tuple[int, int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], core)
        else:
            spans.append((core, core))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
