"""What one agent has done since it started."""

from dataclasses import dataclass

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Written by the loop alone; the admin port reads it.

    Attributes:
        looks: Snapshots of the pool's records.
        reclaims: Times that room was made.
        reclaimed_records: Records evicted ahead of need.
        reclaimed_without_policy: Of those, records chosen by their last access alone, because the
            policy had failed.
        reaps: Times that dead and hung processes were looked for.
        dead_processes: Found dead.
        hung_processes: Fenced as hung.
        freed_extents: Given back by reaping.
    """

    looks: int = 0
    reclaims: int = 0
    reclaimed_records: int = 0
    reclaimed_without_policy: int = 0
    reaps: int = 0
    dead_processes: int = 0
    hung_processes: int = 0
    freed_extents: int = 0
