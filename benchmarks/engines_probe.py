"""What a connector's calls cost the engine's worker, measured alike for every connector.

vLLM imports this module as the connector (`kv_connector_module_path`) of the engine that
`engines.py` serves, with kvext's or with LMCache's classes beside it. Each class does what its base
does; time is added up in a small file that the benchmark reads, so that no call waits for it.
"""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

__all__ = ["PROBE_FILE", "Spent", "create", "read"]

PROBE_FILE = "KVEXT_BENCH_PROBE"
"""Environment variable that names the file."""
_TOTALS = struct.Struct("<2d")
_LOAD_CALLS = ("start_load_kv", "wait_for_layer_load")
_SAVE_CALLS = ("save_kv_layer", "wait_for_save")

Spent = tuple[float, float]
"""Seconds in calls that load, seconds in calls that store, since the engine started."""


def create(path: Path) -> None:
    """Make the file, before the engine starts."""
    path.write_bytes(_TOTALS.pack(0.0, 0.0))


def read(path: Path) -> Spent:
    """The totals now."""
    load_s, save_s = _TOTALS.unpack(path.read_bytes())
    return load_s, save_s


def _timed(base: Any) -> Any:
    """A subclass that adds up what the worker's calls take."""
    with Path(os.environ[PROBE_FILE]).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), _TOTALS.size)

    def wrap(name: str, index: int) -> Any:
        method = getattr(base, name)

        def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
            begun_s = time.perf_counter()
            try:
                return method(self, *args, **kwargs)
            finally:
                totals = list(_TOTALS.unpack_from(shared))
                totals[index] += time.perf_counter() - begun_s
                _TOTALS.pack_into(shared, 0, *totals)

        return timed

    calls = {name: wrap(name, 0) for name in _LOAD_CALLS}
    calls |= {name: wrap(name, 1) for name in _SAVE_CALLS}
    return type(f"Timed{base.__name__}", (base,), calls)


def __getattr__(name: str) -> Any:
    # Each environment has one of the two.
    if name == "TimedKvextConnector":
        from kvext.vllm.connector import KvextConnector  # noqa: PLC0415

        return globals().setdefault(name, _timed(KvextConnector))
    if name == "TimedLMCacheMPConnector":
        from lmcache.integration.vllm.lmcache_mp_connector import (  # noqa: PLC0415
            LMCacheMPConnector,
        )

        return globals().setdefault(name, _timed(LMCacheMPConnector))
    raise AttributeError(name)
