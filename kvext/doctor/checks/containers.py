"""The borders of a container: users, namespaces and refused calls, as far as pools cross them."""

from collections.abc import Sequence

from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Attached, Confinement, Pools

__all__ = [
    "check_namespaces",
    "check_pool_access",
    "check_system_calls",
    "check_user_namespace",
]

_ALL_USERS = 2**32 - 1
_UNMAPPED_USER = 65534
"""What the kernel shows for an owner who has no number in this user namespace."""


def check_pool_access(pools: Pools, confinement: Confinement) -> Finding:
    """Whether this user may use the pool's file, and which users may."""
    access = pools.wanted.access if pools.wanted is not None else None
    if access is None:
        fact = f"a pool made by this user belongs to uid {confinement.user} alone"
        return Finding("pool-access", Status.OK, fact)
    fact = f"the pool belongs to uid {access.user}, mode {access.mode:04o}"
    if access.usable:
        return Finding("pool-access", Status.OK, f"{fact}; uid {confinement.user} may use it")
    fact += f"; uid {confinement.user} may not read and write it"
    if access.user == _UNMAPPED_USER and not _is_whole(confinement):
        mend = "give this container the user mapping of the pool's maker; see user-namespace"
    else:
        mend = (
            f"run the engine as the owner (docker --user {access.user}; Kubernetes: runAsUser: "
            f"{access.user}), or as root: chown {confinement.user} {pools.path}"
        )
    return Finding("pool-access", Status.ERROR, fact, mend)


def check_namespaces(attached: Sequence[Attached]) -> Finding:
    """From which namespaces pools are used; they may differ, liveness does not depend on them."""
    apart = [process for process in attached if process.apart]
    unseen = [process for process in attached if not process.seen_as]
    together = len(attached) - len(apart) - len(unseen)
    lines = tuple(map(_describe, attached))
    fact = f"{len(attached)} processes attached to pools"
    if attached:
        fact += f": {together} in the namespaces of this one, {len(apart)} in others"
    if unseen:
        fact += f", {len(unseen)} not seen from here"
        mend = "nothing for the pool; to see them: docker run --pid=host ... kvext doctor"
        return Finding("namespaces", Status.NOTE, fact, mend, lines)
    return Finding("namespaces", Status.OK, fact, details=lines)


def check_user_namespace(confinement: Confinement) -> Finding:
    """Whether numbers of users mean the same here as outside."""
    if _is_whole(confinement):
        return Finding("user-namespace", Status.OK, "users have the host's numbers")
    lines = tuple(
        f"uids {inside}-{inside + count - 1} here are {outside}-{outside + count - 1} outside"
        for inside, outside, count in confinement.user_map
    )
    outer = _outer(confinement)
    fact = f"uid {confinement.user} here is " + (
        "nobody outside" if outer is None else f"uid {outer} outside"
    )
    mend = (
        "a pool's file belongs to the outer uid: give all its engines one mapping (Kubernetes: "
        "hostUsers: true; docker: --userns=host)"
    )
    return Finding("user-namespace", Status.NOTE, fact, mend, lines)


def check_system_calls(confinement: Confinement) -> Finding:
    """Whether a filter of system calls stands between an engine and its memory."""
    filtered = "a seccomp filter" if confinement.seccomp_filtered else "no seccomp filter"
    if confinement.policy_fault:
        fact = f"{filtered}; memory policies are refused: {confinement.policy_fault}"
        mend = (
            "engines on CPUs bind memory to nodes: docker --cap-add SYS_NICE; Kubernetes: "
            "securityContext.capabilities.add: [SYS_NICE]"
        )
        return Finding("system-calls", Status.NOTE, fact, mend)
    return Finding("system-calls", Status.OK, f"{filtered}; memory policies work")


def _describe(process: Attached) -> str:
    where = f"pid {process.pid} of PID namespace {process.pid_namespace}"
    if not process.seen_as:
        return f"{where}: not seen from here"
    apart = f"other {', '.join(process.apart)}" if process.apart else "the same namespaces"
    return f"{where}, here pid {process.seen_as}: {apart}"


def _is_whole(confinement: Confinement) -> bool:
    return confinement.user_map in ((), ((0, 0, _ALL_USERS),))


def _outer(confinement: Confinement) -> int | None:
    for inside, outside, count in confinement.user_map:
        if inside <= confinement.user < inside + count:
            return outside + confinement.user - inside
    return None
