"""One trace against sizes and policies, with the bound that no policy can pass.

Invariant: each size and policy meets the same requests, from an empty cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from kvext.errors import CapacityError
from kvext.simulation.bound import Bound, find_bound
from kvext.simulation.replay import OneCache, Outcome, ProgressCallback, Replay, replay
from kvext.simulation.trace import Trace
from kvext.tenancy.policies import POLICIES, make_policy

__all__ = ["Sizing", "check_capacities", "size_trace"]


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one policy made of one size.

    Attributes:
        policy: Its name.
        capacity_blocks: Blocks that the cache holds at most.
        replays: One replay for each seed.
        seeds: The seeds.
        optimal: The optimum at this size; None if it was not asked for.
    """

    policy: str
    capacity_blocks: int
    seeds: tuple[int, ...]
    replays: tuple[Replay, ...]
    optimal: Bound | None

    @property
    def num_blocks(self) -> int:
        """Block accesses of one replay."""
        return self.replays[0].total.num_blocks

    @property
    def hit_ratios(self) -> tuple[float, ...]:
        """Hits per block access, for each seed."""
        return tuple(one.total.hit_ratio for one in self.replays)

    @property
    def hit_ratio(self) -> float:
        """The mean over the seeds."""
        return fmean(self.hit_ratios)

    @property
    def optimal_hit_ratio(self) -> float | None:
        """What a policy that knows the future would reach; None if it was not asked for."""
        return None if self.optimal is None else self.optimal.hit_ratio

    @property
    def saved_s(self) -> float:
        """Seconds of computing again that were saved, mean over the seeds."""
        return fmean(one.total.saved_s for one in self.replays)

    @property
    def accesses_per_second(self) -> float:
        """Block accesses replayed per second, all seeds together."""
        return len(self.replays) * self.num_blocks / sum(one.elapsed_s for one in self.replays)

    @property
    def written_per_hit(self) -> float | None:
        """Blocks written for each one found; None without a hit."""
        num_hits = sum(one.total.num_hits for one in self.replays)
        return sum(one.total.num_written for one in self.replays) / num_hits if num_hits else None

    def _mean(self, figure: Callable[[Outcome], int]) -> float:
        figures = [figure(one.total) for one in self.replays]
        return fmean(figures) if len(figures) > 1 else figures[0]

    def as_dict(self) -> dict[str, object]:
        """The figures as JSON-ready data; with several seeds their means."""
        several = len(self.seeds) > 1
        return {
            "policy": self.policy,
            "capacity_blocks": self.capacity_blocks,
            **({"seeds": self.seeds} if several else {"seed": self.seeds[0]}),
            "hit_ratio": self.hit_ratio,
            **({"hit_ratios": self.hit_ratios} if several else {}),
            "optimal_hit_ratio": self.optimal_hit_ratio,
            "recompute_seconds_saved": self.saved_s,
            "optimal_recompute_seconds_saved": None
            if self.optimal is None
            else self.optimal.saved_s,
            "accesses_per_second": self.accesses_per_second,
            "num_block_accesses": self.num_blocks,
            "num_hits": self._mean(lambda total: total.num_hits),
            "blocks_written": self._mean(lambda total: total.num_written),
            "blocks_written_per_hit": self.written_per_hit,
        }


def check_capacities(capacities: Sequence[int], distinct_blocks: int) -> None:
    """Refuse capacities that hold all there is.

    Raises:
        CapacityError: Names the largest that makes sense.
    """
    for capacity in capacities:
        if capacity > distinct_blocks:
            raise CapacityError(capacity, distinct_blocks)


def size_trace(
    trace: Trace,
    *,
    policies: Sequence[str],
    capacities: Sequence[int],
    seeds: Sequence[int] = (0,),
    by_seconds: bool = False,
    with_optimum: bool = True,
    on_progress: ProgressCallback | None = None,
) -> list[Sizing]:
    """Replay a trace at every size with every policy.

    Args:
        trace: The requests.
        policies: Names of policies.
        capacities: Sizes in blocks.
        seeds: One replay for each, of the policies that use a seed.
        by_seconds: Whether policies that can weigh hits by what they save.
        with_optimum: Whether to find the optimum, too.
        on_progress: Told of block accesses done; the optimum counts as one replay.

    Returns:
        One sizing for each size and policy, size by size.

    Raises:
        CapacityError: A size holds the whole trace.
    """
    check_capacities(capacities, trace.distinct_blocks())
    sizings = []
    for capacity in capacities:
        optimal = None
        if with_optimum:
            optimal = find_bound(trace.accesses, capacity)
            if on_progress is not None:
                on_progress(trace.num_blocks)
        for name in policies:
            # The others decide the same with every seed.
            own_seeds = tuple(seeds) if POLICIES[name].seeded else tuple(seeds)[:1]
            replays = tuple(
                replay(
                    OneCache(make_policy(name, capacity, seed=seed, by_seconds=by_seconds)),
                    ((0, access) for access in trace.accesses),
                    on_progress=on_progress,
                )
                for seed in own_seeds
            )
            sizings.append(Sizing(name, capacity, own_seeds, replays, optimal))
    return sizings
