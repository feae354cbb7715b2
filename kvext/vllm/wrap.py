"""Listening to a function of vLLM that offers no hook, and undoing it without a trace.

Several connectors of one engine may wrap the same function and end in any order: a wrapper that
has ended is skipped, and the last one to end leaves vLLM's own function behind.
"""

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["Wrap"]

_logger = logging.getLogger(__name__)


class Wrap:
    """One wrapped function; does nothing until `open`."""

    __slots__ = ("_is_live", "_name", "_original", "_owner", "_parameters", "_wrapper")

    def __init__(self, owner: Any, name: str, parameters: tuple[str, ...]) -> None:
        """Name the function.

        Args:
            owner: The class or module that has it.
            name: Its name there.
            parameters: The names that its parameters must begin with.
        """
        self._owner = owner
        self._name = name
        self._parameters = parameters
        self._original: Any = None
        self._wrapper: Any = None
        self._is_live = False

    def fits(self) -> bool:
        """Whether vLLM has the function as we know it."""
        function = getattr(self._owner, self._name, None)
        if not callable(function):
            return False
        names = tuple(inspect.signature(function).parameters)
        return names[: len(self._parameters)] == self._parameters

    def open(self, around: Callable[..., Any], without: str) -> bool:
        """Put `around` in the function's place.

        Args:
            around: Called with vLLM's function and then the call's own arguments.
            without: What is lost if vLLM has no such function, for the warning.

        Returns:
            Whether vLLM has the function as we know it; if not, a warning was given.
        """
        if not self.fits():
            _logger.warning("kvext: this vLLM has no %s as we know it; %s", self._name, without)
            return False
        original = self._original = getattr(self._owner, self._name)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._is_live:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        wrapper.kvext_wrap = self  # type: ignore[attr-defined] # how `close` finds its kind
        self._wrapper, self._is_live = wrapper, True
        setattr(self._owner, self._name, wrapper)
        return True

    def close(self) -> None:
        """Put vLLM's function back; a second call does nothing."""
        if not self._is_live:
            return
        self._is_live = False
        setattr(self._owner, self._name, _outermost_live(getattr(self._owner, self._name)))


def _outermost_live(function: Any) -> Any:
    wrap = getattr(function, "kvext_wrap", None)
    while isinstance(wrap, Wrap) and not wrap._is_live:  # noqa: SLF001 - our own kind
        function = wrap._original  # noqa: SLF001
        wrap = function.__dict__.get("kvext_wrap")
    return function
