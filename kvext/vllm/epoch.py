"""Since when may an engine in this process have read its weights?

A digest names the bytes that are on disk when it is computed. They are the engine's bytes only
if the files have not changed since before the engine read them, so the latest moment at which
surely no engine of this process had begun to read is kept here.
"""

import threading
import time

import psutil  # type: ignore[import-untyped] # its stubs are not worth a dependency

__all__ = ["LoadEpoch", "mark_idle", "process_epoch"]

_CLOCK_TICK_S = 0.02
"""The file system's timestamps lag behind the clock by up to one tick (10 ms at HZ=100)."""


class LoadEpoch:
    """Remembers the last moment without an engine, at the earliest the process's start."""

    __slots__ = ("_idle_s", "_lock")

    def __init__(self, begun_s: float) -> None:
        """Begin with the process's start, in seconds since 1970."""
        self._idle_s = begun_s
        self._lock = threading.Lock()

    @property
    def begun_ns(self) -> int:
        """Files with a later change may not be what the engine read; nanoseconds since 1970."""
        return int((self._idle_s - _CLOCK_TICK_S) * 1e9)

    def mark_idle(self, now_s: float) -> None:
        """Note that no engine lives in this process at `now_s`."""
        with self._lock:
            self._idle_s = max(self._idle_s, now_s)


_epoch: LoadEpoch | None = None
_lock = threading.Lock()


def process_epoch() -> LoadEpoch:
    """This process's epoch."""
    global _epoch  # noqa: PLW0603 - one process has one epoch
    with _lock:
        if _epoch is None:
            _epoch = LoadEpoch(psutil.Process().create_time())
        return _epoch


def mark_idle() -> None:
    """Note that no engine lives in this process now: at registration and after a shutdown."""
    process_epoch().mark_idle(time.time())
