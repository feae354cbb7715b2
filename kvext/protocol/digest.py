"""Which model and which adapter is this, by contents alone.

A model is its architecture's configuration and every byte of its weights; an adapter
likewise. Where a folder lies and what it is called never counts: the same bytes elsewhere
have the same digest, and one changed element has another. Files are read once and their
digests cached (`digest_cache`); a file that changes under the reader has no identity.
"""

import hashlib
import json
import math
import os
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvext.errors import IdentityUnknown
from kvext.protocol.digest_cache import DigestCache, FileIdentity, default_cache_folder

__all__ = [
    "Progress",
    "WeightsSnapshot",
    "canonical_config",
    "digest_adapter",
    "digest_files",
    "digest_model",
    "weights_snapshot",
]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all, at every chunk and at the end."""

_CHUNK_BYTES = 4 << 20
"""Large, so that the interpreter lock is taken a few hundred times a second at most."""

# Whichever of these formats the engine is told to load, its bytes count: reading a format
# too many costs a miss between two folders, reading one too few would serve wrong KV.
_WEIGHTS_SUFFIXES = (
    ".safetensors",
    ".safetensors.index.json",
    ".bin",
    ".pt",
    ".pth",
    ".gguf",
    ".tensors",
)
_ADAPTER_CONFIG = "adapter_config.json"
_CODE_SUFFIX = ".py"

# Where a configuration came from and who wrote it; none of it changes a computed value.
_PROVENANCE_KEYS = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "base_model_name_or_path",
        "name_or_path",
        "peft_version",
        "revision",
        "transformers_version",
    }
)
_HUB_BLOB = re.compile(r"[0-9a-f]{64}")

WeightsSnapshot = tuple[tuple[str, FileIdentity], ...]
"""Names and states of a folder's files; equal while nothing in it has changed."""


@dataclass(frozen=True, slots=True)
class _Reader:
    cache: DigestCache
    on_progress: Progress | None
    clock: Callable[[], float]


