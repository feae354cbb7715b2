"""Which bytes are these? Errors of identity."""

from dataclasses import dataclass

from kvext.errors.base import KvextError

__all__ = ["IdentityError", "IdentityUnknown", "TokenRangeError"]


@dataclass(eq=False)
class IdentityError(KvextError):
    """It cannot be said which bytes something stands for."""


@dataclass(eq=False)
class IdentityUnknown(IdentityError):
    """The weights of a model or adapter cannot be named for certain: nothing is cached."""

    subject: str
    reason: str

    _says = (
        "the identity of {self.subject} is unknown: {self.reason}; "
        "the engine serves it uncached; restart it when the files are complete and at rest"
    )


@dataclass(eq=False)
class TokenRangeError(IdentityError, ValueError):
    """A token id outside 0..2**32-1, at `position` of its sequence."""

    token: int
    position: int

    _says = (
        "token {self.token} at position {self.position} is outside 0..4294967295; "
        "pass the tokenizer's ids"
    )
