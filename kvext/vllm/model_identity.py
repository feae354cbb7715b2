"""Which weights does this engine compute with now? Known, pending, or unknown for a reason.

The answer begins with the digest of what the engine was started with. A change of weights makes
it unknown at once; after a reload from files it is their digest, if the files replaced every
tensor and nothing else has touched the weights.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from kvext.connector.identity import DigestQueue, Identity
from kvext.errors import IdentityUnknown
from kvext.protocol.manifest import tensor_manifest
from kvext.vllm.epoch import LoadEpoch
from kvext.vllm.identity import engine_model_digest, model_folder
from kvext.vllm.weights_watch import Reload

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["ModelIdentity"]

_logger = logging.getLogger(__name__)


class ModelIdentity:
    """The identity of one engine's weights over its life."""

    __slots__ = ("_config", "_folder", "_hopeless", "_manifest", "_queue", "_ticket", "_unknown")

    def __init__(self, vllm_config: "VllmConfig", queue: DigestQueue, epoch: LoadEpoch) -> None:
        """Begin to digest what the engine was started with.

        Args:
            vllm_config: vLLM's configuration.
            queue: Where digests are computed.
            epoch: Since when the engine may have read its weights.
        """
        self._config = vllm_config
        self._queue = queue
        self._unknown: Identity | None = None
        self._hopeless = False
        self._folder: Path | None = None
        self._manifest: bytes | None = None
        self._ticket = queue.submit(lambda: self._first_digest(epoch))

    @property
    def identity(self) -> Identity:
        """The answer now."""
        return self._unknown or self._ticket.identity

    def wait(self, timeout_s: float) -> Identity:
        """The first answer, awaited for `timeout_s` at most."""
        return self._ticket.wait(timeout_s)

    def forget(self, what: str, *, can_return: bool) -> str:
        """The weights are about to change.

        Args:
            what: The change.
            can_return: Whether a reload of all tensors undoes it.

        Returns:
            Why the identity is unknown now.
        """
        if self._hopeless and self._unknown is not None:
            return self._unknown.reason
        self._hopeless = not can_return or self._manifest is None
        remedy = (
            "restart the engine to cache again"
            if self._hopeless
            else "nothing is cached until they are reloaded from files and digested"
        )
        reason = f"the engine's weights were changed by {what}; {remedy}"
        self._unknown = Identity.unknown(reason)
        _logger.warning("kvext: %s", reason)
        return reason

    def reload(self, reload: Reload) -> None:
        """The engine has read all weights from files; find out which."""
        if self._hopeless:
            return
        if reload.path is not None:
            self._folder = Path(reload.path).absolute()
        folder, epoch = self._folder, LoadEpoch(reload.begun_s)
        if folder is not None:
            self._ticket = self._queue.submit(lambda: self._reloaded_digest(folder, epoch))
            self._unknown = None

    def _first_digest(self, epoch: LoadEpoch) -> bytes:
        folder = model_folder(self._config)
        try:
            manifest = tensor_manifest(folder)
        except IdentityUnknown:
            manifest = None  # the weights can be named, but not what a reload leaves of them
        digest = engine_model_digest(self._config, folder, epoch)
        self._folder, self._manifest = folder.absolute(), manifest
        return digest

    def _reloaded_digest(self, folder: Path, epoch: LoadEpoch) -> bytes:
        _logger.info("kvext: digesting the weights that were reloaded from %s", folder)
        try:
            self._require_all_replaced(folder)
            return engine_model_digest(self._config, folder, epoch)
        except IdentityUnknown as error:
            _logger.warning("kvext: %s", error)
            raise

    def _require_all_replaced(self, folder: Path) -> None:
        if self._config.model_config.quantization is not None:
            raise IdentityUnknown(str(folder), "quantized weights were reloaded over others")
        if tensor_manifest(folder) != self._manifest:
            raise IdentityUnknown(str(folder), "its tensors are not those that were replaced")
