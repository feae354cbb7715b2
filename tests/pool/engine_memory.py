"""An engine's KV memory without an engine: one array a layer, addressed like paged KV."""

import numpy as np

from kvext.pool import Pages
from kvext.protocol.layout import RecordShape

SHAPE = RecordShape(block_tokens=32)
OTHER_SHAPE = RecordShape(block_tokens=128)
NAMESPACE = b"n" * 32
RECORD_BYTES = 3 * 5000


class EngineMemory:
    """Three layers of blocks whose pieces do not fall on page or checksum-chunk borders."""

    def __init__(
        self, num_blocks: int = 16, *, num_layers: int = 3, piece_bytes: int = 5000
    ) -> None:
        self.num_blocks = num_blocks
        self.layers = [np.zeros((num_blocks, piece_bytes), np.uint8) for _ in range(num_layers)]
        self.pages = Pages(
            [layer.ctypes.data for layer in self.layers], [piece_bytes] * num_layers, num_blocks
        )

    def write(self, block: int, seed: int) -> None:
        """Fill a block with bytes that only this seed gives."""
        random = np.random.default_rng(seed)
        for layer in self.layers:
            layer[block] = random.integers(0, 256, layer.shape[1], dtype=np.uint8)

    def read(self, block: int) -> bytes:
        """The record of a block: its pieces in layer order."""
        return b"".join(layer[block].tobytes() for layer in self.layers)


def key_of(number: int) -> bytes:
    """A 32-byte key; neighbours in number are neighbours in the index."""
    return number.to_bytes(8, "little") * 4
