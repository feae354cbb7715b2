"""What a block's bytes look like, apart from what they mean.

`KVLayout` is part of the identity: bytes of another layout are other bytes. `RecordShape`
is not: it says how many tokens and which part of their KV one record holds, so that engines
with other block sizes share one chain of keys and still never read one another's records.
"""

import struct
from dataclasses import dataclass

__all__ = ["MAX_PARTS", "KVLayout", "RecordShape"]

_MAX_BLOCK_TOKENS = 2**16 - 1
MAX_PARTS = 2**8 - 1
"""Parts that a block may be divided into."""


@dataclass(frozen=True, slots=True)
class KVLayout:
    """How an engine arranges the KV of one token block.

    Attributes:
        dtype: Element type as the engine stores it, for example `"bfloat16"`.
        num_layers: Layers that hold KV.
        num_kv_heads: KV heads of one record; `packing` tells of how many ranks, if of several.
        head_size: Elements of one head's key (and of its value).
        packing: Everything else that moves bytes: engine version, device and instruction
            set, for example `"vllm-0.32/cpu/vec"`.
    """

    dtype: str
    num_layers: int
    num_kv_heads: int
    head_size: int
    packing: str

    def canonical(self) -> bytes:
        """The layout as bytes: two layouts have the same ones only if they are equal."""
        dtype, packing = self.dtype.encode(), self.packing.encode()
        return b"".join(
            (
                struct.pack("<I", len(dtype)),
                dtype,
                struct.pack("<III", self.num_layers, self.num_kv_heads, self.head_size),
                struct.pack("<I", len(packing)),
                packing,
            )
        )


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Which part of the KV one stored record holds.

    Attributes:
        block_tokens: Tokens a block, 1 to 65,535.
        rank: Which of `world` parts of the block this is. The layers of an engine with several
            KV groups are divided by group, in the engine's order; heads by rank.
        world: Number of parts, 1 to 255.
    """

    block_tokens: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        """Refuse what `packed` could not hold.

        Raises:
            ValueError: A field is out of its range.
        """
        if not 1 <= self.block_tokens <= _MAX_BLOCK_TOKENS:
            msg = f"block_tokens {self.block_tokens} is outside 1..{_MAX_BLOCK_TOKENS}"
            raise ValueError(msg)
        if not 1 <= self.world <= MAX_PARTS:
            msg = f"world {self.world} is outside 1..{MAX_PARTS}"
            raise ValueError(msg)
        if not 0 <= self.rank < self.world:
            msg = f"rank {self.rank} is outside 0..{self.world - 1}"
            raise ValueError(msg)

    @property
    def packed(self) -> int:
        """The shape as one unsigned 32-bit number, as the pool's index stores it."""
        return self.block_tokens << 16 | self.rank << 8 | self.world
