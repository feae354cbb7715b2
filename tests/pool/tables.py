"""A region's tables as bytes, to damage them on purpose; follows native/format.hpp."""

import struct
from pathlib import Path

_GEOMETRY_AT = 56
_PROCESS_BYTES, _NAMESPACE_BYTES, _SLOT_BYTES, _EXTENT_BYTES = 128, 160, 64, 32
_NAMESPACES_AT = 4096 + 128 * _PROCESS_BYTES
_SUPER = {
    "super.epoch": (192, "<Q"),
    "super.free_head": (208, "<Q"),
    "super.num_free": (216, "<Q"),
    "super.num_limbo": (240, "<Q"),
    "namespace.num_extents": (_NAMESPACES_AT + 64, "<Q"),
}
_SLOT = {
    "slot.key": (0, "<Q"),
    "slot.state": (32, "<B"),
    "slot.extent": (40, "<I"),
    "slot.length": (44, "<I"),
    "slot.name_space": (60, "<H"),
}
_EXTENT = {"extent.owner_epoch": (8, "<Q"), "extent.slot": (16, "<I")}


class Tables:
    """Reads and writes single fields of a region's file."""

    def __init__(self, region: Path) -> None:
        self._file = region
        geometry: tuple[int, ...] = struct.unpack("<8Q", self.read_raw(_GEOMETRY_AT, 64))
        _, self.num_extents, self.num_slots, *places, _ = geometry
        self._pins_at, self._pin_row_bytes, self.slots_at, self.extents_at = places

    def read(self, field: str, key: bytes = b"") -> int:
        at, code = self._place(field, key)
        return int(struct.unpack(code, self.read_raw(at, struct.calcsize(code)))[0])

    def write(self, field: str, value: int, key: bytes = b"") -> None:
        at, code = self._place(field, key)
        self.write_raw(at, struct.pack(code, value))

    def read_raw(self, at: int, num_bytes: int) -> bytes:
        with self._file.open("rb") as file:
            file.seek(at)
            return file.read(num_bytes)

    def write_raw(self, at: int, data: bytes) -> None:
        with self._file.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def pin_at(self, process: int, extent: int) -> int:
        return self._pins_at + process * self._pin_row_bytes + 2 * extent

    def slot_at(self, key: bytes) -> int:
        """Where the slot of a key lies."""
        for slot in range(self.num_slots):
            at = self.slots_at + slot * _SLOT_BYTES
            if self.read_raw(at, 32) == key:
                return at
        raise KeyError(key)

    def _place(self, field: str, key: bytes) -> tuple[int, str]:
        if field in _SUPER:
            return _SUPER[field]
        slot_at = self.slot_at(key)
        if field in _SLOT:
            offset, code = _SLOT[field]
            return slot_at + offset, code
        (extent,) = struct.unpack("<I", self.read_raw(slot_at + 40, 4))
        offset, code = _EXTENT[field]
        return self.extents_at + extent * _EXTENT_BYTES + offset, code
