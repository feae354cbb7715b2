# ruff: noqa: N803, N806, N815 - tensor names carry shapes
"""The Triton kernel that moves pieces between blocks and records, many of them in one launch.

Letters: L layers of one group, R records, U runs of a piece, T words that one program moves at
once. All addresses are numbers in tables, so a record may lie in the device's memory or in pinned
memory of the host. Oracle: `kvext.kernels.reference`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kvext.kernels.paged import LayerGroup, PagedKV

__all__ = ["DEFAULT_PROGRAMS", "NUM_WARPS", "KernelPacker", "constants_of", "move_pieces"]

DEFAULT_PROGRAMS = 128
"""About one program a multiprocessor of an H200 (132): enough for its memory, by arithmetic."""

_TILE_BYTES = 16 << 10
NUM_WARPS = 8
_WORD_BYTES = 8
_RUN_TIME = (
    *("record_R", "block_R", "address_L", "stride_L", "start_L", "run_U"),
    *("num_records", "num_layers"),
)
_WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


# Nothing is specialised: a batch of one record, or of sixteen, compiles nothing anew.
@triton.jit(do_not_specialize=_RUN_TIME)
def move_pieces(  # type: ignore[no-untyped-def]  # noqa: ANN201, PLR0913, PLR0917, D417 - Triton's
    record_R,  # noqa: ANN001 - all of them pointers to int64
    block_R,  # noqa: ANN001
    address_L,  # noqa: ANN001
    stride_L,  # noqa: ANN001
    start_L,  # noqa: ANN001
    run_U,  # noqa: ANN001
    num_records,  # noqa: ANN001 - int32
    num_layers,  # noqa: ANN001
    PIECE_WORDS: tl.constexpr,
    RUN_WORDS: tl.constexpr,
    WORD: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    VECTOR_WORDS: tl.constexpr,
    TILE_WORDS: tl.constexpr,
    TO_RECORDS: tl.constexpr,
):
    """Copy the pieces of R blocks of L layers into records, or back.

    Args:
        record_R: Address of each record.
        block_R: Block id of each record.
        address_L: Address of each layer's block 0.
        stride_L: Bytes from one block to the next.
        start_L: Where the layer's piece begins in a record, in bytes.
        run_U: Where each run begins in a block, in words.
        num_records: R.
        num_layers: L.
    """
    tiles_a_piece: tl.constexpr = (PIECE_WORDS + TILE_WORDS - 1) // TILE_WORDS
    num_tiles = num_records * num_layers * tiles_a_piece
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        # Neighbours write one record: what goes to the host's memory goes there in order.
        piece = tile // tiles_a_piece
        record = piece // num_layers
        layer = piece % num_layers
        word_T = (tile % tiles_a_piece) * TILE_WORDS + tl.arange(0, TILE_WORDS)
        inside_T = word_T < PIECE_WORDS
        block = tl.load(block_R + record)
        block_address = tl.load(address_L + layer) + block * tl.load(stride_L + layer)
        piece_address = tl.load(record_R + record) + tl.load(start_L + layer)
        blocks = tl.multiple_of(block_address.to(tl.pointer_type(WORD)), ALIGNMENT)
        pieces = tl.multiple_of(piece_address.to(tl.pointer_type(WORD)), ALIGNMENT)
        if RUN_WORDS == PIECE_WORDS:
            block_T = blocks + word_T
        else:
            run_T = tl.load(run_U + word_T // RUN_WORDS, mask=inside_T, other=0)
            block_T = blocks + tl.multiple_of(run_T, VECTOR_WORDS) + word_T % RUN_WORDS
        # Passing through once: leave the cache to whoever computes.
        if TO_RECORDS:
            moved_T = tl.load(block_T, mask=inside_T, eviction_policy="evict_first")
            tl.store(pieces + word_T, moved_T, mask=inside_T, eviction_policy="evict_first")
        else:
            moved_T = tl.load(pieces + word_T, mask=inside_T, eviction_policy="evict_first")
            tl.store(block_T, moved_T, mask=inside_T, eviction_policy="evict_first")


def constants_of(group: LayerGroup, alignment: int, *, to_records: bool) -> dict[str, object]:
    """The kernel's compile-time arguments.

    Args:
        group: The layers.
        alignment: See `LayerGroup.alignment`.
        to_records: Gather instead of scatter.
    """
    word_bytes = min(alignment, _WORD_BYTES)
    piece_words = group.shape.num_bytes // word_bytes
    return {
        "PIECE_WORDS": piece_words,
        "RUN_WORDS": group.shape.run_bytes // word_bytes,
        "WORD": _WORDS[word_bytes],
        "ALIGNMENT": alignment,
        "VECTOR_WORDS": alignment // word_bytes,
        "TILE_WORDS": min(_TILE_BYTES // word_bytes, triton.next_power_of_2(piece_words)),
        "TO_RECORDS": to_records,
    }


@dataclass(frozen=True, slots=True)
class _GroupTables:
    """One group's addresses on the device."""

    group: LayerGroup
    address_L: torch.Tensor
    stride_L: torch.Tensor
    start_L: torch.Tensor


