"""Identities that take time: digests are computed beside the engine and asked for, not awaited.

Until a digest is there the answer is "pending", and when it cannot be had it is "unknown", with
the reason. Neither ever turns into a guess.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kvext.connector.edge import Edge
from kvext.errors import IdentityUnknown

__all__ = ["DigestQueue", "Identity", "IdentityState", "Ticket"]


class IdentityState(Enum):
    """How much is known."""

    KNOWN = "known"
    PENDING = "pending"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Identity:
    """An answer to "which bytes are these?".

    Attributes:
        state: How much is known.
        digest: 32 bytes if known, else empty.
        reason: Why it is unknown, for people.
    """

    state: IdentityState
    digest: bytes = b""
    reason: str = ""

    @classmethod
    def known(cls, digest: bytes) -> "Identity":
        """An identity with its digest."""
        return cls(IdentityState.KNOWN, digest)

    @classmethod
    def unknown(cls, reason: str) -> "Identity":
        """No identity, for good."""
        return cls(IdentityState.UNKNOWN, reason=reason)

    @classmethod
    def pending(cls) -> "Identity":
        """No identity yet."""
        return cls(IdentityState.PENDING)


class Ticket:
    """One digest that was asked for.

    Attributes:
        identity: The answer so far.
    """

    __slots__ = ("_done", "_work", "identity")

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Hold the work until `DigestQueue` does it."""
        self._work = work
        self.identity = Identity.pending()
        self._done = threading.Event()

    def wait(self, timeout_s: float) -> Identity:
        """The answer, awaited for `timeout_s` at most."""
        self._done.wait(timeout_s)
        return self.identity

    def run(self) -> None:
        """Compute the digest; whatever goes wrong makes the identity unknown."""
        identity = Identity.unknown("its digest could not be computed")
        try:
            identity = Identity.known(self._work())
        except IdentityUnknown as error:
            identity = Identity.unknown(str(error))
        except (OSError, ValueError) as error:
            identity = Identity.unknown(f"its digest could not be computed: {error}")
        finally:
            self.identity = identity
            self._done.set()


class DigestQueue:
    """Computes digests one after another on a thread that never keeps a process alive."""

    __slots__ = ("_edge", "_thread", "_tickets")

    def __init__(self, edge: Edge) -> None:
        """Make the queue; its thread starts with the first digest.

        Args:
            edge: Keeps the thread alive whatever a digest raises.
        """
        self._edge = edge
        self._tickets: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], bytes]) -> Ticket:
        """Have a digest computed; the thread does the work in the order of the calls."""
        ticket = Ticket(work)
        self._tickets.put(ticket)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="kvext-digest", daemon=True)
            self._thread.start()
        return ticket

    def close(self) -> None:
        """Let the thread end after the work that is queued."""
        self._tickets.put(None)

    def _serve(self) -> None:
        while (ticket := self._tickets.get()) is not None:
            self._edge.attempt("compute a digest", ticket.run, None)
