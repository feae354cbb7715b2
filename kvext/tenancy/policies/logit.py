"""The hazard as a logistic regression that is learnt while the cache runs.

The log-odds of a hit in a bin are the bin's bias and for each feature the sum of two weights of its
bucket: one for the group of bins that this bin belongs to and one for all bins. Steps are AdaGrad's
(Duchi, Hazan, Singer: Adaptive subgradient methods for online learning and stochastic
optimization, JMLR 2011).
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from kvext.tenancy.policies.features import Feature, crossed
from kvext.tenancy.policies.runs import Run
from kvext.tenancy.policies.survival import NUM_BINS
from kvext.tenancy.policy import Session

__all__ = ["LogitModel"]

_BINS_A_GROUP = 5
_NUM_GROUPS = 4
_SHARED = _NUM_GROUPS  # the place of a bucket's weight for all bins
_RATE = 0.04
_WEIGHT_POWER = 0.15  # a run of n blocks counts as n**0.15, since its blocks behave alike

# Before anything is learnt. Of every workload that we saw: what was used again will be, a partial
# tail will not.
_FIRST_HAZARD = 0.1
_COUNT_PRIOR = {1: 0.0, 2: 0.7, 3: 1.12, 4: 1.4, 5: 1.75}
_TAIL_PRIOR = -2.0
_SESSION_PRIOR = {Session.OPEN: 1.0, Session.CLOSED: -4.0}
_NUM_SESSION_COUNTS = 8
# By distance from the bin in which the application expects to be back: 3 and more bins before it,
# 2, 1, the bin itself, 1 after it, 2, 3 and more.
_RETURN_PRIOR = (-3.0, -2.0, 0.0, 2.0, 1.0, 0.0, -1.0)
_FARTHEST = 3


class _Weight:
    __slots__ = ("squares", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value = value
        self.squares = 1.0  # of all gradients

    def step(self, gradient: float) -> None:
        self.squares += gradient * gradient
        self.value -= _RATE * gradient / math.sqrt(self.squares)


def _bucket() -> list[_Weight]:
    return [_Weight() for _ in range(_NUM_GROUPS + 1)]


class LogitModel:
    """A `HazardModel` of all features and of the hint of a return."""

    __slots__ = ("_bias", "_by_return", "_weights")

    def __init__(self) -> None:
        """Begin with the priors."""
        first_log_odds = math.log(_FIRST_HAZARD / (1 - _FIRST_HAZARD))
        self._bias = [_Weight(first_log_odds) for _ in range(NUM_BINS)]
        self._weights: dict[tuple[int, int], list[_Weight]] = defaultdict(_bucket)
        self._by_return = [_Weight(value) for value in _RETURN_PRIOR]
        for count, value in _COUNT_PRIOR.items():
            self._weights[Feature.COUNT, count][_SHARED].value = value
        self._weights[Feature.TAIL, 1][_SHARED].value = _TAIL_PRIOR
        for session, value in _SESSION_PRIOR.items():
            for count in range(_NUM_SESSION_COUNTS):
                bucket = self._weights[Feature.SESSION, crossed(session, count)]
                bucket[_SHARED].value = value

    def hazards(self, run: Run, first_bin: int) -> Sequence[float]:
        """See `HazardModel.hazards`."""
        buckets = self._buckets(run)
        of_all = _sum_of(buckets, _SHARED)
        of_groups = [_sum_of(buckets, group) for group in range(_NUM_GROUPS)]
        out = [0.0] * NUM_BINS
        for this_bin in range(first_bin, NUM_BINS):
            out[this_bin] = self._hazard(
                run, this_bin, of_groups[this_bin // _BINS_A_GROUP], of_all
            )
        return out

    def learn(self, run: Run, this_bin: int, hits: int, risk: int) -> None:
        """See `HazardModel.learn`."""
        buckets = self._buckets(run)
        group = this_bin // _BINS_A_GROUP
        hazard = self._hazard(run, this_bin, _sum_of(buckets, group), _sum_of(buckets, _SHARED))
        gradient = (hazard - hits / risk) * math.pow(risk, _WEIGHT_POWER)
        self._bias[this_bin].step(gradient)
        for bucket in buckets:
            bucket[group].step(gradient)
            bucket[_SHARED].step(gradient)
        if run.return_bin is not None:
            self._by_return[_distance(run.return_bin, this_bin)].step(gradient)

    def _hazard(self, run: Run, this_bin: int, of_group: float, of_all: float) -> float:
        log_odds = self._bias[this_bin].value + of_group + of_all
        if run.return_bin is not None:
            log_odds += self._by_return[_distance(run.return_bin, this_bin)].value
        return 1 / (1 + math.exp(-log_odds))

    def _buckets(self, run: Run) -> list[list[_Weight]]:
        return [self._weights[place] for place in enumerate(run.features)]


def _sum_of(buckets: list[list[_Weight]], place: int) -> float:
    # Left to right, rounded at each step, as the definition has it and `sum` in new Pythons not.
    total = 0.0
    for bucket in buckets:
        total += bucket[place].value
    return total


def _distance(return_bin: int, this_bin: int) -> int:
    return max(-_FARTHEST, min(_FARTHEST, this_bin - return_bin)) + _FARTHEST
