"""Write the safetensors format with numpy alone, bfloat16 included.

numpy knows no bfloat16, so the format's own package writes it only through torch; test models and
examples must not load torch. Here a `uint16` array *is* bfloat16, bit for bit, and `float32` stays.
Equal tensors give equal bytes: the order of the mapping is the order in the file.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Float32Array", "Tensor", "to_bfloat16", "write_safetensors"]

_DTYPE_NAMES = {np.dtype(np.float32): "F32", np.dtype(np.uint16): "BF16"}

Float32Array = NDArray[np.float32]
Tensor = NDArray[np.float32] | NDArray[np.uint16]


def to_bfloat16(values: Float32Array) -> NDArray[np.uint16]:
    """Round finite float32 values to the nearest bfloat16, ties to even.

    Args:
        values: finite numbers, any shape.

    Returns:
        The bfloat16 bit patterns, same shape.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    tie_to_even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + tie_to_even) >> np.uint32(16)).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a new file: 8-byte little-endian header length, JSON header, raw bytes.

    Args:
        path: the file; replaced if it exists.
        tensors: by name; float32 arrays, or uint16 arrays that hold bfloat16 bits.

    Raises:
        KeyError: an array has another dtype.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        entries[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())
