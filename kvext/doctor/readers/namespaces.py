"""Reads how this process is confined, and where the processes of pools live."""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvext.cxl.kernel_files import read_text
from kvext.doctor.snapshot import Attached, Confinement

__all__ = ["read_attached", "read_confinement"]

_KINDS = ("pid", "mnt", "user", "time")
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
"""The system call's number; it changes nothing, and filters refuse it with those that do."""


def read_confinement(root: Path = Path("/")) -> Confinement:
    """Whom the kernel takes this process for."""
    lines = read_text(root / "proc/self/uid_map").splitlines()
    maps = [tuple(map(int, line.split())) for line in lines]
    status = read_text(root / "proc/self/status")
    return Confinement(
        user=os.geteuid(),
        user_map=tuple((inside, outside, count) for inside, outside, count in maps),
        seccomp_filtered="Seccomp:\t2" in status,
        policy_fault=_policy_fault(),
    )


def read_attached(attached: Iterable[tuple[int, int]]) -> tuple[Attached, ...]:
    """Look for the processes of pools among those that can be seen.

    Args:
        attached: Number and PID namespace of each, as it counts itself.
    """
    wanted = dict.fromkeys(attached, 0)
    numbers = {pid for pid, _ in wanted}
    for process in _processes():
        own = _own_number(process)
        if own in numbers and (found := (own, _namespace(process, "pid"))) in wanted:
            wanted[found] = int(process.name)
    return tuple(
        Attached(pid, space, seen_as, _apart(seen_as)) for (pid, space), seen_as in wanted.items()
    )


def _policy_fault() -> str:
    number = _GET_MEMPOLICY.get(platform.machine())
    if number is None:
        return ""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, None, None, 0, None, 0) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _own_number(process: Path) -> int:
    """A process's number in its own PID namespace; 0 if it is gone."""
    inner = read_text(process / "status").partition("NSpid:")[2].partition("\n")[0].split()
    return int(inner[-1]) if inner else 0


def _apart(pid: int) -> tuple[str, ...]:
    if not pid:
        return ()
    process, here = Path(f"/proc/{pid}"), Path("/proc/self")
    return tuple(
        kind for kind in _KINDS if _namespace(process, kind) not in (0, _namespace(here, kind))
    )


def _namespace(process: Path, kind: str) -> int:
    """The namespace's number; 0 if it may not be looked at, or the kernel has no such kind."""
    with contextlib.suppress(OSError):
        return (process / "ns" / kind).stat().st_ino
    return 0
