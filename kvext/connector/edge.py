"""Where our faults end: the engine goes on as if there were no cache.

This is the only place of kvext that catches every exception. An adapter runs each piece of
our code through an `Edge`; what fails is logged once a kind, counted, and replaced by a
fallback that means "not cached".
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

__all__ = ["Edge"]

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Edge:
    """Runs pieces of kvext inside an engine that must not notice their failure.

    Attributes:
        failures: How often each piece failed, by its name.
    """

    __slots__ = ("failures",)

    def __init__(self) -> None:
        """Begin with no failures."""
        self.failures: Counter[str] = Counter()

    def attempt(self, what: str, action: Callable[[*_Args], _T], fallback: _T, *args: *_Args) -> _T:
        """Do `action`, or answer with `fallback` if it raises.

        Args:
            what: Names the action in logs and counts.
            action: What to do.
            fallback: What a cache that has nothing would answer.
            args: For `action`.

        Returns:
            The action's result or the fallback.
        """
        try:
            return action(*args)
        except Exception as error:
            self.failures[what] += 1
            if self.failures[what] == 1:
                _logger.exception("kvext could not %s; the engine serves on without it", what)
            else:
                _logger.debug("kvext could not %s (%d times): %s", what, self.failures[what], error)
            return fallback
