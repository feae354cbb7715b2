"""Which tensors a folder of weights holds, whatever their values.

After an engine has read new weights over the old ones, its memory is what the files say only if
the files replaced every tensor: the same names, shapes and types as before.
"""

import hashlib
import json
import struct
from pathlib import Path

from kvext.errors import IdentityUnknown
from kvext.protocol.digest import weights_snapshot

__all__ = ["tensor_manifest"]

_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit, https://github.com/huggingface/safetensors#format."""


def tensor_manifest(folder: Path) -> bytes:
    """A digest of the names, types and shapes of all tensors in a folder of safetensors files.

    Args:
        folder: The weights.

    Returns:
        32 bytes.

    Raises:
        IdentityUnknown: There are no such files, or one cannot be read.
    """
    names = [name for name, _ in weights_snapshot(folder) if name.endswith(".safetensors")]
    if not names:
        raise IdentityUnknown(str(folder), "it has no safetensors files to compare with")
    rows = sorted(row for name in names for row in _tensors(folder / name))
    return hashlib.sha256(json.dumps(rows).encode()).digest()


def _tensors(path: Path) -> list[tuple[str, str, list[int]]]:
    try:
        with path.open("rb") as file:
            (num_bytes,) = struct.unpack("<Q", file.read(8))
            if num_bytes > _MAX_HEADER_BYTES:
                raise IdentityUnknown(str(path), f"its header claims {num_bytes} bytes")
            header = json.loads(file.read(num_bytes))
        return [
            (name, tensor["dtype"], tensor["shape"])
            for name, tensor in header.items()
            if name != "__metadata__"
        ]
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IdentityUnknown(str(path), f"its header cannot be read ({error})") from error
