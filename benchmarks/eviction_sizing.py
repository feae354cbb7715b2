"""The tables of `eviction.py` that replay one trace at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from kvext.simulation.bound import find_bound
from kvext.simulation.hints import with_session_hints
from kvext.simulation.replay import OneCache, Replay, replay
from kvext.simulation.sizing import size_trace
from kvext.simulation.trace import Trace
from kvext.tenancy.policies import DEFAULT_POLICY, POLICY_NAMES, make_policy
from kvext.tenancy.policy import Access, Admission, EvictionPolicy
from kvext.tenancy.store_admission import StoreAdmission

__all__ = ["checks", "currencies", "policies_and_sizes", "session_hints", "store_admission"]

SIZES = (1000, 2500, 5000, 10_000, 20_000)
HINT_SIZES = (2500, 5000, 10_000)
SEEDS = (0, 1, 2)

# Percent of the blocks, from a scouting study of these policies on these traces by other code.
STUDY = {
    "conversation": {
        "lru": (4.5, 5.9, 11.2, 21.2, 28.8),
        "lru2": (7.3, 12.1, 16.4, 21.5, 25.1),
        "s3fifo": (5.6, 8.3, 14.1, 20.0, 25.1),
        "arc": (5.3, 7.6, 11.5, 22.3, 28.9),
        "hazard-logit": (8.8, 13.0, 17.7, 24.5, 30.7),
    },
    "synthetic": {
        "lru": (8.4, 17.1, 27.9, 42.4, 57.2),
        "lru2": (8.9, 17.5, 29.7, 44.3, 59.4),
        "s3fifo": (9.4, 17.1, 29.1, 43.0, 59.4),
        "arc": (9.3, 17.9, 28.8, 43.5, 59.3),
        "hazard-logit": (9.0, 18.3, 32.3, 48.3, 62.1),
    },
}
FIXED_POLICIES = ("lru", "lru2", "s3fifo", "arc")
FIXED_TOLERANCE = 0.1
DEFAULT_TOLERANCE = 0.3
HINTED_SHARE_OF_GAP = 0.5
SPEEDS = {"lru": 1e6, DEFAULT_POLICY: 3e5}

Row = dict[str, object]


def percent(ratio: float) -> float:
    """A ratio in percent, to hundredths."""
    return round(100 * ratio, 2)


def policies_and_sizes(traces: Mapping[str, Trace]) -> dict[str, Row]:
    """Hits of every policy at every size; the mean of the seeds where a policy draws."""
    tables: dict[str, Row] = {}
    for name, trace in traces.items():
        sizings = size_trace(trace, policies=POLICY_NAMES, capacities=SIZES, seeds=SEEDS)
        by_policy = {
            policy: [sizing for sizing in sizings if sizing.policy == policy]
            for policy in POLICY_NAMES
        }
        one_each = by_policy[DEFAULT_POLICY]
        tables[name] = {
            "sizes": SIZES,
            "hits_percent": {
                policy: [percent(sizing.hit_ratio) for sizing in row]
                for policy, row in by_policy.items()
            },
            "optimum_percent": [percent(sizing.optimal_hit_ratio or 0) for sizing in one_each],
            "saved_s": {
                policy: [round(sizing.saved_s) for sizing in row]
                for policy, row in by_policy.items()
            },
            "written_per_hit": {
                policy: [round(sizing.written_per_hit or 0, 2) for sizing in row]
                for policy, row in by_policy.items()
            },
            "accesses_per_second": {
                policy: round(fmean(sizing.accesses_per_second for sizing in row))
                for policy, row in by_policy.items()
            },
        }
    return tables


def session_hints(traces: Mapping[str, Trace]) -> dict[str, list[Row]]:
    """Hits of the default where applications say of some conversations whether they go on."""
    tables: dict[str, list[Row]] = {}
    for name, trace in traces.items():
        lru = [_hits(trace, "lru", size) for size in HINT_SIZES]
        optimum = [find_bound(trace.accesses, size).hit_ratio for size in HINT_SIZES]
        tables[name] = []
        for fraction, returns in (
            (0.0, False),
            (0.5, False),
            (0.5, True),
            (1.0, False),
            (1.0, True),
        ):
            hits = []
            for size in HINT_SIZES:
                hinted = (
                    with_session_hints(trace, fraction, seed=seed, returns=returns)
                    for seed in SEEDS
                )
                hits.append(
                    fmean(
                        _hits(one, DEFAULT_POLICY, size, seed)
                        for seed, one in zip(SEEDS, hinted, strict=True)
                    )
                )
            gap = [
                round((got - low) / (best - low), 2)
                for got, low, best in zip(hits, lru, optimum, strict=True)
            ]
            tables[name].append(
                {
                    "hinted_share": fraction,
                    "says_when": returns,
                    "sizes": HINT_SIZES,
                    "hits_percent": [percent(ratio) for ratio in hits],
                    "share_of_gap_closed": gap,
                }
            )
    return tables


def currencies(traces: Mapping[str, Trace]) -> dict[str, dict[str, Row]]:
    """Hits and seconds saved by the default where it weighs blocks alike, or by their cost."""
    tables: dict[str, dict[str, Row]] = {}
    for name, trace in traces.items():
        tables[name] = {}
        for by_seconds in (False, True):
            runs = [
                [
                    _replayed(trace, DEFAULT_POLICY, size, seed, by_seconds=by_seconds)
                    for seed in SEEDS
                ]
                for size in SIZES
            ]
            tables[name]["seconds" if by_seconds else "hits"] = {
                "hits_percent": [
                    percent(fmean(run.total.hit_ratio for run in row)) for row in runs
                ],
                "saved_s": [round(fmean(run.total.saved_s for run in row)) for row in runs],
            }
    return tables


def store_admission(traces: Mapping[str, Trace]) -> dict[str, dict[str, Row]]:
    """Hits and writes of a tier that stores everything, and of one that chooses."""
    tables: dict[str, dict[str, Row]] = {}
    for name, trace in traces.items():
        tables[name] = {}
        for policy in ("lru", DEFAULT_POLICY):
            for chooses in (False, True):
                runs = [
                    replay(
                        _ChoosingTier(make_policy(policy, size, seed=0), size, chooses=chooses),
                        ((0, access) for access in trace.accesses),
                    ).total
                    for size in SIZES
                ]
                tables[name][f"{policy}, {'chooses' if chooses else 'stores all'}"] = {
                    "hits_percent": [percent(run.num_hits / trace.num_blocks) for run in runs],
                    "written_per_hit": [round(run.written_per_hit or 0, 2) for run in runs],
                }
    return tables


class _ChoosingTier:
    """A tier that may be offered a part of a request's blocks only."""

    def __init__(self, policy: EvictionPolicy, capacity: int, *, chooses: bool) -> None:
        self._policy = policy
        self._admission = StoreAdmission(capacity) if chooses else None

    @property
    def size(self) -> int:
        return self._policy.size

    def access(self, owner: int, access: Access) -> Admission:
        del owner
        if self._admission is not None:
            is_full = self._policy.size + len(access.keys) > self._policy.capacity
            wanted = self._admission.num_wanted(access, under_pressure=is_full)
            access = replace(
                access,
                keys=access.keys[:wanted],
                partial_tail=access.partial_tail and wanted == len(access.keys),
            )
        return self._policy.access(access)


