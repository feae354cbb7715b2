"""Memory that the engine processes of a host map and share, addressed by block key.

Lookups, loads and stores are plain memory operations in every process: no server takes part.
The native core (`_core`) does what CPython cannot; this package gives it names and types.
"""

from kvext.pool._core import Pages, roam
from kvext.pool.chain import block_keys, extend_chain, extend_keys
from kvext.pool.lease import Lease
from kvext.pool.pool import DEFAULT_LEASE_S, Pool, Reservation
from kvext.pool.report import (
    AttachedProcess,
    ClearReport,
    FenceReport,
    FsckReport,
    NamespaceState,
    NamespaceUse,
    PoolStat,
    Problem,
    ProblemKind,
    ReapReport,
    RecordTable,
)

__all__ = [
    "DEFAULT_LEASE_S",
    "AttachedProcess",
    "ClearReport",
    "FenceReport",
    "FsckReport",
    "Lease",
    "NamespaceState",
    "NamespaceUse",
    "Pages",
    "Pool",
    "PoolStat",
    "Problem",
    "ProblemKind",
    "ReapReport",
    "RecordTable",
    "Reservation",
    "block_keys",
    "extend_chain",
    "extend_keys",
    "roam",
]
