"""Which adapter does an engine serve under a number, and may its KV be shared?

An engine knows adapters by number, name and path and keeps serving what it once read. So an
adapter's identity is its contents when first met; once its files have changed, or its number
or name stands for other files, nobody can say what the engine's memory and its own prefix
cache hold, and the adapter stays unknown until the engine restarts.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kvext.connector.identity import DigestQueue, Identity, IdentityState, Ticket
from kvext.connector.plan import AdapterGuard
from kvext.errors import IdentityUnknown
from kvext.protocol.digest import WeightsSnapshot

__all__ = ["AdapterBook", "AdapterIdentity", "AdapterRef"]

_logger = logging.getLogger(__name__)
_MAX_ADAPTERS = 65_536


@dataclass(frozen=True, slots=True)
class AdapterRef:
    """An adapter as the engine names it."""

    adapter_id: int
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class AdapterIdentity:
    """An adapter's identity and, if known, the state of its files that it holds for."""

    identity: Identity
    guard: AdapterGuard | None = None


@dataclass(slots=True)
class _Entry:
    ref: AdapterRef
    snapshot: WeightsSnapshot
    ticket: Ticket


class AdapterBook:
    """Every adapter that this engine was asked for."""

    __slots__ = ("_by_id", "_by_name", "_digest", "_queue", "_snapshot", "_spoiled")

    def __init__(
        self,
        queue: DigestQueue,
        snapshot: Callable[[str], WeightsSnapshot],
        digest: Callable[[str], bytes],
    ) -> None:
        """Begin an empty book.

        Args:
            queue: Where digests are computed.
            snapshot: The state of the files at an adapter's path; raises IdentityUnknown.
            digest: The digest of the adapter at a path; raises IdentityUnknown.
        """
        self._queue = queue
        self._snapshot = snapshot
        self._digest = digest
        self._by_id: dict[int, _Entry] = {}
        self._by_name: dict[str, _Entry] = {}
        self._spoiled: dict[str, str] = {}

    def resolve(self, ref: AdapterRef) -> AdapterIdentity:
        """Say what is known of an adapter now; some 50 us, as its files are looked at.

        Args:
            ref: The adapter as the request names it.

        Returns:
            Its identity; pending on first sight.
        """
        spoiled = self._spoiled.get(ref.name)
        if spoiled is not None:
            return AdapterIdentity(Identity.unknown(spoiled))
        try:
            now = self._snapshot(ref.path)
        except IdentityUnknown as error:
            return AdapterIdentity(Identity.unknown(str(error)))
        entry = self._by_id.get(ref.adapter_id) or self._by_name.get(ref.name)
        if entry is None:
            entry = self._meet(ref, now)
        if entry.snapshot != now or (entry.ref.name, entry.ref.path) != (ref.name, ref.path):
            return AdapterIdentity(self._spoil(ref, entry))
        self._by_id.setdefault(ref.adapter_id, entry)
        identity = entry.ticket.identity
        if identity.state is not IdentityState.KNOWN:
            return AdapterIdentity(identity)
        return AdapterIdentity(identity, AdapterGuard(ref.adapter_id, now))

    def _meet(self, ref: AdapterRef, now: WeightsSnapshot) -> _Entry:
        if len(self._by_id) >= _MAX_ADAPTERS:
            oldest = self._by_id.pop(next(iter(self._by_id)))
            self._by_name.pop(oldest.ref.name, None)
        path = ref.path
        entry = _Entry(ref, now, self._queue.submit(lambda: self._digest(path)))
        self._by_id[ref.adapter_id] = entry
        self._by_name[ref.name] = entry
        return entry

    def _spoil(self, ref: AdapterRef, entry: _Entry) -> Identity:
        reason = (
            f"adapter {ref.name!r} (number {ref.adapter_id}) stands for other files than when it "
            f"was first served ({entry.ref.path}); restart the engine to cache it again"
        )
        for name in {ref.name, entry.ref.name}:
            self._spoiled[name] = reason
        _logger.warning("kvext: %s; it is served uncached", reason)
        return Identity.unknown(reason)
