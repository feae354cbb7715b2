"""The tables of `eviction.py` on made-up traffic, of which no policy was tuned on any."""

import heapq
import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kvext.simulation.bound import find_bound
from kvext.simulation.generators import Chat, Generator, Loop, Unique, Zipf, generate
from kvext.simulation.replay import OneCache, replay
from kvext.tenancy.policies import DEFAULT_POLICY, make_policy
from kvext.tenancy.policy import Access

__all__ = ["checks", "made_up_traffic"]

HOUR_S = 3600.0
BLOCK_TOKENS = 512
SIZES = (300, 1000, 3000, 10_000)
POLICIES = ("lru", "lru2", "arc", "s3fifo", "hazard-logit", DEFAULT_POLICY)
INSURANCE_POINTS = 0.3

CHAT = Chat(
    sessions_per_second=0.5,
    first_blocks=8,
    blocks_per_turn=3,
    shared_blocks=6,
    mean_turns=5,
    mean_think_s=60,
)


def made_up_traffic() -> dict[str, dict[str, object]]:
    """Hits in percent of each policy, kind of traffic by kind, with the optimum."""
    tables: dict[str, dict[str, object]] = {}
    for name, accesses in _kinds().items():
        num_distinct = len({key for access in accesses for key in access.keys})
        sizes = [size for size in SIZES if size < num_distinct]
        tables[name] = {
            "sizes": sizes,
            "hits_percent": {
                policy: [_hits_percent(accesses, policy, size) for size in sizes]
                for policy in POLICIES
            },
            "optimum_percent": [
                round(100 * find_bound(accesses, size).hit_ratio, 2) for size in sizes
            ],
        }
    return tables


def checks(tables: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """The default is never far below the better of LRU and LRU-2."""
    worst = 0.0
    for table in tables.values():
        hits = table["hits_percent"]
        assert isinstance(hits, dict)
        for ours, lru, lru2 in zip(hits[DEFAULT_POLICY], hits["lru"], hits["lru2"], strict=True):
            worst = max(worst, max(lru, lru2) - ours)
    return {
        "default_below_the_better_on_made_up_traffic": {
            "value": round(worst, 2),
            "bound": INSURANCE_POINTS,
            "holds": worst <= INSURANCE_POINTS,
        }
    }


def _hits_percent(accesses: Sequence[Access], policy: str, size: int) -> float:
    cache = OneCache(make_policy(policy, size, seed=0))
    return round(100 * replay(cache, ((0, access) for access in accesses)).total.hit_ratio, 2)


def _kinds() -> dict[str, list[Access]]:
    popular = Zipf(requests_per_second=5, blocks_per_prompt=20, documents=3000, exponent=0.8)
    return {
        "loop": _mix(Loop(requests_per_second=2, blocks_per_prompt=20, documents=300)),
        "documents, Zipf 0.8": _mix(popular),
        "documents, Zipf 1.2": _mix(
            Zipf(requests_per_second=5, blocks_per_prompt=20, documents=3000, exponent=1.2)
        ),
        "documents and a loop": _mix(
            Zipf(requests_per_second=3, blocks_per_prompt=20, documents=1000),
            Loop(requests_per_second=1, blocks_per_prompt=40, documents=50),
        ),
        "documents that change": list(_changing_documents()),
        "chat": _mix(CHAT),
        "chat and a scanner": _mix(CHAT, Unique(requests_per_second=2, blocks_per_prompt=60)),
        "agents": _agents(),
    }


def _mix(*generators: Generator) -> list[Access]:
    traces = [
        generate(generator, duration_s=HOUR_S, block_tokens=BLOCK_TOKENS, seed=seed).accesses
        for seed, generator in enumerate(generators)
    ]
    apart = (_moved(trace, at) for at, trace in enumerate(traces, start=1))
    return list(heapq.merge(*apart, key=lambda access: access.now_ms))


def _moved(accesses: Iterable[Access], number: int) -> Iterator[Access]:
    for access in accesses:
        keys = array("Q", [key + number * 10**9 for key in access.keys])
        yield replace(access, keys=keys)


def _access(at_s: float, keys: Sequence[int], output_tokens: int) -> Access:
    return Access(int(at_s * 1000), array("Q", keys), len(keys) * BLOCK_TOKENS, output_tokens)


def _changing_documents() -> Iterator[Access]:
    """Questions about documents; every 400 s other documents are popular."""
    draw = random.Random(3)  # noqa: S311 - reproducible, not secret
    at_s = 0.0
    while (at_s := at_s + draw.expovariate(4)) < HOUR_S:
        document = int(at_s // 400) * 400 + int(draw.paretovariate(0.8)) % 400
        question = 10**12 + 2 * draw.randrange(10**9)
        keys = [*range(document * 20, document * 20 + 20), question, question + 1]
        yield _access(at_s, keys, output_tokens=100)


def _agents() -> list[Access]:
    """Sessions of many quick turns after a long instruction; now and then one takes a break."""
    draw = random.Random(5)  # noqa: S311 - reproducible, not secret
    accesses = []
    start_s, session = 0.0, 0
    while (start_s := start_s + draw.expovariate(0.15)) < HOUR_S:
        session += 1
        at_s, num_own = start_s, 10
        for _ in range(int(draw.expovariate(1 / 25)) + 1):
            own = range(session * 100_000, session * 100_000 + num_own)
            accesses.append(_access(at_s, [*range(60), *own], output_tokens=80))
            num_own += draw.choice((1, 1, 2, 4))
            at_s += draw.expovariate(1 / 5) + 1
            if draw.random() < 0.02:  # noqa: PLR2004
                at_s += draw.expovariate(1 / 300)
    return sorted(accesses, key=lambda access: access.now_ms)
