"""Memory that the pool may take, and limits that end an engine which takes it."""

from kvext.config import format_bytes
from kvext.cxl.cgroup import Cgroup
from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Memory, Mount, Pools

__all__ = [
    "check_available_memory",
    "check_cgroup_memory",
    "check_far_memory",
    "check_huge_pages",
    "check_memlock",
    "check_reserved_huge_pages",
]

_OUTSIDE = (
    "have the agent make it (deploy/kubernetes), or run kvext pool create --size {size} outside "
    "this container"
)
_HUGE_MOUNT = frozenset({"always", "within_size"})


def check_available_memory(memory: Memory, pools: Pools) -> Finding:
    """Whether the host has the memory that its shared-memory folder promises."""
    fact = f"{format_bytes(memory.available_bytes)} available"
    if pools.wanted is None and pools.planned_bytes > memory.available_bytes:
        which = "automatic size" if pools.asked_bytes is None else "the size asked for"
        fact += f", but a pool of {which} takes {format_bytes(pools.planned_bytes)}"
        mend = "give the pool a smaller size: kvext serve --pool SIZE"
        return Finding("available-memory", Status.WARNING, fact, mend)
    return Finding("available-memory", Status.OK, fact)


def check_cgroup_memory(cgroup: Cgroup, pools: Pools) -> Finding:
    """Whether the memory limit leaves room for a pool that an engine in here would make."""
    if not cgroup.version:
        return Finding("cgroup-memory", Status.OK, "no memory controller")
    used = f"{format_bytes(cgroup.used_bytes)} in use (cgroup v{cgroup.version})"
    room_bytes = cgroup.room_bytes
    if cgroup.limit_bytes is None or room_bytes is None:
        return Finding("cgroup-memory", Status.OK, f"no limit, {used}")
    fact = f"limit {format_bytes(cgroup.limit_bytes)}, {used}"
    if pools.wanted is not None:
        return Finding("cgroup-memory", Status.OK, f"{fact}; the pool's memory is charged already")
    planned = format_bytes(pools.planned_bytes)
    outside = _OUTSIDE.format(size=planned.replace(" ", ""))
    if pools.planned_bytes > room_bytes:
        fact += f"; a pool of {planned} does not fit, and kvext refuses to make it in here"
        needed = format_bytes(cgroup.used_bytes + pools.planned_bytes)
        mend = f"{outside}; or raise the limit to more than {needed}; or --pool SIZE"
        return Finding("cgroup-memory", Status.ERROR, fact, mend)
    fact += "; a pool made in here is charged to this limit"
    return Finding("cgroup-memory", Status.NOTE, fact, outside)


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


def check_reserved_huge_pages(memory: Memory) -> Finding:
    """Whether memory lies reserved in a form that a pool cannot use."""
    idle = [pages for pages in memory.huge_pages if pages.num_free]
    if not idle:
        num_reserved = sum(pages.num_reserved for pages in memory.huge_pages)
        return Finding("reserved-huge-pages", Status.OK, f"{num_reserved} reserved, none idle")
    held = format_bytes(sum(pages.page_bytes * pages.num_free for pages in idle))
    fact = f"{held} reserved as huge pages and idle: a pool on tmpfs cannot use them"
    settings = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
    mend = "; ".join(
        f"echo {pages.num_reserved - pages.num_free} > {settings.format(pages.page_bytes >> 10)}"
        for pages in idle
    )
    lines = tuple(
        f"{format_bytes(pages.page_bytes)}: {pages.num_reserved} reserved, {pages.num_free} idle"
        for pages in idle
    )
    mend += ", unless another program is to have them"
    return Finding("reserved-huge-pages", Status.NOTE, fact, mend, lines)


def check_far_memory(memory: Memory) -> Finding:
    """Memory behind CXL or another bus: nodes without cores, and devices."""
    far = [node for node in memory.nodes if not node.has_cores and node.memory_bytes]
    devices = [device for device in memory.dax_devices if device.driver != "kmem"]
    nodes = f"{len(memory.nodes)} NUMA node{'' if len(memory.nodes) == 1 else 's'}"
    if not (far or devices):
        fact = f"{nodes}, each with cores; no DAX device"
        return Finding("far-memory", Status.OK, fact)
    fact = f"{nodes}, {len(far)} without cores; {len(devices)} DAX device(s) that are no node"
    lines = (
        *(f"node {node.number}, no cores, {format_bytes(node.memory_bytes)}" for node in far),
        *(
            f"{device.name}, {format_bytes(device.size_bytes)}, driver {device.driver or 'none'}"
            for device in devices
        ),
    )
    mends = []
    if far:
        numbers = ",".join(str(node.number) for node in far)
        mends.append(f"to put a pool there: numactl --membind={numbers} kvext pool create")
    if devices:
        names = " ".join(device.name for device in devices)
        mends.append(f"to make nodes of devices: daxctl reconfigure-device -m system-ram {names}")
    return Finding("far-memory", Status.NOTE, fact, "; ".join(mends), lines)
