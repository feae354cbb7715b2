"""Where the fields of a region lie, read from its own header; see docs/on-media-format.md."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BOOT_ID_AT", "CREATED_AT", "Anatomy", "Field"]

CREATED_AT = 40
BOOT_ID_AT = 120
_GEOMETRY = struct.Struct("<8Q")
_GEOMETRY_AT = 56
_PROCESSES_AT = 4096
_PROCESS_BYTES = 128
_NAMESPACES_AT = _PROCESSES_AT + 128 * _PROCESS_BYTES
_NAMESPACE_BYTES = 160
_SLOT_BYTES = 64
_EXTENT_BYTES = 32
_STATE_IN_SLOT = 32
_FREE, _COMMITTED, _TOMBSTONE = 0, 2, 4


@dataclass(frozen=True, slots=True)
class Field:
    """A few bytes of a table."""

    table: str
    name: str
    at: int
    num_bytes: int
    is_checked: bool
    """Whether fsck can know that a flipped bit in it is wrong; the others are hints and figures."""


_SUPERBLOCK = (
    ("magic", 0, 8, False),  # refused before fsck sees it, as are the next ones
    ("format_version", 8, 4, False),
    ("formatted", 12, 4, False),
    ("region_bytes", 32, 8, False),
    ("created_s", CREATED_AT, 8, False),
    ("geometry_checksum", 48, 8, False),
    ("geometry", _GEOMETRY_AT, 64, False),
    ("boot_id", BOOT_ID_AT, 40, False),
    ("lease_ms", 160, 8, False),
    ("epoch", 192, 8, False),
    ("lock_holder", 200, 8, False),
    ("free_head", 208, 8, True),
    ("num_free", 216, 8, True),
    ("clock_hand", 224, 8, False),
    ("bypass", 232, 8, False),
    ("num_limbo", 240, 8, False),  # counted anew at every reap
    ("agent_epoch", 248, 8, False),
)
_RECORD_SLOT = (
    ("key", 0, 32, True),
    ("state", _STATE_IN_SLOT, 8, False),  # a generation is any number; see _STATE
    ("extent", 40, 4, True),
    ("length", 44, 4, True),
    ("shape", 48, 4, True),
    ("accesses", 52, 8, False),
    ("name_space", 60, 2, True),
    ("hits", 62, 2, False),
)
_STATE = ("state byte", _STATE_IN_SLOT, 1, True)
_EMPTY_SLOT = (("all", 0, 64, False),)
_USED_EXTENT = (
    ("checksum", 0, 8, True),
    ("owner_epoch", 8, 8, False),
    ("slot", 16, 4, True),
    ("next_free", 20, 4, False),
    ("owner", 24, 2, False),
    ("name_space", 26, 2, True),
)
_FREE_EXTENT = (
    ("checksum", 0, 8, False),
    ("owner_epoch", 8, 8, True),
    ("slot", 16, 4, False),
    ("next_free", 20, 4, True),
    ("owner", 24, 4, False),
)
_PROCESS = (("epoch", 0, 8, False), ("rest", 8, 120, False))
_NAMESPACE = (
    ("digest", 0, 32, False),
    ("model", 32, 32, False),
    ("num_extents", 64, 8, True),
    ("state", 72, 8, False),
    ("label", 80, 80, False),
)


class Anatomy:
    """The fields of one region that nobody uses at the moment."""

    def __init__(self, path: Path) -> None:
        """Read the region."""
        self._bytes = path.read_bytes()
        geometry = _GEOMETRY.unpack_from(self._bytes, _GEOMETRY_AT)
        self.extent_bytes, self.num_extents, self.num_slots = geometry[:3]
        self.pins_at, self.pin_row_bytes, self.slots_at, self.extents_at, self.payload_at = (
            geometry[3:]
        )

    def slots(self, state: int) -> list[int]:
        """Indexes of the slots in that state."""
        return [
            i
            for i in range(self.num_slots)
            if self._bytes[self.slots_at + i * _SLOT_BYTES + _STATE_IN_SLOT] == state
        ]

    def extent_of(self, slot: int) -> int:
        """The extent that a slot names."""
        at = self.slots_at + slot * _SLOT_BYTES + 40
        return int(struct.unpack_from("<I", self._bytes, at)[0])

    def payload_of(self, extent: int) -> int:
        """Where the bytes of an extent begin."""
        return self.payload_at + extent * self.extent_bytes

    def fields(self, num_records: int) -> Iterator[Field]:
        """The fields of the superblock and of a few rows of every table."""
        yield from _place("superblock", 0, _SUPERBLOCK)
        for row in (0, 1, 5):
            yield from _place("process", _PROCESSES_AT + row * _PROCESS_BYTES, _PROCESS)
            # What a living process holds, row 0, nobody but itself can know.
            at = self.pins_at + row * self.pin_row_bytes
            yield Field("pins", "pins", at, 2 * self.num_extents, is_checked=row > 0)
        for row in range(3):
            yield from _place("namespace", _NAMESPACES_AT + row * _NAMESPACE_BYTES, _NAMESPACE)
        records = self.slots(_COMMITTED)
        used = {self.extent_of(slot) for slot in records}
        for slot in records[:num_records]:
            yield from _place("slot", self.slots_at + slot * _SLOT_BYTES, (*_RECORD_SLOT, _STATE))
            extent = self.extent_of(slot)
            yield from _place("extent", self.extents_at + extent * _EXTENT_BYTES, _USED_EXTENT)
            yield Field("payload", "payload", self.payload_of(extent), 3800, is_checked=True)
        for slot in [*self.slots(_TOMBSTONE)[:2], *self.slots(_FREE)[:2]]:
            yield from _place("empty slot", self.slots_at + slot * _SLOT_BYTES, _EMPTY_SLOT)
        free = [i for i in range(self.num_extents) if i not in used]
        for extent in free[:2]:
            yield from _place("free extent", self.extents_at + extent * _EXTENT_BYTES, _FREE_EXTENT)


def _place(table: str, at: int, parts: tuple[tuple[str, int, int, bool], ...]) -> Iterator[Field]:
    for name, offset, num_bytes, is_checked in parts:
        yield Field(table, name, at + offset, num_bytes, is_checked)
