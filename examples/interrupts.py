"""Ctrl-C, SIGTERM and SIGHUP as one exception, raised once and never while cleaning up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

__all__ = ["Interrupted", "Interrupts"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):  # not an Exception: nothing but the program's end handles it
    """The user, or the system, asked this program to end."""

    def __init__(self, number: int) -> None:
        """Keep the signal."""
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Interrupts:
    """While open, the first ending signal raises `Interrupted`; later ones are ignored."""

    def __init__(self) -> None:
        """Handle nothing yet."""
        self._previous: dict[int, object] = {}
        self._is_muted = False
        self._is_held = False
        self._pending: int | None = None

    def __enter__(self) -> Self:
        """Take the signals over."""
        self._previous = {number: signal.signal(number, self._receive) for number in _ENDING}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned

    def mute(self) -> None:
        """Ignore signals from now on: the program cleans up already."""
        self._is_muted = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait for the end of a step that must not stop half-way."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._pending is not None:
            self._receive(self._pending, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_held:
            self._pending = number
        elif not self._is_muted:
            self._is_muted = True
            raise Interrupted(number)
