"""Gives back what dead and hung processes held, and counts it."""

from kvext.agent.counters import Counters
from kvext.pool import Pool, ReapReport

__all__ = ["reap"]


def reap(pool: Pool, counters: Counters) -> ReapReport:
    """Fence who is dead or hung, and free what they left.

    Args:
        pool: Attached.
        counters: Take the counts.

    Returns:
        What was found.
    """
    report = pool.reap()
    counters.reaps += 1
    counters.dead_processes += report.num_dead
    counters.hung_processes += report.num_hung
    counters.freed_extents += report.num_freed
    return report
