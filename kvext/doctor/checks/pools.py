"""The pool that was asked for, and its neighbours in the folder."""

from shlex import quote

from kvext.config import format_bytes
from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Pools, PoolSeen, Software

__all__ = ["check_other_pools", "check_pool"]


def check_pool(pools: Pools, software: Software) -> Finding:
    """Whether an engine could attach to the pool that was asked for."""
    if not software.instruction_sets:
        return Finding("pool", Status.NOTE, "not looked at", "mend native-core first")
    pool = pools.wanted
    if pool is None:
        fact = f"none at {pools.path} yet: the first engine makes it"
        if pools.automatic_bytes:
            fact += f", of {format_bytes(pools.automatic_bytes)} unless it is told a size"
        return Finding("pool", Status.OK, fact)
    if pool.fault:
        # Messages of the error tree are "fact; remedy".
        fact, _, mend = pool.fault.partition("; ")
        return Finding("pool", Status.ERROR, fact, mend)
    fact = (
        f"{pool.path}, {format_bytes(pool.region_bytes)}, {pool.num_committed:,} blocks, "
        f"{len(pool.pids)} attached"
    )
    if pool.bypassed:
        fact += "; bypassed: engines neither load from it nor store into it"
        return Finding("pool", Status.WARNING, fact, f"kvext pool bypass off {pool.arguments}")
    return Finding("pool", Status.OK, fact)


def check_other_pools(pools: Pools) -> Finding:
    """Whether other pools in the folder cannot be attached, and whether another kvext can."""
    faulty = [pool for pool in pools.found if pool.fault and pool.path != pools.path]
    if not faulty:
        return Finding("other-pools", Status.OK, "none that could not be attached")
    lines = tuple(f"{pool.fault}{'; in use' if pool.locked else ''}" for pool in faulty)
    held = format_bytes(sum(pool.region_bytes for pool in faulty))
    mends = "; ".join(dict.fromkeys(_mend(pool) for pool in faulty))
    if all(pool.of_other_format and pool.locked for pool in faulty):
        fact = f"{len(faulty)} of another kvext whose engines still run, {held}"
        return Finding("other-pools", Status.NOTE, fact, mends, lines)
    fact = f"{len(faulty)} that cannot be attached, {held}"
    return Finding("other-pools", Status.WARNING, fact, mends, lines)


def _mend(pool: PoolSeen) -> str:
    if pool.of_other_format:
        # `kvext pool rm` removes the pool of its own format.
        when = "when its last engine is gone: " if pool.locked else ""
        return f"{when}rm {quote(str(pool.path))}"
    return pool.fault.partition("; ")[2]
