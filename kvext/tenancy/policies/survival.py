"""Reuse as a survival problem.

The time since a block's last access falls into bins. A model says for each bin how probable a hit
is in it if none came before (the hazard); the index says what a block is worth that has come to
a bin without a hit.
"""

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["BIN_EDGES_MS", "NUM_BINS", "bin_of", "gittins_index"]

BIN_EDGES_MS = tuple(
    1000 * edge_s
    for edge_s in (
        *(0, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
        *(1024, 1536, 2560),
    )
)
NUM_BINS = len(BIN_EDGES_MS) - 1


def bin_of(age_ms: int) -> int:
    """The bin that an age falls into; the last one has no end."""
    return bisect_right(BIN_EDGES_MS, age_ms, 1, NUM_BINS) - 1


def gittins_index(hazards: Sequence[float], first_bin: int) -> float:
    """The most hits per millisecond of residence that a block can promise.

    A rule "keep it until the end of this bin, unless it is hit before" costs an expected time of
    residence and brings an expected number of hits; the index is the best rule's quotient. A hit
    is taken to come in the middle of its bin.

    Source: Gittins: Bandit processes and dynamic allocation indices (1979).

    Args:
        hazards: For each bin from `first_bin` on; what stands before is not looked at.
        first_bin: Where the block is now.
    """
    index = hits = residence_ms = 0.0
    survival = 1.0
    for this_bin in range(first_bin, NUM_BINS):
        hazard = hazards[this_bin]
        width_ms = BIN_EDGES_MS[this_bin + 1] - BIN_EDGES_MS[this_bin]
        hits += survival * hazard
        residence_ms += survival * width_ms * (1 - hazard / 2)
        survival *= 1 - hazard
        index = max(index, hits / residence_ms)
    return index
