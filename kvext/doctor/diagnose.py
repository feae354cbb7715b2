"""From a host to its report: which checks there are and in what order people read them."""

from kvext.doctor.checks import (
    containers,
    cores,
    folder,
    leftovers,
    memory,
    pools,
    software,
    system,
)
from kvext.doctor.finding import Report, Section
from kvext.doctor.snapshot import Host

__all__ = ["diagnose"]


def diagnose(host: Host) -> Report:
    """Judge a host.

    Args:
        host: What readers saw.

    Returns:
        One finding for each check, whatever it found.
    """
    return Report((_software(host), _folder(host), _leftovers(host), _memory(host), _running(host)))


def _software(host: Host) -> Section:
    return Section(
        "software",
        (
            software.check_python(host.software),
            software.check_engine(host.software),
            software.check_plugin(host.software),
            software.check_plugin_allowed(host.software),
            software.check_native_core(host.software),
            system.check_kernel(host.system),
            system.check_digest_cache(host.cache),
        ),
    )


def _folder(host: Host) -> Section:
    return Section(
        "shared memory",
        (
            folder.check_folder(host.folder),
            folder.check_file_system(host.folder),
            folder.check_folder_size(host.folder, host.pools),
            folder.check_folder_free(host.folder, host.pools),
            folder.check_locks(host.folder),
            pools.check_pool(host.pools, host.software),
            containers.check_pool_access(host.pools, host.confinement),
            pools.check_other_pools(host.pools),
        ),
    )


def _leftovers(host: Host) -> Section:
    return Section(
        "left over",
        (
            leftovers.check_unfinished_pools(host.files),
            leftovers.check_idle_pools(host.pools),
            leftovers.check_engine_leftovers(host.files, host.system),
            leftovers.check_semaphores(host.files, host.system),
            leftovers.check_other_leftovers(host.files, host.system),
        ),
    )


def _memory(host: Host) -> Section:
    return Section(
        "memory",
        (
            memory.check_available_memory(host.memory, host.pools),
            memory.check_cgroup_memory(host.cgroup, host.pools),
            memory.check_memlock(host.memory),
            memory.check_huge_pages(host.memory, host.folder.mount),
            memory.check_reserved_huge_pages(host.memory),
            memory.check_far_memory(host.memory),
        ),
    )


def _running(host: Host) -> Section:
    return Section(
        "namespaces and cores",
        (
            system.check_pid_namespace(host.system, host.pools),
            containers.check_namespaces(host.attached),
            containers.check_user_namespace(host.confinement),
            containers.check_system_calls(host.confinement),
            cores.check_cores(host.cores, host.engines),
            cores.check_engine_binding(host.cores, host.engines),
        ),
    )
