"""Files in shared memory that nobody uses any more, those of other programs included.

An engine that was killed may leave files of the size of its cache. A container's /dev/shm outlives
the engine, so each restart finds less room until none starts. The doctor names such files; it
removes none.
"""

import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase

from kvext.config import format_bytes
from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Holder, Pools, SharedFile, System

__all__ = [
    "check_engine_leftovers",
    "check_idle_pools",
    "check_other_leftovers",
    "check_semaphores",
    "check_unfinished_pools",
]

_ENGINE = ("vllm_offload_*.mmap", "vllm_ec_*.mmap", "psm_*")
"""vLLM's KV offloading, encoder cache and message queues; psm_* is any Python's shared memory."""
_SEMAPHORES = ("sem.*",)
_CLAIMS = ("kvext-*.pool.new",)
_POOLS = ("kvext-*.pool",)
_NEGLIGIBLE_BYTES = 1 << 20
_MAX_NAMED = 5


def check_engine_leftovers(files: Sequence[SharedFile], system: System) -> Finding:
    """Shared memory of engines that no process holds."""
    return _judge("engine-leftovers", "of vLLM or another Python", _like(files, _ENGINE), system)


def check_semaphores(files: Sequence[SharedFile], system: System) -> Finding:
    """Named semaphores that no process holds."""
    return _judge("semaphores", "of named semaphores", _like(files, _SEMAPHORES), system)


def check_other_leftovers(files: Sequence[SharedFile], system: System) -> Finding:
    """Whatever else lies in memory and no process holds."""
    known = (*_ENGINE, *_SEMAPHORES, *_CLAIMS, *_POOLS)
    others = [file for file in files if file.in_memory and not _matches(file, known)]
    return _judge("other-leftovers", "of other programs", others, system)


def check_unfinished_pools(files: Sequence[SharedFile]) -> Finding:
    """Pools whose creator died before they were ready."""
    claims = _like(files, _CLAIMS)
    dead = [file for file in claims if file.holder is Holder.NOBODY]
    if not dead:
        fact = f"{len(claims)} being created" if claims else "none"
        return Finding("unfinished-pools", Status.OK, fact)
    fact = f"{len(dead)} whose creator is gone, {_total(dead)}"
    mend = f"{_remove(dead)} (creating a pool of the same name does it, too)"
    return Finding("unfinished-pools", Status.WARNING, fact, mend, _lines(dead))


def check_idle_pools(pools: Pools) -> Finding:
    """Pools to which no process is attached, other than the one asked for."""
    idle = [
        pool for pool in pools.found if not (pool.pids or pool.fault or pool.path == pools.path)
    ]
    if not idle:
        return Finding("idle-pools", Status.OK, "none besides the pool asked for")
    held = format_bytes(sum(pool.region_bytes for pool in idle))
    fact = f"{len(idle)} besides the pool asked for, {held}: kept for engines to come"
    removals = [f"kvext pool rm {pool.arguments}" for pool in idle]
    mend = f"if you do not want them: {_chain(removals)}"
    lines = tuple(
        f"{pool.path}, {format_bytes(pool.region_bytes)}, {pool.num_committed:,} blocks"
        for pool in idle
    )
    return Finding("idle-pools", Status.NOTE, fact, mend, lines)


def _judge(name: str, whose: str, files: Sequence[SharedFile], system: System) -> Finding:
    dead = [file for file in files if file.holder is Holder.NOBODY]
    unclear = [file for file in files if file.holder is Holder.UNKNOWN]
    in_use = len(files) - len(dead) - len(unclear)
    if dead:
        large = sum(file.held_bytes for file in dead) >= _NEGLIGIBLE_BYTES
        mend, seen = _remove(dead), ""
        if not system.in_first_pid_namespace:
            seen = " seen from this container"
            mend += ", unless another container uses them"
        return Finding(
            name,
            Status.WARNING if large else Status.NOTE,
            f"{len(dead)} {whose} that no process{seen} holds, {_total(dead)}",
            mend,
            _lines(dead),
        )
    if unclear:
        fact = f"{len(unclear)} {whose} whose users cannot be seen, {_total(unclear)}"
        return Finding(name, Status.NOTE, fact, "run kvext doctor as root", _lines(unclear))
    return Finding(name, Status.OK, f"none left over, {in_use} in use")


def _like(files: Sequence[SharedFile], patterns: Sequence[str]) -> list[SharedFile]:
    return [file for file in files if _matches(file, patterns)]


def _matches(file: SharedFile, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(file.path.name, pattern) for pattern in patterns)


def _total(files: Sequence[SharedFile]) -> str:
    return format_bytes(sum(file.held_bytes for file in files))


def _lines(files: Sequence[SharedFile]) -> tuple[str, ...]:
    return tuple(
        f"{file.path}, {format_bytes(file.held_bytes)}, changed {_age(file.age_s)} ago, "
        f"owner {file.owner}"
        for file in sorted(files, key=lambda file: -file.held_bytes)
    )


def _remove(files: Sequence[SharedFile]) -> str:
    largest = sorted(files, key=lambda file: -file.held_bytes)
    return "rm " + _chain([shlex.quote(str(file.path)) for file in largest], " ")


def _chain(parts: Sequence[str], between: str = "; ") -> str:
    """The first of them; a command for hundreds of files helps nobody."""
    shown = between.join(parts[:_MAX_NAMED])
    more = len(parts) - _MAX_NAMED
    return f"{shown} ... and {more} more (kvext doctor --json lists them)" if more > 0 else shown


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
