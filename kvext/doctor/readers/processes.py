"""Reads other processes: which files they hold, which cores their threads may use."""

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvext.doctor.snapshot import EngineProcess

__all__ = ["HeldFiles", "pid_namespace", "read_engines", "read_held_files"]

# vLLM names its processes PREFIX::EngineCore, PREFIX::Worker_TP0 and so on.
_ENGINE_TITLE = re.compile(r"\S*::(EngineCore|Worker)\w*")
_GPU_MAPPING = re.compile(r"/dev/nvidia|/dev/kfd|/dev/dri|libcuda\.so")
_MAPPING_FIELDS = 6
_TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """Files that living processes have open or mapped."""

    held: frozenset[Path]
    unseen_users: frozenset[int]
    """Users with processes that could not be looked into."""


def read_held_files(files: Mapping[Path, os.stat_result]) -> HeldFiles:
    """Look for holders of these files among all processes that can be seen."""
    held: set[Path] = set()
    unseen: set[int] = set()
    for process in _processes():
        try:
            held.update(_mapped(process, files))
            held.update(_opened(process, files))
        except PermissionError:
            # The first process may be closed to everybody; it is an init and no engine.
            if process.name != "1":
                with contextlib.suppress(OSError):
                    unseen.add(_effective_user(process))
        except OSError:  # it ended meanwhile
            continue
    return HeldFiles(frozenset(held), frozenset(unseen))


def read_engines(attached: Collection[int]) -> tuple[EngineProcess, ...]:
    """The processes that compute for engines.

    Args:
        attached: Processes that are known to be engines because they are attached to a pool;
            others are known by their title.

    Returns:
        One entry a process. Of processes that are one another's ancestors only the last computes.
    """
    titles: dict[int, str] = {}
    parents: dict[int, int] = {}
    for process in _processes():
        with contextlib.suppress(OSError):
            pid, title = int(process.name), _title(process)
            parents[pid] = _parent(process)
            if pid in attached or _ENGINE_TITLE.match(title):
                titles[pid] = title
    inner = {ancestor for pid in titles for ancestor in _ancestors(pid, parents)}
    engines = []
    for pid in sorted(titles.keys() - inner):
        with contextlib.suppress(OSError):
            engines.append(_engine(pid, titles[pid]))
    return tuple(engines)


def pid_namespace(pid: int | str) -> int:
    """The number of a process's PID namespace; 0 if it cannot be seen."""
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return 0


def _processes() -> Iterator[Path]:
    """Living processes of /proc, those of the kernel left out."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # Kernel threads and zombies have no command line.
                if (entry / "cmdline").read_bytes():
                    yield entry


def _engine(pid: int, title: str) -> EngineProcess:
    cores: set[int] = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            cores |= os.sched_getaffinity(int(thread.name))
    mappings = ""
    with contextlib.suppress(PermissionError):
        mappings = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    return EngineProcess(pid, title, frozenset(cores), bool(_GPU_MAPPING.search(mappings)))


def _mapped(process: Path, files: Mapping[Path, os.stat_result]) -> Iterator[Path]:
    by_inode: dict[int, list[Path]] = {}
    for path, state in files.items():
        by_inode.setdefault(state.st_ino, []).append(path)
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=_MAPPING_FIELDS - 1)
        for path in by_inode.get(int(fields[4]), ()):
            # The device differs on overlays; the name, where the file was linked under another
            # one after it was mapped, as glibc does with semaphores.
            major, minor = fields[3].split(":")
            same_device = os.makedev(int(major, 16), int(minor, 16)) == files[path].st_dev
            if same_device or Path(fields[-1]).name == path.name:
                yield path


def _opened(process: Path, files: Mapping[Path, os.stat_result]) -> Iterator[Path]:
    names = {path.name for path in files}
    folders = {path.parent for path in files}
    for link in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = link.readlink()
            # Only now: `stat` of a file on a dead network mount would hang.
            if target.name in names or target.parent in folders:
                opened = link.stat()
                yield from (path for path in files if os.path.samestat(opened, files[path]))


def _title(process: Path) -> str:
    command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
    return command.decode(errors="replace").strip()[:_TITLE_LENGTH]


def _parent(process: Path) -> int:
    return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while (pid := parents.get(pid, 0)) > 0:
        yield pid


def _effective_user(process: Path) -> int:
    status = (process / "status").read_text(errors="replace")
    return int(status.partition("Uid:")[2].split()[1])
