"""Kernel, PID namespace and the cache of digests."""

import re

from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Cache, Pools, System

__all__ = ["check_digest_cache", "check_kernel", "check_pid_namespace"]

_POPULATE_SINCE = (5, 14)
"""MADV_POPULATE_WRITE."""


def check_kernel(system: System) -> Finding:
    """Whether the kernel is Linux, and new enough to fill a pool without touching each page."""
    fact = f"{system.name} {system.release}, {system.machine}"
    if system.name != "Linux":
        return Finding("kernel", Status.ERROR, f"{fact}: pools need Linux", "run it on Linux")
    match = re.match(r"(\d+)\.(\d+)", system.release)
    if match is None or (int(match[1]), int(match[2])) < _POPULATE_SINCE:
        fact += " has no MADV_POPULATE_WRITE: an engine's first stores fault page by page"
        return Finding("kernel", Status.NOTE, fact, "Linux 5.14 or newer")
    return Finding("kernel", Status.OK, fact)


def check_pid_namespace(system: System, pools: Pools) -> Finding:
    """Whether this is a container, and who shares pools across its border."""
    spaces = {space for pool in pools.found for _, space in pool.pids}
    sharing = f"pools are attached from {len(spaces)} PID namespaces" if len(spaces) > 1 else ""
    if system.in_first_pid_namespace:
        fact = "; ".join(filter(None, ("the host's own", sharing)))
        return Finding("pid-namespace", Status.OK, fact)
    fact = "; ".join(
        filter(None, ("inside a container: processes outside it are not seen", sharing))
    )
    mend = (
        "to share pools between containers, give them one folder: --ipc=host, or the same "
        "volume at /dev/shm; pids may differ"
    )
    return Finding("pid-namespace", Status.NOTE, fact, mend)


def check_digest_cache(cache: Cache) -> Finding:
    """Whether digests of weights can be kept from one start to the next."""
    if not cache.writable:
        fact = f"{cache.path} may not be written: each start reads the weights to name them"
        mend = "export XDG_CACHE_HOME=FOLDER with a folder that outlives the engine"
        return Finding("digest-cache", Status.WARNING, fact, mend)
    return Finding("digest-cache", Status.OK, f"{cache.path} can be written")
