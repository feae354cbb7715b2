"""Session hints replayed from a trace itself: what an application that knows its users would say.

Only the trace's own future is used: the last request of a conversation is the one after which
nothing of the trace continues it. The chosen share of conversations is the same for the same seed.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from kvext.simulation.trace import Trace
from kvext.tenancy.policy import Access, Session

__all__ = ["find_sessions", "with_session_hints"]

_MIN_SHARED_BLOCKS = 2
"""One block may be an instruction that all conversations begin with."""
_MAX_LOST_BLOCKS = 2
"""The end of the earlier prompt that need not return: its partial tail, and one block that the
chat template changed."""


def with_session_hints(
    trace: Trace, fraction: float, *, seed: int = 0, returns: bool = False
) -> Trace:
    """The same trace, in which a share of the conversations says whether it goes on.

    Args:
        trace: Requests, with or without named conversations.
        fraction: Share of the conversations that say so, 0 to 1.
        seed: Chooses them.
        returns: Whether they also say when the next request comes.

    Returns:
        A trace whose accesses of the chosen conversations are `OPEN`, and `CLOSED` at their last
        request; what the other accesses say stays.
    """
    sessions = find_sessions(trace.accesses) if trace.sessions is None else trace.sessions
    draw = random.Random(seed)  # noqa: S311 - chooses a sample, guards nothing
    telling = [draw.random() < fraction for _ in range(max(sessions, default=-1) + 1)]
    accesses = list(trace.accesses)
    next_ms: dict[int, int] = {}
    for at in range(len(accesses) - 1, -1, -1):
        access, session = accesses[at], sessions[at]
        if telling[session]:
            accesses[at] = _with_hint(access, next_ms.get(session), returns=returns)
        next_ms[session] = access.now_ms
    return replace(trace, accesses=accesses, sessions=sessions)


def _with_hint(access: Access, next_ms: int | None, *, returns: bool) -> Access:
    if next_ms is None:
        return replace(access, session=Session.CLOSED, return_ms=-1)
    return_ms = next_ms - access.now_ms if returns else access.return_ms
    return replace(access, session=Session.OPEN, return_ms=return_ms)


def find_sessions(accesses: Sequence[Access]) -> list[int]:
    """Guess conversations from the prompts: one goes on if nearly all of an earlier one returns.

    Args:
        accesses: Requests in the order of their time.

    Returns:
        The conversation of each access, numbered from 0 in the order of their first request.
    """
    latest: dict[int, int] = {}
    sessions: list[int] = []
    num_sessions = 0
    for at, access in enumerate(accesses):
        num_known = 0
        for key in access.keys:
            if key not in latest:
                break
            num_known += 1
        session = num_sessions
        if num_known >= _MIN_SHARED_BLOCKS:
            earlier = latest[access.keys[num_known - 1]]
            if num_known >= len(accesses[earlier].keys) - _MAX_LOST_BLOCKS:
                session = sessions[earlier]
        num_sessions += session == num_sessions
        sessions.append(session)
        latest.update(dict.fromkeys(access.keys, at))
    return sessions
