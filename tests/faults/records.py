"""Records whose bytes follow from their keys, so that every reader can check every byte."""

import numpy as np

from kvext.pool import Pages
from kvext.protocol.layout import RecordShape

SHAPE = RecordShape(block_tokens=32)
NUM_LAYERS = 2
PIECE_BYTES = 1900
RECORD_BYTES = NUM_LAYERS * PIECE_BYTES
KEYS_A_ROW = 24
"""Keys that one writer calls its own."""

_NOISE = np.random.default_rng(5).integers(0, 256, 1 << 18, dtype=np.uint8).tobytes()


def key_of(row: int, index: int) -> bytes:
    """The key of a writer's `index`-th record; uniform in the index, as real keys are."""
    mixed = (row * KEYS_A_ROW + index + 1) * 0x9E3779B97F4A7C15 % 2**64
    return mixed.to_bytes(8, "little") + bytes([row, index]) * 12


def keys_of(row: int, indexes: list[int]) -> bytes:
    """Several keys of a writer behind one another."""
    return b"".join(key_of(row, index) for index in indexes)


def record_of(row: int, index: int) -> bytes:
    """The one right content under that key."""
    start = (row * 7919 + index * 613) % (len(_NOISE) - RECORD_BYTES)
    return _NOISE[start : start + RECORD_BYTES]


def namespace_of(row: int) -> bytes:
    """Every writer has its namespace, so that it can drop what it stored and nothing else."""
    return bytes([row + 1]) * 32


def model_of(row: int) -> bytes:
    """The digest of the weights that a writer's namespace belongs to."""
    return bytes([row + 1, 0xAA]) * 16


class Blocks:
    """A few blocks of an engine's KV memory."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._layers = [np.zeros((num_blocks, PIECE_BYTES), np.uint8) for _ in range(NUM_LAYERS)]
        addresses = [layer.ctypes.data for layer in self._layers]
        self.pages = Pages(addresses, [PIECE_BYTES] * NUM_LAYERS, num_blocks)

    def write(self, block: int, record: bytes) -> None:
        """Fill one block."""
        bytes_of = np.frombuffer(record, np.uint8).reshape(NUM_LAYERS, PIECE_BYTES)
        for layer, piece in zip(self._layers, bytes_of, strict=True):
            layer[block] = piece

    def read(self, block: int) -> bytes:
        """The bytes of one block."""
        return b"".join(layer[block].tobytes() for layer in self._layers)
