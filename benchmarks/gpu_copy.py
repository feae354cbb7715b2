"""Speed of the copy engine on a GPU, each figure beside plain memcpy measured in the same run.

usage: python benchmarks/gpu_copy.py [--device cuda | cpu] [--json]

Every case is compared with its oracle before it is timed. It needs torch and Triton, and a few
minutes; no engine. Without kvext's native core the figures of the pool are left out.
--device cpu runs everything in Triton's interpreter at toy sizes: it shows that the script works,
prints no speeds and records nothing.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from gpu_copy_bench import Bench, Sizes, Speed
from gpu_copy_host import pool_figures, region_figures
from results import record

from kvext.kernels import Route

KIB, MIB = 1 << 10, 1 << 20
GPU_SIZES = Sizes(
    tuple(KIB * size for size in (4, 16, 64, 256, 1024)), 32, 64 * MIB, 9, 4096, (16, 64, 128, 512)
)
TOY_SIZES = Sizes((4 * KIB, 16 * KIB), 2, 96 * KIB, 2, 64, (2, 8))


@dataclass(frozen=True, slots=True)
class Case:
    """One layout by one route; it was compared with the oracle, or there would be no case."""

    piece_kib: int
    run_bytes: int
    num_records: int
    route: str
    speed: Speed


def measure_cases(bench: Bench) -> list[Case]:
    """Every piece size by every route, and one size whose pieces are many runs."""
    layouts = [(piece_bytes, False) for piece_bytes in bench.sizes.piece_bytes]
    layouts.append((bench.sizes.piece_bytes[1], True))
    cases = []
    for piece_bytes, tokens_first in layouts:
        cache = bench.cache(piece_bytes, tokens_first=tokens_first)
        run_bytes = cache.kv.shapes[0].run_bytes
        for route in Route:
            if route is Route.PIECES and run_bytes != piece_bytes:
                continue
            speed = bench.speed(cache, bench.engine(cache, route))
            cases.append(
                Case(piece_bytes // KIB, run_bytes, len(cache.block_ids), str(route), speed)
            )
    return cases


def crossover_kib(cases: list[Case], gb_s: Callable[[Speed], float]) -> int | None:
    """Smallest piece that goes at least as fast one by one as packed; None if none does."""
    packed = {
        case.piece_kib: gb_s(case.speed)
        for case in cases
        if case.route == Route.STAGED and case.run_bytes == case.piece_kib * KIB
    }
    return min(
        (
            case.piece_kib
            for case in cases
            if case.route == Route.PIECES and gb_s(case.speed) >= packed[case.piece_kib]
        ),
        default=None,
    )


def program_figures(bench: Bench) -> list[dict[str, object]]:
    """What more programs bring, and what they cost whoever computes meanwhile."""
    cache = bench.cache(bench.sizes.piece_bytes[1])
    return [
        {
            "route": str(route),
            "programs": num_programs,
            **asdict(bench.speed(cache, bench.engine(cache, route, num_programs))),
            "matmul_slowdown": bench.slowdown(cache, bench.engine(cache, route, num_programs)),
        }
        for route in (Route.STAGED, Route.ZERO_COPY)
        for num_programs in bench.sizes.programs
    ]


def software(device: torch.device) -> dict[str, object]:
    """What it ran on."""
    import triton  # noqa: PLC0415 - after the environment is set

    is_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu else "cpu, Triton interpreted",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda if is_gpu else None,
    }


def with_floats(figures: Any, change: Callable[[float], float | None]) -> Any:
    """The same with every number that was timed changed: all of these are floats."""
    if isinstance(figures, dict):
        return {name: with_floats(value, change) for name, value in figures.items()}
    if isinstance(figures, list):
        return [with_floats(value, change) for value in figures]
    return change(figures) if isinstance(figures, float) else figures


def measure(device: torch.device) -> dict[str, object]:
    """All figures."""
    bench = Bench(device, GPU_SIZES if device.type == "cuda" else TOY_SIZES)
    torch.manual_seed(0)
    cases = measure_cases(bench)
    return {
        "software": software(device),
        "is_measured": device.type == "cuda",
        "all_cases_are_correct": True,  # else it had ended there
        "cases": [asdict(case) for case in cases],
        "crossover_kib": {
            "gather": crossover_kib(cases, lambda speed: speed.gather_gb_s),
            "scatter": crossover_kib(cases, lambda speed: speed.scatter_gb_s),
        },
        "programs": program_figures(bench),
        "registered_region": region_figures(bench.seconds, device),
        "pool": pool_figures(bench.seconds, bench.cache(bench.sizes.piece_bytes[1]).kv),
    }


def main() -> None:
    """Measure, print, and keep what a GPU gave."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read when the kernel is defined
    figures = measure(torch.device(options.device))
    if options.device == "cuda":
        figures = with_floats(figures, lambda value: round(value, 3))
        record("gpu_copy", figures)
    else:
        figures = with_floats(figures, lambda _: None)
        figures["crossover_kib"] = None
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
