"""A changed vLLM is told from the one that kvext knows by looking at it, not at its version."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["Call", "Read", "changed_overrides", "resolve", "vllm_has"]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of vLLM that kvext calls, or wraps, with these parameters first.

    Attributes:
        owner: The class or module that has it, as `module:Class` or `module`.
        name: Its name there.
        parameters: Their names in order, `self` included; any further ones have defaults.
    """

    owner: str
    name: str
    parameters: tuple[str, ...]

    def change(self) -> str:
        """How vLLM's function differs; empty if it does not."""
        try:
            function = getattr(resolve(self.owner), self.name)
            found = list(inspect.signature(function).parameters.values())
        except (ImportError, AttributeError, TypeError):
            return f"{self.owner}.{self.name} is gone"
        names = tuple(parameter.name for parameter in found)
        known = len(self.parameters)
        if names[:known] != self.parameters or any(map(_is_demanded, found[known:])):
            return f"{self.owner}.{self.name} takes {names} instead of {self.parameters}"
        return ""


@dataclass(frozen=True, slots=True)
class Read:
    """Members of one class of vLLM that kvext reads.

    Attributes:
        owner: The class, as `module:Class`.
        names: Fields, properties, methods or what the constructor sets.
    """

    owner: str
    names: tuple[str, ...]

    def change(self) -> str:
        """What is missing; empty if nothing is."""
        try:
            owner = resolve(self.owner)
        except (ImportError, AttributeError):
            return f"{self.owner} is gone"
        missing = [name for name in self.names if not vllm_has(owner, name)]
        return f"{self.owner} has no {', '.join(missing)}" if missing else ""


def changed_overrides(ours: type) -> Iterator[str]:
    """Where one of our classes no longer fits the class of vLLM that it extends."""
    for name in sorted(getattr(ours, "__abstractmethods__", ())):
        yield f"{ours.__mro__[1].__name__} has a new abstract method {name}"
    for name, member in vars(ours).items():
        if not getattr(_function(member), "__override__", False):
            continue
        theirs = next((vars(base)[name] for base in ours.__mro__[1:] if name in vars(base)), None)
        if theirs is None:
            yield f"{ours.__mro__[1].__name__} has no {name}"
            continue
        known, found = _parameters(member), _parameters(theirs)
        if known != found:
            yield f"{ours.__mro__[1].__name__}.{name} takes {found} instead of {known}"


def resolve(path: str) -> Any:
    """Find `module`, `module:Class` or `module:Class.method`.

    Raises:
        ImportError: The module is gone.
        AttributeError: What it should have is gone.
    """
    module, _, names = path.partition(":")
    found: Any = import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def vllm_has(owner: Any, name: str) -> bool:
    """Whether a class has a member, or a function a parameter.

    Members that only the constructor sets count, too.
    """
    if not isinstance(owner, type):
        return name in inspect.signature(owner).parameters
    if hasattr(owner, name):
        return True
    makers = ("__init__", "__post_init__")
    for base in owner.__mro__:
        made = (inspect.unwrap(vars(base).get(maker, object)) for maker in makers)
        if name in inspect.get_annotations(base) or any(map(partial(_names, name), made)):
            return True
    return False


def _names(name: str, function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and name in code.co_names


def _parameters(member: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(_function(member)).parameters)


def _function(member: Any) -> Callable[..., Any]:
    """The function inside a property or a class method."""
    function: Callable[..., Any] = getattr(member, "fget", None) or inspect.unwrap(
        getattr(member, "__func__", member)
    )
    return function


def _is_demanded(parameter: inspect.Parameter) -> bool:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variable
