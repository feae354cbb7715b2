"""The pool's folder: is it there, is it memory, is it large enough, do locks work in it?"""

from pathlib import Path

from kvext.config import format_bytes
from kvext.cxl.mounts import IN_MEMORY
from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Folder, LockTrial, Pools

__all__ = [
    "check_file_system",
    "check_folder",
    "check_folder_free",
    "check_folder_size",
    "check_locks",
]

_CONTAINER_DEFAULT_BYTES = 64 << 20
"""What Docker and Kubernetes give a container's /dev/shm unless told otherwise."""
_SMALLEST_POOL_BYTES = 64 << 20
"""The smallest pool that an engine makes by itself."""
_ENGINE_FOLDER = Path("/dev/shm")  # noqa: S108 - where engines put their message queues
_ENGINE_QUEUE_BYTES = 240 << 20
"""What vLLM's largest message queue asks for: a worker's answers, ten pieces of 24 MiB."""
_ENLARGE = "docker run --shm-size=SIZE (or --ipc=host); Kubernetes: an emptyDir of medium Memory"
_ELSEWHERE = "choose another folder with --pool-folder"


def check_folder(folder: Folder) -> Finding:
    """Whether a pool can be made in the folder."""
    fact = f"{folder.path}"
    if not folder.exists:
        mend = f"mkdir {folder.path}, or {_ELSEWHERE}"
        return Finding("pool-folder", Status.ERROR, f"{fact} does not exist", mend)
    if "ro" in folder.mount.options:
        mend = f"mount -o remount,rw {folder.mount.point}, or {_ELSEWHERE}"
        return Finding("pool-folder", Status.ERROR, f"{fact} is mounted read-only", mend)
    if not folder.writable:
        mend = f"give this user write permission, or {_ELSEWHERE}"
        return Finding("pool-folder", Status.ERROR, f"{fact} may not be written", mend)
    return Finding("pool-folder", Status.OK, f"{fact} can be written")


def check_file_system(folder: Folder) -> Finding:
    """Whether the folder is memory."""
    mount = folder.mount
    fact = f"{mount.kind} at {mount.point} ({','.join(mount.options)})"
    if mount.kind not in IN_MEMORY:
        fact += ": the kernel writes the pool's pages to a disk"
        return Finding("file-system", Status.WARNING, fact, "--pool-folder /dev/shm")
    return Finding("file-system", Status.OK, fact)


def check_folder_size(folder: Folder, pools: Pools) -> Finding:
    """Whether somebody has ever chosen the size of the folder's file system, and a fitting one."""
    size_bytes = folder.mount.size_bytes
    fact = f"{format_bytes(size_bytes)} in all"
    if pools.wanted is not None:
        fact += f", {format_bytes(pools.wanted.region_bytes)} of it the pool's"
        return Finding("folder-size", Status.OK, fact)
    if (pools.asked_bytes or 0) > size_bytes:
        fact += f", less than a pool of {format_bytes(pools.planned_bytes)}"
        return Finding("folder-size", Status.ERROR, fact, _ENLARGE)
    if size_bytes <= _CONTAINER_DEFAULT_BYTES:
        fact += ", no more than a container gets by default"
        return Finding("folder-size", Status.WARNING, fact, _ENLARGE)
    return Finding("folder-size", Status.OK, fact)


def check_folder_free(folder: Folder, pools: Pools) -> Finding:
    """Whether the pool, if it must still be made, finds room, and an engine beside it."""
    free_bytes = folder.mount.free_bytes
    fact = f"{format_bytes(free_bytes)} free"
    needed_bytes = pools.asked_bytes or _SMALLEST_POOL_BYTES
    if pools.wanted is not None:
        fact += "; the pool has its memory already"
        needed_bytes = 0
    if free_bytes < needed_bytes:
        which = "a" if pools.asked_bytes else "the smallest"
        fact += f", less than {which} pool of {format_bytes(needed_bytes)}"
        mend = f"remove what is left over there, or enlarge it: {_ENLARGE}"
        return Finding("folder-free", Status.ERROR, fact, mend)
    if folder.path == _ENGINE_FOLDER and free_bytes - needed_bytes < _ENGINE_QUEUE_BYTES:
        fact += (
            f"; beside the pool, an engine with several processes wants "
            f"{format_bytes(_ENGINE_QUEUE_BYTES)} there when it starts"
        )
        mend = f"enlarge the folder: {_ENLARGE}"
        return Finding("folder-free", Status.WARNING, fact, mend)
    return Finding("folder-free", Status.OK, fact)


def check_locks(folder: Folder) -> Finding:
    """Whether the locks by which processes notice one another's death were seen to work."""
    if folder.locks is LockTrial.WORKS:
        return Finding("locks", Status.OK, "open-file-description locks work")
    if folder.locks is LockTrial.NOT_TRIED:
        fact = "open-file-description locks were not tried: no file can be made in the folder"
        return Finding("locks", Status.NOTE, fact, "mend pool-folder first")
    refused = folder.locks is LockTrial.REFUSED
    what = f"are refused: {folder.lock_fault}" if refused else "exclude nobody"
    mend = "choose a local file system, such as /dev/shm, with --pool-folder"
    return Finding("locks", Status.ERROR, f"open-file-description locks {what}", mend)
