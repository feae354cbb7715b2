"""Eviction policies by name.

Each has two forms that decide alike: a native one, which `make_policy` gives, and one in Python,
in the file of its name, which is its definition and the oracle of its tests.
"""

import difflib
from dataclasses import dataclass

from kvext.errors import UnknownPolicy
from kvext.tenancy.policies import _native
from kvext.tenancy.policies.native import NativePolicy
from kvext.tenancy.policy import EvictionPolicy

__all__ = ["DEFAULT_POLICY", "POLICIES", "POLICY_NAMES", "PolicyInfo", "make_policy"]


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What a person choosing a policy wants to know.

    Attributes:
        summary: One line.
        seeded: Whether its decisions depend on the seed.
    """

    summary: str
    seeded: bool = False


POLICIES = {
    "lru": PolicyInfo("least recently used"),
    "lru2": PolicyInfo("least recent last access but one; knows evicted blocks for a while"),
    "arc": PolicyInfo("recency and frequency, balanced by ghosts"),
    "s3fifo": PolicyInfo("a small queue for new blocks, a main one for those that return"),
    "hazard-table": PolicyInfo("expected hits per time of residence, from a table", seeded=True),
    "hazard-logit": PolicyInfo("expected hits per time of residence, learnt online", seeded=True),
    "duel": PolicyInfo("hazard-logit, insured by shadows of LRU and LRU-2", seeded=True),
}
POLICY_NAMES = tuple(POLICIES)
DEFAULT_POLICY = "duel"


def make_policy(
    name: str, capacity: int, *, seed: int = 0, by_seconds: bool = False
) -> EvictionPolicy:
    """An empty cache under the named policy.

    Args:
        name: One of `POLICY_NAMES`.
        capacity: The most that it may hold, in the unit of `Access.block_size`.
        seed: Of the policies that draw samples.
        by_seconds: Weigh hits by what computing the block again costs; the hazard policies and
            the duel do, others ignore it.

    Raises:
        UnknownPolicy: There is no such policy.
    """
    if name not in POLICIES:
        nearest = difflib.get_close_matches(name, POLICY_NAMES, n=1)
        raise UnknownPolicy(name, nearest[0] if nearest else "", ", ".join(POLICY_NAMES))
    return NativePolicy(_native.make(name, capacity, seed % 2**64, by_seconds))
