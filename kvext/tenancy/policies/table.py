"""The table of hazards: five classes of blocks, and the counts of their hits in each bin.

What a class has not shown yet it takes from all blocks together.
"""

from collections.abc import Sequence

from kvext.tenancy.policies.features import Feature
from kvext.tenancy.policies.runs import Run
from kvext.tenancy.policies.survival import NUM_BINS

__all__ = ["TableModel"]

_FIRST_HAZARD = 0.1
_PRIOR_BLOCKS = 50  # weight of all blocks in the estimate for a class
_MOST_COUNT = 4
_NUM_CLASSES = _MOST_COUNT + 1
_TAIL_CLASS = _MOST_COUNT


class _Counts:
    """Of blocks that reached a bin, and of those that were hit in it."""

    __slots__ = ("hits", "risk")

    def __init__(self) -> None:
        self.hits = 0
        self.risk = 0

    def add(self, hits: int, risk: int) -> None:
        self.hits += hits
        self.risk += risk


class TableModel:
    """A `HazardModel` that counts. It does not look at what the application says."""

    __slots__ = ("_all", "_classes")

    def __init__(self) -> None:
        """Know nothing but a hazard of 0.1, held as firmly as one block would."""
        self._classes = [[_Counts() for _ in range(NUM_BINS)] for _ in range(_NUM_CLASSES)]
        self._all = [_Counts() for _ in range(NUM_BINS)]

    def hazards(self, run: Run, first_bin: int) -> Sequence[float]:
        """See `HazardModel.hazards`."""
        out = [0.0] * NUM_BINS
        own_class = self._classes[_class_of(run)]
        for this_bin in range(first_bin, NUM_BINS):
            everybody, own = self._all[this_bin], own_class[this_bin]
            of_all = (everybody.hits + _FIRST_HAZARD) / (everybody.risk + 1)
            out[this_bin] = (own.hits + _PRIOR_BLOCKS * of_all) / (own.risk + _PRIOR_BLOCKS)
        return out

    def learn(self, run: Run, this_bin: int, hits: int, risk: int) -> None:
        """See `HazardModel.learn`."""
        self._classes[_class_of(run)][this_bin].add(hits, risk)
        self._all[this_bin].add(hits, risk)


def _class_of(run: Run) -> int:
    """Blocks with 1, 2, 3, 4 and more accesses; partial tails."""
    if run.features[Feature.TAIL]:
        return _TAIL_CLASS
    return min(run.features[Feature.COUNT], _MOST_COUNT) - 1
