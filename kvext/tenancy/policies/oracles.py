"""The policies' Python forms by name: definitions to read and to test the native forms against.

They decide as the native forms do, to the last digit, and take some hundred times as long.
"""

from kvext.tenancy.policies.arc import Arc
from kvext.tenancy.policies.batched import Batched
from kvext.tenancy.policies.bounded import BoundedCache, Rules
from kvext.tenancy.policies.duel import Duel
from kvext.tenancy.policies.hazard import Hazard
from kvext.tenancy.policies.logit import LogitModel
from kvext.tenancy.policies.lru import Lru
from kvext.tenancy.policies.lru2 import Lru2
from kvext.tenancy.policies.s3fifo import S3Fifo
from kvext.tenancy.policies.table import TableModel
from kvext.tenancy.policy import EvictionPolicy

__all__ = ["make_oracle"]


def make_oracle(
    name: str, capacity: int, *, seed: int = 0, by_seconds: bool = False
) -> EvictionPolicy:
    """As `make_policy`, in Python.

    Raises:
        KeyError: There is no such policy.
    """
    rules: Rules
    match name:
        case "lru":
            rules = Lru()
        case "lru2":
            rules = Batched(Lru2(capacity))
        case "arc":
            rules = Batched(Arc(capacity))
        case "s3fifo":
            rules = Batched(S3Fifo(capacity))
        case "hazard-table":
            rules = Hazard(TableModel(), capacity, seed=seed, by_seconds=by_seconds)
        case "hazard-logit":
            rules = Hazard(LogitModel(), capacity, seed=seed, by_seconds=by_seconds)
        case "duel":
            rules = Duel(capacity, seed=seed, by_seconds=by_seconds)
        case _:
            raise KeyError(name)
    return BoundedCache(rules, capacity)
