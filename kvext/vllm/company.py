"""Other connectors beside ours in one engine, under vLLM's `MultiConnector`.

It passes on one handshake only, whoever's it is, to all its connectors, and refuses two responses
under one name. So ours makes way where another one shakes hands, and takes a name that is free.
"""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

__all__ = ["is_handshake_free", "response_name"]

_names: "WeakKeyDictionary[Any, set[str]]" = WeakKeyDictionary()
"""Names taken, by the KV cache manager that an engine's connectors share."""


def is_handshake_free(connector: KVConnectorBase_V1, group: Any) -> bool:
    """Whether a connector's handshake would reach its own other half and nobody else's.

    Args:
        connector: Ours.
        group: The worker's whole connector: ours itself, or what holds ours and others.
    """
    if group is connector:
        return True
    siblings = getattr(group, "sub_connectors", None)
    if siblings is None:
        return False
    return all(sibling is connector or not _shakes_hands(type(sibling)) for sibling in siblings)


def _shakes_hands(connector: type) -> bool:
    names = (
        "get_handshake_metadata",
        "set_xfer_handshake_metadata",
        "set_xfer_handshake_metadata_pp_aware",
    )
    silent = KVConnectorBase_V1
    return any(getattr(connector, name, None) is not getattr(silent, name, None) for name in names)


def response_name(manager: "KVCacheManager", pool_name: str) -> str:
    """The name for our part of this engine's responses: `kvext`, or with the pool's name."""
    taken = _names.setdefault(manager, set())
    free = ("kvext", f"kvext:{pool_name}", *(f"kvext:{number}" for number in range(2, 100)))
    name = next(name for name in free if name not in taken)
    taken.add(name)
    return name
