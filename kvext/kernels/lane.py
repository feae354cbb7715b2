"""Where copies are enqueued: beside an engine's computation, in an order that keeps blocks right.

Invariant: what a lane runs comes after all that the engine had enqueued when it was asked.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

import torch

__all__ = ["InOrder", "Lane", "Mark", "SideStream", "open_lane"]

_POLL_S = 20e-6


class Mark(Protocol):
    """A point in a lane's order."""

    @property
    def is_reached(self) -> bool:
        """Whether everything before it is done."""
        ...

    def wait(self, deadline_s: float) -> bool:
        """Wait on the processor, at most `deadline_s` seconds; whether it was reached."""
        ...

    def hold_back(self) -> None:
        """Let what the engine enqueues from now on come after it, on the device."""
        ...


class Lane(Protocol):
    """An order of copies."""

    def enqueue(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, what torch and Triton launch goes onto this lane."""
        ...

    def mark(self) -> Mark:
        """The point after everything that was enqueued so far."""
        ...


class _Reached:
    """The mark of a lane that finishes its work before it answers."""

    is_reached = True

    def wait(self, deadline_s: float) -> bool:  # noqa: ARG002 - there is nothing to wait for
        """Return at once."""
        return True

    def hold_back(self) -> None:
        """Hold nothing back."""


class InOrder:
    """No stream of its own: for the processor, and for devices that CUDA does not drive."""

    def __init__(self, device: torch.device) -> None:
        """Serve one device."""
        self._device = device

    @contextlib.contextmanager
    def enqueue(self) -> Iterator[None]:
        """Run the block's work in the caller's order."""
        yield

    def mark(self) -> Mark:
        """Wait for the device."""
        if self._device.type != "cpu":
            torch.accelerator.current_stream(self._device).synchronize()
        return _Reached()


class _StreamMark:
    def __init__(self, event: torch.cuda.Event, compute: torch.cuda.Stream) -> None:
        self._event = event
        self._compute = compute

    @property
    def is_reached(self) -> bool:
        return bool(self._event.query())

    def wait(self, deadline_s: float) -> bool:
        # An event's own wait has no deadline. Sleeping gives the interpreter to other threads.
        until = time.monotonic() + deadline_s
        while not self._event.query():
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True

    def hold_back(self) -> None:
        self._compute.wait_event(self._event)


class SideStream:
    """A CUDA stream beside the engine's, ordered by events."""

    def __init__(self, device: torch.device) -> None:
        """Make the stream; call it where the engine's own stream is the current one.

        Args:
            device: A CUDA device.
        """
        self._device = device
        self._compute = torch.cuda.current_stream(device)
        self._stream = torch.cuda.Stream(device)

    @contextlib.contextmanager
    def enqueue(self) -> Iterator[None]:
        """Run the block's work after the engine's, and after the calling thread's."""
        self._stream.wait_stream(self._compute)
        caller = torch.cuda.current_stream(self._device)
        if caller != self._compute:
            self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            yield

    def mark(self) -> Mark:
        """Record an event."""
        event = torch.cuda.Event()
        event.record(self._stream)
        return _StreamMark(event, self._compute)


def open_lane(device: torch.device) -> Lane:
    """A side stream on a CUDA device, else the caller's own order."""
    return SideStream(device) if device.type == "cuda" else InOrder(device)
