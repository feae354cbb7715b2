"""The benchmark for a GPU runs from end to end without one, and then claims no speeds."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def floats_in(figures: Any) -> list[float]:
    if isinstance(figures, dict):
        return [found for value in figures.values() for found in floats_in(value)]
    if isinstance(figures, list):
        return [found for value in figures for found in floats_in(value)]
    return [figures] if isinstance(figures, float) else []


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_every_case_is_right_in_the_interpreter_and_nothing_is_called_measured() -> None:
    root = Path(__file__).parents[2]
    kept = root / "benchmarks" / "results" / "gpu_copy.json"
    before = kept.read_bytes() if kept.exists() else b""
    run = subprocess.run(
        [sys.executable, root / "benchmarks" / "gpu_copy.py", "--device", "cpu", "--json"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    figures = json.loads(run.stdout)
    assert figures["is_measured"] is False
    assert figures["all_cases_are_correct"] is True
    assert {case["route"] for case in figures["cases"]} == {"staged", "zero_copy", "pieces"}
    assert len(figures["pool"]["staged"]) == 5
    assert floats_in(figures) == []
    assert (kept.read_bytes() if kept.exists() else b"") == before
