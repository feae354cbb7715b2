"""What a worker is told at its birth."""

import msgspec

__all__ = ["Arm", "Orders"]


class Arm(msgspec.Struct, frozen=True):
    """A step of the core at whose `countdown`-th passage the worker sends itself a signal."""

    label: str
    countdown: int
    signal: int


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's task. `task` names a function of `tests.faults.tasks`."""

    task: str
    row: int
    region: str
    ledger: str
    folder: str
    """Where the pipes `ROW.in` and `ROW.out` are."""
    seed: int = 0
    arm: Arm | None = None
    num_rows: int = 1
    """Rows whose keys exist."""
    pace_s: float = 0.0
    """Pause between operations, spent waiting for a command."""
    lock_wait_s: float = 0.1
    is_damaged: bool = False
    """Bits flip meanwhile: every load is verified, and records may be corrupt or gone."""
