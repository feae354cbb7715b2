"""One model served by plain vLLM, by kvext and by LMCache's multi-process server. CPU engines only.

usage: python benchmarks/engines.py [--json] [--quick] [--peer-venv FOLDER] [--every-mode]

FOLDER is an environment that benchmarks/lmcache_venv.sh has made; without it LMCache is skipped.
All engines run side by side and answer in turns; connectors' calls are timed by the same probe.
LMCache gets its best mode on a CPU: the engine copies, over shared memory. --every-mode adds that
in which its server copies, which then disturbs the others.
Targets (ratios; absolute figures move from run to run):
  load        kvext's bandwidth >= 2 x that of LMCache's best mode
  warm        kvext: <= the engine's own hit + bytes / (0.6 x memcpy, the fastest of the run) + 5 ms
  stall       kvext: <= 50 ms when a process dies that holds pins and the lock
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines_rounds import Samples, figures_of, measure
from engines_stall import stall_of
from engines_systems import ENGINE_OPTIONS, LMCACHE_MODES, System, serve_all
from results import record
from spread import Check

from kvext.testing.models import tiny_llama

NUM_LAYERS, NUM_KV_HEADS, HEAD_SIZE = 16, 4, 64
TOKEN_BYTES = NUM_LAYERS * 2 * NUM_KV_HEADS * HEAD_SIZE * 2  # bfloat16
BLOCK_TOKENS = 128  # what vLLM takes on a CPU by itself
LOAD_TO_LMCACHE = 2.0
MEMCPY_SHARE = 0.6
ALLOWANCE_MS = 5.0
STALL_MS = 50.0
# LMCache's server copies in this mode, so the time of the worker's calls says nothing of it.
NOT_BLOCKING = "lmcache_lmcache_driven"


def written_model(folder: Path) -> Path:
    """A random Llama of 16 layers with grouped queries: 16 KiB of KV a token."""
    return tiny_llama(
        folder,
        "bfloat16",
        num_layers=NUM_LAYERS,
        num_kv_heads=NUM_KV_HEADS,
        head_size=HEAD_SIZE,
    )


def checks_of(systems: Mapping[str, Any], stalls: Mapping[str, Any]) -> dict[str, Check]:
    """The three targets; the first needs a peer."""
    kvext = systems["kvext"]
    copy_ms = kvext["reused_bytes"] / (MEMCPY_SHARE * kvext["memcpy_gb_s"]["greatest"] * 1e6)
    over_ms = kvext["warm_over_local_ms"]["median"]
    checks = {
        "warm_over_local_ms": Check.that(over_ms, "<=", copy_ms + ALLOWANCE_MS),
        "stall_ms": Check.that(stalls["kvext"]["stall_ms"], "<=", STALL_MS),
    }
    peers = [load_gb_s(found) for name, found in systems.items() if name.startswith("lmcache")]
    if peers:
        ratio = load_gb_s(kvext) / max(peers)
        checks["load_to_lmcache"] = Check.that(ratio, ">=", LOAD_TO_LMCACHE)
    return checks


def load_gb_s(found: Mapping[str, Any]) -> float:
    """As the probe saw it, or the system itself if that is less: it may copy while steps compute.

    Only the view from outside is left where the engine's worker does not copy at all.
    """
    seen = [found[name]["median"] for name in ("load_gb_s", "load_reported_gb_s") if name in found]
    return float(min(seen, default=found["load_outside_gb_s"] or 0.0))


def figures(
    systems: Mapping[str, Any], stalls: Mapping[str, Any], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """All that is kept."""
    return {
        "label": "CPU engines only",
        "model": {"num_layers": NUM_LAYERS, "token_bytes": TOKEN_BYTES},
        "engine_options": list(ENGINE_OPTIONS),
        "systems": dict(systems),
        "stalls": dict(stalls),
        "skipped": dict(skipped),
        "checks": {name: asdict(check) for name, check in checks_of(systems, stalls).items()},
    }


def why_without(peer_venv: Path | None) -> str:
    """Why LMCache cannot take part; empty if it can."""
    if peer_venv is None:
        return "no --peer-venv; benchmarks/lmcache_venv.sh makes one"
    if not (peer_venv / "bin" / "lmcache").exists():
        return f"{peer_venv} has no bin/lmcache; benchmarks/lmcache_venv.sh makes it"
    return ""


def run(
    peer_venv: Path | None, modes: Sequence[str], num_rounds: int, window_s: float
) -> dict[str, Any]:
    """Serve, measure, take everything away."""
    reason = why_without(peer_venv)
    if reason:
        print(f"LMCache is skipped: {reason}", file=sys.stderr)
    skipped = {"lmcache": reason} if reason else {}
    with tempfile.TemporaryDirectory(prefix="kvext-engines-") as name:
        folder = Path(name)
        model = written_model(folder / "model")
        with serve_all(model, None if reason else peer_venv, modes, folder) as systems:
            samples = _measured(systems, num_rounds)
            stalls = {one.name: stall_of(one, window_s, BLOCK_TOKENS) for one in systems}
    return figures(samples, stalls, skipped)


def _measured(systems: list[System], num_rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kvext-memcpy-") as memory:
        found: dict[str, Samples] = measure(systems, num_rounds, Path(memory), TOKEN_BYTES)
    return {
        name: figures_of(samples, TOKEN_BYTES, is_blocking=name != NOT_BLOCKING)
        for name, samples in found.items()
    }


def main() -> None:
    """Measure, print, and keep the result beside the others unless it was a quick look."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="two rounds; not recorded")
    parser.add_argument("--peer-venv", type=Path, help="environment with LMCache")
    parser.add_argument("--every-mode", action="store_true", help="LMCache in both ways")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    peer_venv = options.peer_venv.absolute() if options.peer_venv else None
    modes = LMCACHE_MODES if options.every_mode else LMCACHE_MODES[:1]
    found = run(peer_venv, modes, *((2, 6.0) if options.quick else (5, 10.0)))
    if not options.quick:
        record("engines", found)
    if options.json:
        print(json.dumps(found))
        return
    print(json.dumps({key: found[key] for key in ("label", "systems", "stalls")}, indent=2))
    for name, check in found["checks"].items():
        print(f"{name}: {check['value']} (target {check['bound']}): {check['holds']}")


if __name__ == "__main__":
    main()
