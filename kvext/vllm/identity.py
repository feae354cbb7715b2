"""Which model and which adapters does this vLLM engine serve?

A local folder is digested; a hub id is looked up in the hub's local cache, at the revision
that vLLM resolved. Whatever else vLLM can load from, or files that may have changed since the
engine read them, have no identity: such an engine serves uncached.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvext.errors import IdentityUnknown
from kvext.protocol.digest import (
    WeightsSnapshot,
    canonical_config,
    digest_adapter,
    digest_model,
    weights_snapshot,
)
from kvext.vllm.epoch import LoadEpoch

if TYPE_CHECKING:
    from vllm.config import LoRAConfig, VllmConfig

__all__ = [
    "adapter_digest",
    "adapter_snapshot",
    "engine_model_digest",
    "model_folder",
    "model_label",
]

_FILE_FORMATS = frozenset(
    {"auto", "hf", "safetensors", "pt", "fastsafetensors", "mistral", "npcache"}
)
"""Load formats that read the weights files of a folder as they are."""


def engine_model_digest(vllm_config: "VllmConfig", folder: Path, epoch: LoadEpoch) -> bytes:
    """Name the engine's model by the bytes that it loaded.

    Args:
        vllm_config: vLLM's configuration.
        folder: Where it loaded them from.
        epoch: Since when the engine may have read its weights.

    Returns:
        32 bytes.

    Raises:
        IdentityUnknown: The bytes cannot be named for certain.
    """
    _refuse_changed(folder, epoch)
    digest = digest_model(folder, _architecture(vllm_config))
    _refuse_changed(folder, epoch)
    return digest


def adapter_snapshot(path: str) -> WeightsSnapshot:
    """The state of an adapter's files.

    Raises:
        IdentityUnknown: It is not a local folder.
    """
    return weights_snapshot(_adapter_folder(path))


def adapter_digest(path: str, lora_config: "LoRAConfig | None") -> bytes:
    """Name an adapter by its contents and by what the engine makes of them.

    Args:
        path: The adapter's folder.
        lora_config: vLLM's options for adapters; some leave out modules or round weights.

    Returns:
        32 bytes.

    Raises:
        IdentityUnknown: It is not a complete local folder.
    """
    contents = digest_adapter(_adapter_folder(path))
    use: dict[str, object] = {}
    if lora_config is not None:
        use = {
            "dtype": str(lora_config.lora_dtype),
            "target_modules": sorted(getattr(lora_config, "target_modules", None) or []),
            "shared_experts": bool(getattr(lora_config, "enable_moe_shared_loras", False)),
        }
    return hashlib.sha256(contents + canonical_config(use, subject=path)).digest()


def model_label(vllm_config: "VllmConfig") -> str:
    """What people call the model."""
    served = vllm_config.model_config.served_model_name
    name = served[0] if isinstance(served, list) else served
    return Path(str(name or vllm_config.model_config.model)).name


def model_folder(vllm_config: "VllmConfig") -> Path:
    """Where vLLM loads the weights from when it starts.

    Raises:
        IdentityUnknown: It is no folder of weights as they are.
    """
    model_config, load_config = vllm_config.model_config, vllm_config.load_config
    subject = str(model_config.model)
    if str(load_config.load_format) not in _FILE_FORMATS:
        raise IdentityUnknown(subject, f"load format {load_config.load_format!r} reads no files")
    if model_config.model_weights:
        raise IdentityUnknown(subject, "its weights come from object storage")
    local = Path(subject)
    if local.exists():
        return local
    return _hub_folder(subject, model_config.revision, load_config.download_dir)


def _hub_folder(repo_id: str, revision: str | None, cache_dir: str | None) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only hub models need it
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415

    try:
        folder = snapshot_download(
            repo_id, revision=revision, cache_dir=cache_dir, local_files_only=True
        )
    except (LocalEntryNotFoundError, ValueError, OSError) as error:
        raise IdentityUnknown(repo_id, f"the hub's cache does not have it ({error})") from error
    return Path(folder)


def _architecture(vllm_config: "VllmConfig") -> Mapping[str, object]:
    """All that turns weights into KV: the model's configuration and how vLLM changes it."""
    model_config = vllm_config.model_config
    architecture: dict[str, object] = dict(model_config.hf_config.to_dict())
    engine: dict[str, object] = {
        "dtype": str(model_config.dtype),
        # A folder may hold weights in several formats, and they need not be the same weights.
        "load_format": str(vllm_config.load_config.load_format),
        "quantization": str(model_config.quantization or ""),
        "quantization_config": str(model_config.quantization_config or ""),
    }
    if "longrope" in str(architecture):
        engine["max_model_len"] = model_config.max_model_len  # chooses between two sets of angles
    return {"model": architecture, "engine": engine, **_remote_code(architecture)}


def _remote_code(architecture: Mapping[str, object]) -> Mapping[str, object]:
    auto_map = architecture.get("auto_map")
    return {} if auto_map is None else {"auto_map": auto_map}


def _refuse_changed(folder: Path, epoch: LoadEpoch) -> None:
    """Refuse files that were changed, or pointed elsewhere, after the engine may have read them."""
    if folder.parent.name == "snapshots" and (folder.parent.parent / "blobs").is_dir():
        return  # the hub's cache names contents by revision and never changes them
    links = [path for path in (folder, *folder.absolute().parents) if path.is_symlink()]
    times_ns = [os.lstat(link).st_ctime_ns for link in links]
    # Renaming a folder into place leaves its files as they are, but not its own inode.
    times_ns.append(folder.stat().st_ctime_ns)
    times_ns += [_renamed_ns(parent) for parent in folder.resolve().parents]
    times_ns += [state.ctime_ns for _, state in weights_snapshot(folder)]
    if max(times_ns, default=0) > epoch.begun_ns:
        raise IdentityUnknown(str(folder), "its files changed after the engine was started")


def _renamed_ns(folder: Path) -> int:
    """When a folder was itself renamed, or 0: new entries change both of its times alike."""
    state = folder.stat()
    return 0 if state.st_ctime_ns == state.st_mtime_ns else state.st_ctime_ns


def _adapter_folder(path: str) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise IdentityUnknown(path, "the adapter is not a local folder")
    return folder.absolute()
