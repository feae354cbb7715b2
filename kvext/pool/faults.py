"""Translates the native core's faults into the error tree, in one place."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvext import errors
from kvext.pool import _core

__all__ = ["error_of", "translated_faults"]

_VERSION_AT = 8  # behind the magic


@contextmanager
def translated_faults(
    path: Path, *, record_bytes: int = 0, waited_s: float = 0.0
) -> Iterator[None]:
    """Raise the tree's error for any fault of the core inside the block.

    Args:
        path: The region that the block works on.
        record_bytes: What the caller wants to store, for `PoolGeometryMismatch`.
        waited_s: The caller's deadline, for `PoolLockTimeout`.
    """
    try:
        yield
    except _core.Fault as fault:
        raise error_of(fault, path, record_bytes=record_bytes, waited_s=waited_s) from None


def error_of(
    fault: _core.Fault, path: Path, *, record_bytes: int = 0, waited_s: float = 0.0
) -> errors.PoolError:
    """The tree's error for a fault of the core; arguments as for `translated_faults`."""
    kind, message = fault.args
    name = str(path)
    make: dict[str, Callable[[], errors.PoolError]] = {
        "missing": lambda: errors.PoolMissing(name),
        "permission": lambda: errors.PoolPermission(name, message),
        "version": lambda: errors.PoolVersionMismatch(
            name, _version_of(path), _core.FORMAT_VERSION
        ),
        "extent_size": lambda: errors.PoolGeometryMismatch(
            name, record_bytes, _extent_bytes_of(path)
        ),
        "lock_timeout": lambda: errors.PoolLockTimeout(name, waited_s),
        "detached": lambda: errors.PoolDetached(name),
        "damaged": lambda: errors.PoolDamaged(name, message),
    }
    return make.get(kind, lambda: errors.PoolUnusable(name, message))()


def _version_of(path: Path) -> int:
    with path.open("rb") as region:
        region.seek(_VERSION_AT)
        return int(struct.unpack("<I", region.read(4))[0])


def _extent_bytes_of(path: Path) -> int:
    observer = _core.Pool(str(path), None, "", 0.0)
    try:
        return observer.extent_bytes
    finally:
        observer.close()