def checks(sizes: Mapping[str, Row], hints: Mapping[str, Sequence[Row]]) -> dict[str, Row]:
    """What the tables must show."""
    worst_fixed, worst_default, worst_insured = 0.0, 0.0, 0.0
    for name, table in sizes.items():
        hits = table["hits_percent"]
        assert isinstance(hits, dict)
        for policy in FIXED_POLICIES:
            off = [abs(a - b) for a, b in zip(hits[policy], STUDY[name][policy], strict=True)]
            worst_fixed = max(worst_fixed, *off)
        columns = zip(
            hits[DEFAULT_POLICY],
            STUDY[name]["hazard-logit"],
            hits["lru"],
            hits["lru2"],
            strict=True,
        )
        for ours, study, lru, lru2 in columns:
            worst_default = max(worst_default, study - ours)
            worst_insured = max(worst_insured, max(lru, lru2) - ours)
    half = next(row for row in hints["conversation"] if 0 < _number(row, "hinted_share") < 1)
    gap = half["share_of_gap_closed"]
    assert isinstance(gap, list)
    speeds = {
        policy: min(table["accesses_per_second"][policy] for table in sizes.values())  # type: ignore[index]
        for policy in SPEEDS
    }
    return {
        "fixed_policies_off_the_study": _check(worst_fixed, FIXED_TOLERANCE),
        "default_below_hazard_logit_of_the_study": _check(worst_default, DEFAULT_TOLERANCE),
        "default_below_the_better_of_lru_and_lru2": _check(worst_insured, DEFAULT_TOLERANCE),
        "gap_closed_with_hints_of_half": {
            "value": min(gap),
            "bound": HINTED_SHARE_OF_GAP,
            "holds": min(gap) >= HINTED_SHARE_OF_GAP,
        },
        **{
            f"accesses_per_second_{policy}": {
                "value": speeds[policy],
                "bound": bound,
                "holds": speeds[policy] >= bound,
            }
            for policy, bound in SPEEDS.items()
        },
    }


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def _check(value: float, bound: float) -> Row:
    return {"value": round(value, 2), "bound": bound, "holds": value <= bound}


def _hits(trace: Trace, policy: str, size: int, seed: int = 0) -> float:
    return _replayed(trace, policy, size, seed).total.hit_ratio


def _replayed(
    trace: Trace, policy: str, size: int, seed: int, *, by_seconds: bool = False
) -> Replay:
    cache = OneCache(make_policy(policy, size, seed=seed, by_seconds=by_seconds))
    return replay(cache, ((0, access) for access in trace.accesses))
