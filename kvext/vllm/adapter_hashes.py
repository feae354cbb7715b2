"""Adapter contents in vLLM's own block hashes.

vLLM hashes an adapter's name and path, so after it has reloaded an adapter in place its own
prefix cache would go on serving the old one's KV. The hash is completed by a token for what the
engine has read. Hashing runs on EngineCore's input thread, once a block: the token is looked up
once a request and kept with it.
"""

from typing import Any

from kvext.connector.adapter_tokens import AdapterTokens, doubt_token
from kvext.connector.edge import Edge
from kvext.connector.report import AdapterRead
from kvext.errors import IdentityUnknown
from kvext.vllm.identity import adapter_snapshot
from kvext.vllm.wrap import Wrap

__all__ = ["AdapterHashes"]

_TOKEN = "kvext_adapter_token"  # noqa: S105 - the name of an attribute


class AdapterHashes:
    """Completes the block hashes of one engine's requests from `open` to `close`."""

    __slots__ = ("_edge", "_tokens", "_wrap")

    def __init__(self, edge: Edge) -> None:
        """Change nothing yet."""
        from vllm.v1.core import kv_cache_utils  # noqa: PLC0415 - only with LoRA

        self._edge = edge
        self._tokens = AdapterTokens(adapter_snapshot)
        self._wrap = Wrap(kv_cache_utils, "_gen_lora_extra_hash_keys", ("request",))

    def open(self) -> None:
        """Begin to complete hashes."""
        self._wrap.open(
            self._hash_keys, "its own cache confuses adapters that are reloaded under one name"
        )

    def close(self) -> None:
        """Leave vLLM as it was."""
        self._wrap.close()

    def note(self, read: AdapterRead) -> None:
        """Hear that the worker has read an adapter."""
        self._tokens.note(read)

    def _hash_keys(self, original: Any, request: Any) -> list[Any]:
        keys: list[Any] = original(request)
        if request.lora_request is None:
            return keys
        token = getattr(request, _TOKEN, None)
        if token is None:
            token = self._edge.attempt(
                "name an adapter's contents", lambda: self._token(request), doubt_token()
            )
            setattr(request, _TOKEN, token)
        # In events vLLM publishes the second element of such a tuple alone: the adapter's name.
        return [(*key, token) if isinstance(key, tuple) else key for key in keys]

    def _token(self, request: Any) -> str:
        lora = request.lora_request
        try:
            return self._tokens.token(lora.lora_int_id, lora.lora_path)
        except IdentityUnknown:
            return ""  # a hub's adapter: vLLM's own name for it must do
