"""Memory that the pool may take, and limits that end an engine which takes it."""

from kvext.config import format_bytes
from kvext.cxl.cgroup import Cgroup
from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Memory, Mount, Pools

__all__ = ["check_available_memory", "check_cgroup_memory", "check_huge_pages", "check_memlock"]

_OUTSIDE = "kvext pool create --size SIZE, run outside the limited container"
_HUGE_MOUNT = frozenset({"always", "within_size"})


def check_available_memory(memory: Memory, pools: Pools) -> Finding:
    """Whether the host has the memory that its shared-memory folder promises."""
    fact = f"{format_bytes(memory.available_bytes)} available"
    if pools.wanted is None and pools.automatic_bytes > memory.available_bytes:
        fact += f", but a pool of automatic size takes {format_bytes(pools.automatic_bytes)}"
        mend = "give the pool a size: kvext serve --pool SIZE"
        return Finding("available-memory", Status.WARNING, fact, mend)
    return Finding("available-memory", Status.OK, fact)


def check_cgroup_memory(cgroup: Cgroup, pools: Pools) -> Finding:
    """Whether the memory limit leaves room for a pool that an engine in here would make."""
    if not cgroup.version:
        return Finding("cgroup-memory", Status.OK, "no memory controller")
    used = f"{format_bytes(cgroup.used_bytes)} in use (cgroup v{cgroup.version})"
    if cgroup.limit_bytes is None:
        return Finding("cgroup-memory", Status.OK, f"no limit, {used}")
    fact = f"limit {format_bytes(cgroup.limit_bytes)}, {used}"
    if pools.wanted is not None:
        return Finding("cgroup-memory", Status.OK, f"{fact}; the pool's memory is charged already")
    room_bytes = max(cgroup.limit_bytes - cgroup.used_bytes, 0)
    if pools.automatic_bytes > room_bytes:
        fact += (
            f"; a pool of {format_bytes(pools.automatic_bytes)} made in here does not fit, and "
            "the kernel would kill its maker"
        )
        return Finding("cgroup-memory", Status.WARNING, fact, f"{_OUTSIDE}; or --pool SIZE")
    fact += "; a pool made in here is charged to this limit"
    return Finding("cgroup-memory", Status.NOTE, fact, _OUTSIDE)


def check_memlock(memory: Memory) -> Finding:
    """How much memory a process may lock; kvext locks none."""
    if memory.memlock_bytes is None:
        return Finding("memlock", Status.OK, "no limit on locked memory")
    fact = (
        f"at most {format_bytes(memory.memlock_bytes)} of locked memory; kvext locks none, RDMA "
        "transfers beside it do"
    )
    return Finding("memlock", Status.NOTE, fact, "ulimit -l unlimited; docker: --ulimit memlock=-1")


def check_huge_pages(memory: Memory, mount: Mount) -> Finding:
    """Whether the pool's folder uses huge pages; only mounts of memory can."""
    if mount.kind != "tmpfs":
        return Finding("huge-pages", Status.OK, f"{mount.kind} has no setting for them")
    chosen = next(
        (o.removeprefix("huge=") for o in mount.options if o.startswith("huge=")), "never"
    )
    # The kernel's "deny" and "force" overrule every mount.
    overruled = memory.shmem_huge_pages in {"deny", "force"}
    fact = f"mount option huge={chosen}"
    if overruled:
        fact += f", overruled by the kernel's shmem_enabled={memory.shmem_huge_pages}"
    if memory.shmem_huge_pages == "force" or (chosen in _HUGE_MOUNT and not overruled):
        return Finding("huge-pages", Status.OK, fact)
    fact += ": each process maps the pool in pages of the smallest size"
    if memory.shmem_huge_pages == "deny":
        mend = "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled, then look again"
    else:
        mend = f"mount -o remount,huge=within_size {mount.point}, before the pool is made"
    return Finding("huge-pages", Status.NOTE, fact, mend)
