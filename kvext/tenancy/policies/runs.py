"""Records of accesses, and when a model learns from them.

A run is a stretch of a prompt whose blocks have the same past; one record serves them all. The
model learns from a record once for each bin, when the bin is over: how many of the run's blocks
had survived until then, and how many of those were hit in it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvext.tenancy.policies.features import Features
from kvext.tenancy.policies.survival import BIN_EDGES_MS, NUM_BINS, bin_of, gittins_index

__all__ = ["HazardModel", "Record", "Run", "Runs"]

_INDEX_LASTS_MS = 5000
_MOST_UNLEARNT = 1 << 17


@dataclass(frozen=True, slots=True)
class Run:
    """What a model may look at.

    Attributes:
        features: As `Prompt.features` gives them.
        return_bin: In which bin the application expects to be back; None if it did not say.
    """

    features: Features
    return_bin: int | None = None


class HazardModel(Protocol):
    """Estimates of the hazard."""

    def hazards(self, run: Run, first_bin: int) -> Sequence[float]:
        """For each bin the hazard; those before `first_bin` are not looked at."""
        ...

    def learn(self, run: Run, this_bin: int, hits: int, risk: int) -> None:
        """Of a run's `risk` > 0 blocks that survived until a bin, `hits` were hit in it."""
        ...


class Record:
    """One access of a run.

    Attributes:
        run: What the model sees of it.
        at_ms: When it was.
        gap_ms: Since the conversation's last request; -1 in its first.
        prompt_blocks: Blocks of the whole prompt.
        turn: Of the conversation, from 1.
        num_blocks: Blocks of the run.
        hits: How many of them were asked for again, by the age at which they were.
    """

    __slots__ = (
        "_index",
        "_indexed_bin",
        "_indexed_ms",
        "at_ms",
        "gap_ms",
        "hits",
        "num_blocks",
        "prompt_blocks",
        "run",
        "turn",
    )

    def __init__(self, run: Run, at_ms: int, gap_ms: int, prompt_blocks: int, turn: int) -> None:
        """Begin without blocks."""
        self.run = run
        self.at_ms = at_ms
        self.gap_ms = gap_ms
        self.prompt_blocks = prompt_blocks
        self.turn = turn
        self.num_blocks = 0
        self.hits = [0] * NUM_BINS
        self._index = 0.0
        self._indexed_bin: int | None = None
        self._indexed_ms = 0

    def note_hit(self, now_ms: int) -> None:
        """One of its blocks was asked for."""
        self.hits[bin_of(now_ms - self.at_ms)] += 1

    def num_survivors(self, this_bin: int) -> int:
        """Blocks that came to this bin without a hit."""
        return self.num_blocks - sum(self.hits[:this_bin])

    def index(self, model: HazardModel, now_ms: int) -> float:
        """Hits per millisecond that a block of it promises now, by a model up to 5 s old."""
        this_bin = bin_of(now_ms - self.at_ms)
        if this_bin != self._indexed_bin or now_ms - self._indexed_ms >= _INDEX_LASTS_MS:
            self._index = gittins_index(model.hazards(self.run, this_bin), this_bin)
            self._indexed_bin = this_bin
            self._indexed_ms = now_ms
        return self._index


class Runs:
    """Records that the model has not learnt all of yet, oldest first; bounded."""

    __slots__ = ("_first", "_learns_one_of", "_model", "_next", "_num_started", "_unlearnt")

    def __init__(self, model: HazardModel) -> None:
        """Begin without records."""
        self._model = model
        self._unlearnt: deque[Record] = deque()
        self._first = 0  # number of the first of them
        self._next = [0] * NUM_BINS  # for each bin the number of the next one to learn from
        self._num_started = 0
        self._learns_one_of = 1

    def start(self, record: Record) -> None:
        """A record has begun; learn from it when its time comes."""
        self._num_started += 1
        if self._num_started % self._learns_one_of == 0:
            self._unlearnt.append(record)
            if len(self._unlearnt) > _MOST_UNLEARNT:
                self._learn_less()

    def learn(self, now_ms: int) -> None:
        """Learn from every record that has left a bin since the last call."""
        end = self._first + len(self._unlearnt)
        for this_bin, bin_end_ms in enumerate(BIN_EDGES_MS[1:]):
            while self._next[this_bin] < end:
                record = self._unlearnt[self._next[this_bin] - self._first]
                if record.at_ms + bin_end_ms > now_ms:
                    break
                risk = record.num_survivors(this_bin)
                if risk > 0:
                    self._model.learn(record.run, this_bin, record.hits[this_bin], risk)
                self._next[this_bin] += 1
        while self._first < self._next[-1]:
            self._drop_first()

    def index(self, record: Record, now_ms: int) -> float:
        """What a block of the run is worth: its expected hits per millisecond of residence."""
        return record.index(self._model, now_ms)

    def _learn_less(self) -> None:
        # Many runs a second: to learn from all ages within bounded memory, learn from fewer runs.
        self._learns_one_of *= 2
        while len(self._unlearnt) > _MOST_UNLEARNT // 2:
            self._drop_first()

    def _drop_first(self) -> None:
        self._unlearnt.popleft()
        self._first += 1
        self._next = [max(number, self._first) for number in self._next]