class KernelPacker:
    """Moves pieces between blocks and any records that the device can address."""

    def __init__(self, kv: PagedKV, num_programs: int = DEFAULT_PROGRAMS) -> None:
        """Put the layers' addresses on the device.

        Args:
            kv: The engine's KV memory.
            num_programs: Programs of one launch; fewer leave more of the device to others.
        """
        self._kv = kv
        self._num_programs = num_programs
        self._tables = [
            _GroupTables(
                group,
                *(
                    torch.tensor(column, dtype=torch.int64, device=kv.device)
                    for column in (group.addresses, group.block_strides, group.record_starts)
                ),
            )
            for group in kv.groups()
        ]
        # Run offsets are counted in words, whose size depends on where the records lie.
        self._run_U: dict[tuple[int, int], torch.Tensor] = {}

    def warm_up(self, records: Sequence[torch.Tensor]) -> None:
        """Compile for records that lie as these do, so that no request waits for it."""
        for to_records in (True, False):
            self._launch(records, [], to_records=to_records)

    def pack(self, block_ids: Sequence[int], records: Sequence[torch.Tensor]) -> None:
        """Enqueue the copy of blocks into records."""
        self._launch(records, block_ids, to_records=True)

    def unpack(self, records: Sequence[torch.Tensor], block_ids: Sequence[int]) -> None:
        """Enqueue the copy of records into blocks, each block at most once."""
        self._launch(records, block_ids, to_records=False)

    def _launch(
        self, records: Sequence[torch.Tensor], block_ids: Sequence[int], *, to_records: bool
    ) -> None:
        addresses = _addresses(records)
        num_records = len(block_ids)
        table_2R = self._upload([addresses[:num_records] or [0], list(block_ids) or [0]])
        for index, tables in enumerate(self._tables):
            alignment = tables.group.alignment(self._kv.record_bytes, addresses)
            move_pieces[(self._num_programs,)](
                table_2R[0],
                table_2R[1],
                tables.address_L,
                tables.stride_L,
                tables.start_L,
                self._runs(index, min(alignment, _WORD_BYTES)),
                num_records,
                len(tables.group.addresses),
                **constants_of(tables.group, alignment, to_records=to_records),
                num_warps=NUM_WARPS,
            )

    def _upload(self, rows: list[list[int]]) -> torch.Tensor:
        """A table on the device, without waiting for what is enqueued before it."""
        on_device = self._kv.device.type != "cpu"
        table = torch.tensor(rows, dtype=torch.int64, pin_memory=on_device)
        return table.to(self._kv.device, non_blocking=True)

    def _runs(self, index: int, word_bytes: int) -> torch.Tensor:
        if (index, word_bytes) not in self._run_U:
            offsets = self._tables[index].group.shape.run_offsets
            words = [offset // word_bytes for offset in offsets]
            self._run_U[index, word_bytes] = self._upload([words])[0]
        return self._run_U[index, word_bytes]


def _addresses(records: Sequence[torch.Tensor]) -> list[int]:
    if isinstance(records, torch.Tensor):
        first, step = records.data_ptr(), records.stride(0)
        return [first + index * step for index in range(len(records))]
    return [record_P.data_ptr() for record_P in records]
