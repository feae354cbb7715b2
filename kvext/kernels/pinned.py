"""Host memory that a device copies from and to by itself, without a bounce buffer of the driver.

For memory that torch did not allocate, such as the mapping of a pool. Registering touches and
pins every page of it, which takes the driver about as long as writing them once.
"""

import contextlib
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from kvext.errors import PinningRefused

__all__ = ["CudaRuntime", "PinnedRegion"]

_PORTABLE_AND_MAPPED = 0x01 | 0x02
"""cudaHostRegisterPortable (every context) and cudaHostRegisterMapped (kernels may address it)."""


class CudaRuntime(Protocol):
    """What is needed of `torch.cuda.cudart()`; each call answers with a `cudaError`."""

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int, /) -> Any:  # noqa: N802
        """Pin a range of memory."""
        ...

    def cudaHostUnregister(self, address: int, /) -> Any:  # noqa: N802
        """Let the range go that begins here."""
        ...


class PinnedRegion:
    """A range of host memory that is registered until `close`; a context manager.

    The memory must stay mapped until then, and no copy may be under way when it is closed.
    """

    def __init__(self, address: int, num_bytes: int, runtime: CudaRuntime) -> None:
        """Describe the range; `register` makes one that is pinned.

        Args:
            address: Where it begins; the driver pins whole pages.
            num_bytes: Its length.
            runtime: Who pins it.
        """
        self.address = address
        self.num_bytes = num_bytes
        self._runtime = runtime
        self._is_pinned = False

    @classmethod
    def register(cls, address: int, num_bytes: int, runtime: CudaRuntime | None = None) -> Self:
        """Pin a range.

        Args:
            address: Where it begins.
            num_bytes: Its length.
            runtime: By default `torch.cuda.cudart()`.

        Raises:
            PinningRefused: The driver does not pin it: a limit on locked memory, a range that is
                pinned already, or memory that it cannot pin.
        """
        region = cls(address, num_bytes, torch.cuda.cudart() if runtime is None else runtime)
        region._pin()
        return region

    def __enter__(self) -> Self:
        """Return the region itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unpin."""
        self.close()

    @property
    def is_pinned(self) -> bool:
        """Whether devices may copy from and to it."""
        return self._is_pinned

    def close(self) -> None:
        """Unpin; a second call does nothing.

        Raises:
            PinningRefused: The driver does not let the range go.
        """
        if self._is_pinned:
            self._is_pinned = False
            self._check(self._runtime.cudaHostUnregister(self.address))

    def _pin(self) -> None:
        result = self._runtime.cudaHostRegister(self.address, self.num_bytes, _PORTABLE_AND_MAPPED)
        self._check(result)
        self._is_pinned = True

    def _check(self, result: Any) -> None:
        if int(result.value) != 0:
            _forget_last_error()
            raise PinningRefused(self.num_bytes, str(result))


def _forget_last_error() -> None:
    """The runtime keeps a failure for whoever launches next, an engine's kernel for instance."""
    if torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
