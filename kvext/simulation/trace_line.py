"""One line of a trace: its schema, and what is wrong with a line that does not keep to it.

Invariant: `parse_line` returns a line whose numbers are finite, in range and agree with one
another, or raises `LineRefused` with the reason and the remedy.
"""

from array import array
from collections.abc import Sequence
from typing import Annotated

import msgspec

from kvext.simulation.schema_fault import SchemaFault

__all__ = ["LineRefused", "TraceLine", "block_keys", "parse_line"]

_MAX_MS = 10**15
_MAX_TOKENS = 10**12
_MAX_NAME = 1000

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=_MAX_TOKENS)]
_Name = Annotated[str, msgspec.Meta(max_length=_MAX_NAME)]


class TraceLine(msgspec.Struct, frozen=True):
    """A request as Mooncake writes it; other tools' fields are ignored, hence not forbidden."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=_MAX_MS)]
    input_length: _Tokens
    output_length: _Tokens | None
    hash_ids: list[int]
    session_id: _Name | int | None = None
    tenant: _Name | None = None
    closed: bool | None = None
    return_ms: Annotated[float, msgspec.Meta(ge=0, le=_MAX_MS)] | None = None


class LineRefused(ValueError):
    """A line that cannot be replayed: the reason and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy


_decode = msgspec.json.Decoder(TraceLine).decode

_FORMAT = (
    "write one JSON object a line with timestamp, input_length, output_length and hash_ids, "
    "as Mooncake's traces have them"
)


def parse_line(text: bytes) -> TraceLine:
    """Decode one line.

    Raises:
        LineRefused: It is not JSON, or not a request.
    """
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise LineRefused(SchemaFault.of(error).reason, _FORMAT) from None
    except msgspec.DecodeError as error:
        reason = f"not JSON ({str(error).removeprefix('JSON is malformed: ')})"
        raise LineRefused(reason, _FORMAT) from None
    except RecursionError:
        raise LineRefused("nested too deeply", _FORMAT) from None
    except UnicodeError:
        raise LineRefused("not UTF-8", "save the file as UTF-8") from None


def block_keys(line: TraceLine, block_tokens: int) -> Sequence[int]:
    """The ids of a line's blocks, checked against the prompt's length.

    Raises:
        LineRefused: An id is no unsigned number of 64 bits or occurs twice, or the number of ids
            is not that of the prompt's blocks.
    """
    ids = line.hash_ids
    try:
        keys = array("Q", ids)
    except OverflowError:
        wrong = next(key for key in ids if not 0 <= key < 1 << 64)
        raise LineRefused(f"hash id {wrong} is outside 0..2**64-1", "number the blocks") from None
    if len(set(ids)) != len(ids):
        twice = next(key for at, key in enumerate(ids) if key in ids[:at])
        reason = f"hash id {twice} occurs twice in one prompt"
        remedy = "an id must stand for the block and all blocks before it"
        raise LineRefused(reason, remedy)
    if len(ids) not in (line.input_length // block_tokens, -(-line.input_length // block_tokens)):
        raise _count_mismatch(line, block_tokens)
    return keys


def _count_mismatch(line: TraceLine, block_tokens: int) -> LineRefused:
    least, most = line.input_length // block_tokens, -(-line.input_length // block_tokens)
    wanted = f"{least} or {most}" if least != most else str(least)
    return LineRefused(
        f"{len(line.hash_ids)} hash_ids for a prompt of {line.input_length} tokens, where blocks "
        f"of {block_tokens} tokens make {wanted}",
        "say how long the trace's blocks are: with --block-tokens, or block_tokens in a scenario",
    )
