"""A short name for the adapter contents that an engine computes with, for its own block hashes.

An engine hashes blocks with an adapter's name. Two requests may share a block only if the
engine's memory held the same adapter for both, so the name is completed by a token that is
shared only while the files are as the engine read them. Invariant: a doubt is a token of its
own, with which nothing is ever found.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvext.connector.report import AdapterRead
from kvext.protocol.digest import WeightsSnapshot

__all__ = ["AdapterTokens", "doubt_token"]

_MAX_ADAPTERS = 65_536


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the engine's memory holds under one adapter number, for all we know.

    Attributes:
        snapshot: The files as the engine read them, or is about to; None if they moved meanwhile.
        num_changes: Keeps two times of the same state apart when it was another in between.
    """

    snapshot: WeightsSnapshot | None
    num_changes: int

    @property
    def token(self) -> str:
        """Equal in every engine that reads the same files of this host once."""
        state = repr((self.num_changes, self.snapshot)).encode()
        return hashlib.sha256(state).hexdigest()[:32]


class AdapterTokens:
    """The tokens of all adapters; asked on one thread, told of reads on another."""

    __slots__ = ("_entries", "_lock", "_snapshot")

    def __init__(self, snapshot: Callable[[str], WeightsSnapshot]) -> None:
        """Begin with none.

        Args:
            snapshot: The state of the files at an adapter's path; raises IdentityUnknown.
        """
        self._snapshot = snapshot
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()

    def token(self, adapter_id: int, path: str) -> str:
        """The token for a request that arrives now; some 50 us, as the files are looked at.

        Args:
            adapter_id: The engine's number for the adapter.
            path: Its folder.

        Raises:
            IdentityUnknown: It is no local folder.
        """
        now = self._snapshot(path)
        with self._lock:
            entry = self._entries.get(adapter_id)
            if entry is None and len(self._entries) < _MAX_ADAPTERS:
                entry = self._entries[adapter_id] = _Entry(now, 0)
        if entry is None or entry.snapshot != now:
            return doubt_token()
        return entry.token

    def note(self, read: AdapterRead) -> None:
        """Hear that the engine has read an adapter, in the order in which it did."""
        with self._lock:
            entry = self._entries.get(read.adapter_id)
            if entry is None or entry.snapshot is None or entry.snapshot != read.snapshot:
                num_changes = 0 if entry is None else entry.num_changes + 1
                self._entries[read.adapter_id] = _Entry(read.snapshot, num_changes)


def doubt_token() -> str:
    """A token that nobody else has."""
    return secrets.token_hex(16)
