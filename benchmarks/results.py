"""Keeps each benchmark's last figures in `results/`, with what they were measured on."""

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["record"]

FOLDER = Path(__file__).parent / "results"


def record(name: str, figures: Mapping[str, object]) -> Path:
    """Write `results/<name>.json` and return its path."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    context = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
    }
    path.write_text(json.dumps({"context": context, "figures": figures}, indent=2) + "\n")
    return path


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
