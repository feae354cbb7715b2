"""What msgspec says of input that breaks a schema, in words for people and with its place."""

import re
from dataclasses import dataclass

import msgspec

__all__ = ["SchemaFault"]

_PLACE = re.compile(r" - at (`key` in )?`\$([^`]*)`$")
_ANY_KEY = "[...]"
"""What msgspec writes for a key of a dictionary, which it does not name."""
_WHOLE = "this"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
_LIMIT = re.compile(r"Expected `\w+` ([<>]=?) (-?[\d.e+]+)")
_LENGTH = re.compile(r"Expected `(\w+)` of length ([<>]=?) (\d+)")
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `(\w+)`")
_KINDS = {
    "array": "a list",
    "dict": "an object",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_SIDES = {
    ">": "is not above {limit}",
    ">=": "is below {limit}",
    "<": "is not below {limit}",
    "<=": "is above {limit}",
}


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One breach of a schema.

    Attributes:
        path: Where it is: names of keys, positions in lists.
        reason: What is wrong there.
        unknown: The key that the schema does not know; empty for any other fault.
    """

    path: tuple[str | int, ...]
    reason: str
    unknown: str = ""

    @classmethod
    def of(cls, error: msgspec.ValidationError) -> "SchemaFault":
        """Read the fault off msgspec's message, which is all that it tells."""
        message = str(error)
        place = _PLACE.search(message)
        fact = message[: place.start()] if place else message
        steps = place[2].removesuffix(_ANY_KEY) if place else ""
        path = tuple(int(step[2]) if step[2] else step[1] for step in _STEP.finditer(steps))
        if match := _UNKNOWN.fullmatch(fact):
            return cls(path, f"unknown key {match[1]!r}", match[1])
        if match := _MISSING.fullmatch(fact):
            return cls(path, f"{match[1]!r} is missing")
        name = steps.rpartition(".")[2]
        subject = repr(name) if name else _WHOLE
        if place and place[1]:
            subject = f"a key of {subject}"
        elif place and place[2].endswith(_ANY_KEY):
            subject = f"a value of {subject}"
        return cls(path, _reason(fact, subject))


def _reason(fact: str, subject: str) -> str:
    if match := _LENGTH.fullmatch(fact):
        more = "empty" if match[2] == ">=" and match[3] == "1" else f"not of length {match[2]}"
        return f"{subject} is {more}" if more == "empty" else f"{subject} is {more} {match[3]}"
    if match := _LIMIT.fullmatch(fact):
        return f"{subject} {_SIDES[match[1]].format(limit=f'{float(match[2]):.17g}')}"
    if match := _EXPECTED.fullmatch(fact):
        wanted = " or ".join(
            _KINDS.get(kind, kind) for kind in match[1].split(" | ") if kind != "null"
        )
        return f"{subject} is {_KINDS.get(match[2], match[2])} where {wanted} belongs"
    return fact if subject == _WHOLE else f"{subject}: {fact[:1].lower()}{fact[1:]}"
