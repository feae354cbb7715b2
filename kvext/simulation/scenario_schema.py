"""The schema of a scenario file, and errors that name the line.

Invariant: what `read_document` returns keeps to the schema, and `Document.fault` knows the line of
each of its values.
"""

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kvext.errors import ScenarioError
from kvext.simulation.generators import Chat, Generator, Loop, Unique, Zipf
from kvext.simulation.schema_fault import SchemaFault
from kvext.simulation.toml_lines import KeyPath, TomlLines
from kvext.simulation.trace import DEFAULT_BLOCK_TOKENS
from kvext.tenancy.retention import DEFAULT_PRIORITY
from kvext.tenancy.shares import Basis

__all__ = [
    "Document",
    "RangeTable",
    "RetentionTable",
    "ScenarioTable",
    "TenantTable",
    "read_document",
]

_MAX_BYTES = 4 << 20
_MAX_BLOCKS = 10**12
_Blocks = Annotated[int, msgspec.Meta(ge=0, le=_MAX_BLOCKS)]
_SomeBlocks = Annotated[int, msgspec.Meta(ge=1, le=_MAX_BLOCKS)]
_Weight = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
_Priority = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class RangeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An element of `ranges`: another priority for some tokens of each prompt."""

    start_token: Annotated[int, msgspec.Meta(ge=0, le=10**12)]
    priority: _Priority
    end_token: Annotated[int, msgspec.Meta(ge=1, le=10**12)] | None = None
    duration_s: _Seconds | None = None


class RetentionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[tenant.retention]`: how the blocks of the tenant's requests are kept."""

    priority: _Priority = DEFAULT_PRIORITY
    duration_s: _Seconds | None = None
    ttl_s: _Seconds | None = None
    store: bool = True
    ranges: Annotated[list[RangeTable], msgspec.Meta(max_length=100)] = []


class TenantTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """`[[tenant]]`: a tenant, its requests and its share."""

    name: _Name
    trace: _Text | None = None
    trace_tenant: _Name | None = None
    generator: Generator | None = None
    floor_blocks: _Blocks = 0
    ceiling_blocks: _SomeBlocks | None = None
    weight: _Weight = 1.0
    class_: _Name = ""
    start_s: _Seconds = 0.0
    session_hints: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    retention: RetentionTable | None = None


class ScenarioTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    capacity_blocks: _SomeBlocks
    tenant: Annotated[list[TenantTable], msgspec.Meta(min_length=1, max_length=1000)]
    policy: _Name | None = None
    by_seconds: bool = False
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    block_tokens: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = DEFAULT_BLOCK_TOKENS
    entitlement: Basis = Basis.EQUAL
    class_weights: dict[_Name, _Weight] = {}


_GENERATORS: dict[str, type[Generator]] = {
    "unique": Unique,
    "loop": Loop,
    "zipf": Zipf,
    "chat": Chat,
}
_TABLES: dict[str, type[msgspec.Struct]] = {
    "tenant": TenantTable,
    "retention": RetentionTable,
    "ranges": RangeTable,
}
_CHOICES: dict[KeyPath, str] = {
    ("kind",): ", ".join(_GENERATORS),
    ("entitlement",): ", ".join(Basis),
    ("arrivals",): "poisson, regular",
}
_SYNTAX_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_DOCUMENTED = "see the scenario's keys in docs/simulate.md"


@dataclass(frozen=True, slots=True)
class Document:
    """A scenario file that keeps to the schema."""

    path: Path
    text: str
    table: ScenarioTable

    def fault(self, place: KeyPath, reason: str, remedy: str) -> ScenarioError:
        """The error about the value at a place."""
        return ScenarioError(str(self.path), TomlLines(self.text).line(place), reason, remedy)


def read_document(path: Path) -> Document:
    """Read a scenario file and hold it against the schema.

    Raises:
        ScenarioError: It cannot be read, is not TOML, or breaks the schema.
    """
    text = _read_text(path)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(str(path), 0, "it is nested too deeply", _DOCUMENTED) from None
    except ValueError as error:
        raise _syntax_error(path, text, str(error)) from None
    try:
        return Document(path, text, msgspec.convert(data, ScenarioTable))
    except msgspec.ValidationError as error:
        raise _schema_error(path, text, data, SchemaFault.of(error)) from None


def _read_text(path: Path) -> str:
    if "\0" in str(path):
        raise ScenarioError(str(path), 0, "no such file", "give a TOML file")
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(
            str(path), 0, error.strerror or str(error), "give a TOML file"
        ) from None
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScenarioError(str(path), line, "not UTF-8", "save the file as UTF-8") from None


def _syntax_error(path: Path, text: str, message: str) -> ScenarioError:
    place = _SYNTAX_PLACE.search(message)
    if place is None:
        return ScenarioError(str(path), 0, f"not TOML: {message}", "correct it")
    line = int(place[1]) if place[1] else text.rstrip("\n").count("\n") + 1
    reason = f"not TOML: {message[: place.start()]}"
    return ScenarioError(str(path), line, reason, "correct the line, or the one before it")


def _schema_error(path: Path, text: str, data: Any, fault: SchemaFault) -> ScenarioError:
    place, remedy = fault.path, _DOCUMENTED
    if fault.unknown:
        place = (*place, fault.unknown)
        known = _known_keys(fault.path, data)
        nearest = difflib.get_close_matches(fault.unknown, known, n=1)
        remedy = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(known)}"
    elif place[-1:] in _CHOICES:
        remedy = f"use one of {_CHOICES[place[-1:]]}"
    return ScenarioError(str(path), TomlLines(text).line(place), fault.reason, remedy)


def _known_keys(place: KeyPath, data: Any) -> tuple[str, ...]:
    """The keys of the table at a place."""
    names = [step for step in place if isinstance(step, str)]
    if names[-1:] == ["generator"]:
        for step in place:
            data = data[step]
        return ("kind", *_GENERATORS[data["kind"]].__struct_encode_fields__)
    return _TABLES.get(names[-1] if names else "", ScenarioTable).__struct_encode_fields__
