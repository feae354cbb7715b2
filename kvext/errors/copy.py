"""Blocks that cannot travel to or from an accelerator."""

from dataclasses import dataclass

from kvext.errors.base import KvextError, readable_size

__all__ = ["CopyError", "CopyStalled", "PinningRefused"]


@dataclass(eq=False)
class CopyError(KvextError):
    """Blocks cannot travel to or from an accelerator."""


@dataclass(eq=False)
class PinningRefused(CopyError):
    """The driver neither pins nor frees a range of host memory; `reason` is its own word."""

    num_bytes: int
    reason: str

    _says = (
        "the driver refuses {self.size} of pinned memory: {self.reason}; raise the limit on "
        "locked memory (ulimit -l), or pin a range only once"
    )

    @property
    def size(self) -> str:
        """The range in a readable unit."""
        return readable_size(self.num_bytes)


@dataclass(eq=False)
class CopyStalled(CopyError):
    """A copy was still under way at its deadline; its blocks count as failed."""

    deadline_s: float

    _says = (
        "the accelerator did not finish a copy within {self.deadline_s:.1f} s; look for a hung "
        "kernel or a fault of the device in the system's log"
    )