def digest_model(
    folder: Path,
    config: Mapping[str, object],
    *,
    cache_folder: Path | None = None,
    on_progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> bytes:
    """Name a model by its contents.

    Args:
        folder: Folder of the weights, or one weights file (GGUF).
        config: The architecture as the engine understood it, with its overrides.
        cache_folder: Where digests of files are kept; by default the user's cache.
        on_progress: Told about the bytes read.
        clock: Wall-clock time in seconds.

    Returns:
        32 bytes.

    Raises:
        IdentityUnknown: There are no weights, or they changed while they were read, or the
            configuration holds a value that has no stable text.
    """
    architecture = canonical_config(config, subject=str(folder))
    # Code that comes with the weights computes with them.
    suffixes = (*_WEIGHTS_SUFFIXES, _CODE_SUFFIX) if "auto_map" in config else _WEIGHTS_SUFFIXES
    digests = _digest_folder(folder, suffixes, cache_folder, on_progress, clock)
    return _combine(b"kvext/model/1", architecture, digests)


def digest_adapter(
    folder: Path,
    *,
    cache_folder: Path | None = None,
    on_progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> bytes:
    """Name a LoRA adapter by its contents: `adapter_config.json` and every weights file.

    Args:
        folder: The adapter's folder.
        cache_folder: Where digests of files are kept; by default the user's cache.
        on_progress: Told about the bytes read.
        clock: Wall-clock time in seconds.

    Returns:
        32 bytes.

    Raises:
        IdentityUnknown: Configuration or weights are missing, damaged or changing.
    """
    before = weights_snapshot(folder)
    try:
        config = json.loads((folder / _ADAPTER_CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise IdentityUnknown(str(folder), f"no readable {_ADAPTER_CONFIG} ({error})") from error
    if not isinstance(config, dict):
        raise IdentityUnknown(str(folder), f"{_ADAPTER_CONFIG} holds no object")
    settings = canonical_config(config, subject=str(folder))
    digests = _digest_folder(folder, _WEIGHTS_SUFFIXES, cache_folder, on_progress, clock)
    if weights_snapshot(folder) != before:
        raise IdentityUnknown(str(folder), "its files changed while they were read")
    return _combine(b"kvext/adapter/1", settings, digests)


def digest_files(
    paths: Sequence[Path],
    *,
    cache_folder: Path | None = None,
    on_progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[bytes, ...]:
    """SHA-256 of each file's bytes, from the cache where its state is known.

    Raises:
        IdentityUnknown: A file cannot be read, or changed while it was read.
    """
    reader = _Reader(DigestCache(cache_folder or default_cache_folder()), on_progress, clock)
    targets = [Path(os.path.realpath(path)) for path in paths]
    sizes = [_identity(target).size_bytes for target in targets]
    digests: list[bytes] = []
    for index, target in enumerate(targets):
        digests.append(_digest_file(target, reader, sum(sizes[:index]), sum(sizes)))
    if on_progress is not None:
        on_progress(sum(sizes), sum(sizes))
    return tuple(digests)


def weights_snapshot(folder: Path) -> WeightsSnapshot:
    """What the file system says of a model's or an adapter's files, without reading one.

    Compare two snapshots to know whether a digest still holds; some 30 us for a small folder.

    Raises:
        IdentityUnknown: The folder or a file in it is missing.
    """
    return _snapshot(folder, (*_WEIGHTS_SUFFIXES, _CODE_SUFFIX, _ADAPTER_CONFIG))


def canonical_config(config: Mapping[str, object], *, subject: str) -> bytes:
    """A configuration as JSON that depends on its values only.

    Keys are sorted and provenance is dropped, at every depth.

    Raises:
        IdentityUnknown: A value has no text that would be the same in another process.
    """
    plain = _plain(config, subject)
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: object, subject: str) -> object:
    if isinstance(value, Mapping):
        return {
            str(key): _plain(item, subject)
            for key, item in value.items()
            if key not in _PROVENANCE_KEYS
        }
    if isinstance(value, list | tuple):
        return [_plain(item, subject) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, subject) for item in value), key=repr)
    if value is None or type(value) in (bool, int, float, str):
        return value
    text = f"{type(value).__qualname__}:{value}"
    if " at 0x" in text:
        raise IdentityUnknown(subject, f"its configuration holds an object without value: {text}")
    return text


def _combine(tag: bytes, config: bytes, digests: Sequence[bytes]) -> bytes:
    hasher = hashlib.sha256(tag)
    hasher.update(struct.pack("<QI", len(config), len(digests)))
    hasher.update(config)
    for digest in digests:
        hasher.update(digest)
    return hasher.digest()


def _digest_folder(
    folder: Path,
    suffixes: tuple[str, ...],
    cache_folder: Path | None,
    on_progress: Progress | None,
    clock: Callable[[], float],
) -> tuple[bytes, ...]:
    before = _snapshot(folder, suffixes)
    names = [name for name, _ in before]
    if not any(name.endswith(_WEIGHTS_SUFFIXES) for name in names):
        raise IdentityUnknown(str(folder), "it holds no weights file")
    paths = [folder] if folder.is_file() else [folder / name for name in names]
    digests = digest_files(paths, cache_folder=cache_folder, on_progress=on_progress, clock=clock)
    if _snapshot(folder, suffixes) != before:
        raise IdentityUnknown(str(folder), "its files changed while they were read")
    return digests


def _snapshot(folder: Path, suffixes: tuple[str, ...]) -> WeightsSnapshot:
    try:
        if folder.is_file():
            return ((folder.name, FileIdentity.of(folder.stat())),)
        with os.scandir(folder) as entries:
            states = [
                (entry.name, FileIdentity.of(entry.stat()))
                for entry in entries
                if entry.name.endswith(suffixes) and not entry.is_dir()
            ]
    except OSError as error:
        raise IdentityUnknown(str(folder), str(error)) from error
    return tuple(sorted(states, key=lambda state: state[0]))


def _identity(path: Path) -> FileIdentity:
    try:
        return FileIdentity.of(path.stat())
    except OSError as error:
        raise IdentityUnknown(str(path), str(error)) from error


def _digest_file(path: Path, reader: _Reader, done_bytes: int, total_bytes: int) -> bytes:
    identity = _identity(path)
    known = reader.cache.find(identity)
    if known is not None:
        return known
    begun_s = reader.clock()
    if _is_hub_blob(path) and not reader.cache.knows(identity):
        # The hub names a blob by its SHA-256. Remembering that is what lets a later run see
        # that someone has changed the blob in place, and read it.
        digest, begun_s = bytes.fromhex(path.name), math.inf
    else:
        digest = _read_file(path, identity, reader, done_bytes, total_bytes)
    reader.cache.remember(identity, digest, begun_s)
    return digest


def _is_hub_blob(path: Path) -> bool:
    return path.parent.name == "blobs" and _HUB_BLOB.fullmatch(path.name) is not None


def _read_file(
    path: Path, identity: FileIdentity, reader: _Reader, done_bytes: int, total_bytes: int
) -> bytes:
    hasher, buffer = hashlib.sha256(), memoryview(bytearray(_CHUNK_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            # Both calls release the interpreter lock.
            left_bytes = identity.size_bytes
            while left_bytes and (count := file.readinto(buffer[:left_bytes])):
                hasher.update(buffer[:count])
                left_bytes -= count
                done_bytes += count
                if reader.on_progress is not None:
                    reader.on_progress(done_bytes, total_bytes)
            after = FileIdentity.of(os.fstat(file.fileno()))
    except OSError as error:
        raise IdentityUnknown(str(path), str(error)) from error
    if after != identity:
        raise IdentityUnknown(str(path), "it changed while it was read")
    return hasher.digest()
