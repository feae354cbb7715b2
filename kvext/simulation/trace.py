"""Reads traces of requests: Mooncake's JSON lines, one request a line, plain or gzipped.

A line has `timestamp` (ms), `input_length`, `output_length` (tokens) and `hash_ids`, one id for
each block of the prompt; equal prefixes have equal ids. Fields that other tools add are ignored,
except for `session_id`, `tenant`, `closed` and `return_ms`, which are read where they are there.

Invariant: whatever the file holds, the outcome is a trace that can be replayed or a `TraceError`
that names the line.
"""

import errno
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import chain
from pathlib import Path

import numpy as np

from kvext.errors import TraceError
from kvext.simulation.trace_line import LineRefused, TraceLine, block_keys, parse_line
from kvext.tenancy.policy import Access, Session
from kvext.tenancy.recompute import RecomputeCost

__all__ = ["DEFAULT_BLOCK_TOKENS", "Trace", "read_trace"]

DEFAULT_BLOCK_TOKENS = 512
"""Tokens of a block in Mooncake's traces."""

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_MAX_LINE_BYTES = 64 << 20
"""Far above any prompt; a file without line ends is refused before it fills the memory."""
_MAX_SHOWN = 5
_COST = RecomputeCost()
_SESSIONS = {None: Session.UNKNOWN, False: Session.OPEN, True: Session.CLOSED}
_FILE_REMEDY = "give a file of JSON lines, plain or gzipped"


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their time, those without a whole block left out.

    Attributes:
        name: Where they come from, for people.
        block_tokens: Tokens of a block.
        num_requests: Requests, those without a block counted.
        accesses: What a policy is told of each request.
        sessions: The conversation of each access, numbered from 0; None where the source does
            not name conversations.
    """

    name: str
    block_tokens: int
    num_requests: int
    accesses: Sequence[Access]
    sessions: Sequence[int] | None = None

    @property
    def num_blocks(self) -> int:
        """Block accesses: the blocks of all prompts."""
        return sum(len(access.keys) for access in self.accesses)

    def distinct_blocks(self) -> int:
        """Different blocks: a cache of this size never has to evict."""
        keys = chain.from_iterable(access.keys for access in self.accesses)
        # Sorted in an array, as a set of Python's integers takes ten times the memory.
        return int(np.unique(np.fromiter(keys, dtype=np.uint64)).size)


def read_trace(
    path: Path, *, block_tokens: int = DEFAULT_BLOCK_TOKENS, tenant: str | None = None
) -> Trace:
    """Read and check a trace.

    Args:
        path: The file.
        block_tokens: Tokens of a block, which the number of ids of each line must agree with.
        tenant: Take only the lines of this `tenant`.

    Returns:
        The trace.

    Raises:
        TraceError: The file cannot be read, a line of it is broken or foreign, the time runs
            backwards, or nothing is left to replay.
    """
    reading = _Reading(str(path), block_tokens, tenant)
    try:
        with _open(path) as file:
            for number, text in enumerate(_lines(str(path), file), start=1):
                try:
                    reading.take(text)
                except LineRefused as refusal:
                    raise TraceError(str(path), number, refusal.reason, refusal.remedy) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TraceError(str(path), 0, reason, _FILE_REMEDY) from error
    return reading.finish()


@contextmanager
def _open(path: Path) -> Iterator[BufferedIOBase]:
    if "\0" in str(path):  # which Python refuses with a ValueError
        raise FileNotFoundError(errno.ENOENT, "the path has a zero byte in it")
    with path.open("rb") as file:
        # No seek: a trace may come through a pipe.
        if not file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked


def _lines(path: str, file: BufferedIOBase) -> Iterator[bytes]:
    number = 0
    while text := file.readline(_MAX_LINE_BYTES):
        number += 1
        if len(text) == _MAX_LINE_BYTES:
            reason = f"more than {_MAX_LINE_BYTES >> 20} MiB without a line end"
            raise TraceError(path, number, reason, "write one JSON object a line")
        yield text.removeprefix(_BOM) if number == 1 else text


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    path: str
    block_tokens: int
    tenant: str | None
    num_requests: int = 0
    now_ms: int = 0
    accesses: list[Access] = field(default_factory=list)
    session_names: list[str | int | None] = field(default_factory=list)
    tenants: set[str] = field(default_factory=set)

    def take(self, text: bytes) -> None:
        """Read one line; raises LineRefused."""
        if text.isspace():
            return
        line = parse_line(text)
        keys = block_keys(line, self.block_tokens)
        now_ms = int(line.timestamp)
        if now_ms < self.now_ms:
            reason = f"timestamp {now_ms} comes after {self.now_ms}"
            raise LineRefused(reason, "sort the trace by timestamp")
        self.now_ms = now_ms
        if line.tenant is not None:
            self.tenants.add(line.tenant)
        if self.tenant is not None and line.tenant != self.tenant:
            return
        self.num_requests += 1
        if keys:
            self.accesses.append(self._access(line, keys))
            self.session_names.append(line.session_id)

    def _access(self, line: TraceLine, keys: Sequence[int]) -> Access:
        tokens = self.block_tokens
        return Access(
            now_ms=self.now_ms,
            keys=keys,
            input_tokens=line.input_length,
            output_tokens=-1 if line.output_length is None else line.output_length,
            partial_tail=len(keys) * tokens > line.input_length,
            first_cost_s=_COST.first_block_s(tokens),
            cost_step_s=_COST.block_step_s(tokens),
            session=_SESSIONS[line.closed],
            return_ms=-1 if line.return_ms is None else int(line.return_ms),
        )

    def finish(self) -> Trace:
        """Everything read; raises TraceError if that is nothing."""
        if not self.accesses:
            raise self._nothing()
        return Trace(
            self.path, self.block_tokens, self.num_requests, self.accesses, self._sessions()
        )

    def _nothing(self) -> TraceError:
        if self.tenant is not None and self.tenant not in self.tenants:
            known = ", ".join(sorted(self.tenants)[:_MAX_SHOWN]) or "no tenant at all"
            reason = f"no line is of tenant {self.tenant!r}"
            return TraceError(self.path, 0, reason, f"its lines name {known}")
        if self.num_requests:
            reason = f"none of its {self.num_requests} requests has a block"
            return TraceError(self.path, 0, reason, "give one with longer prompts")
        return TraceError(self.path, 0, "it has no requests", _FILE_REMEDY)

    def _sessions(self) -> Sequence[int] | None:
        if all(name is None for name in self.session_names):
            return None
        numbers: dict[object, int] = {}
        # A request that names no conversation is one of its own.
        names = (at if name is None else (name,) for at, name in enumerate(self.session_names))
        return [numbers.setdefault(name, len(numbers)) for name in names]
