"""From a request's model, adapter and sharing domain to the namespace of its keys."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from kvext.connector.adapters import AdapterBook, AdapterIdentity, AdapterRef
from kvext.connector.identity import Identity, IdentityState
from kvext.connector.plan import AdapterGuard
from kvext.protocol.key import Namespace
from kvext.protocol.layout import KVLayout

__all__ = ["NamespaceBook", "Resolution", "Subject"]

_MAX_NAMESPACES = 4096

_Whose = tuple[bytes, bytes | None, str]
"""Model, adapter, domain."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose KV a request computes and with whom it may be shared.

    Attributes:
        adapter: The adapter, or None for the base model.
        domain: Requests with another domain never meet; `""` is open to all.
    """

    adapter: AdapterRef | None = None
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """A request's namespace, as far as it is known.

    Attributes:
        identity: The namespace's digest, pending, or unknown with the reason.
        guard: The adapter state that the namespace holds for, if there is an adapter.
    """

    identity: Identity
    guard: AdapterGuard | None = None


class NamespaceBook:
    """Derives each namespace once and tells the pool what to call it."""

    __slots__ = ("_adapters", "_announce", "_label", "_layout", "_model", "_resolutions")

    def __init__(
        self,
        model: Callable[[], Identity],
        layout: KVLayout,
        adapters: AdapterBook,
        label: str,
        announce: Callable[[bytes, str, bytes], bool],
    ) -> None:
        """Begin an empty book.

        Args:
            model: The model's identity as far as it is known.
            layout: How the engine arranges KV bytes.
            adapters: The adapters' identities.
            label: The model's name for people.
            announce: Told every namespace's digest with a label (never a salt) and the model's
                digest, until it answers that it has noted them: a fence needs to know them.
        """
        self._model = model
        self._layout = layout
        self._adapters = adapters
        self._label = label
        self._announce = announce
        self._resolutions: OrderedDict[_Whose, Resolution] = OrderedDict()

    def resolve(self, subject: Subject) -> Resolution:
        """Say what is known of a request's namespace now."""
        model = self._model()
        if model.state is not IdentityState.KNOWN:
            return Resolution(model)
        if subject.adapter is None:
            return self._known((model.digest, None, subject.domain), subject)
        adapter: AdapterIdentity = self._adapters.resolve(subject.adapter)
        if adapter.identity.state is not IdentityState.KNOWN:
            return Resolution(adapter.identity)
        known = self._known((model.digest, adapter.identity.digest, subject.domain), subject)
        return Resolution(known.identity, adapter.guard)

    def _known(self, key: _Whose, subject: Subject) -> Resolution:
        known = self._resolutions.get(key)
        if known is not None:
            self._resolutions.move_to_end(key)
            return known
        model, adapter, domain = key
        digest = Namespace(model, self._layout, adapter, domain).digest()
        known = Resolution(Identity.known(digest))
        if self._announce(digest, self._name(subject), model):
            if len(self._resolutions) >= _MAX_NAMESPACES:
                self._resolutions.popitem(last=False)
            self._resolutions[key] = known
        return known

    def _name(self, subject: Subject) -> str:
        parts = [self._label]
        if subject.adapter is not None:
            parts.append(subject.adapter.name)
        if subject.domain:
            parts.append("salted")
        return " / ".join(parts)
