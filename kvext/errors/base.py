"""The root of the tree: fields, a message, and how it crosses processes."""

from dataclasses import dataclass, fields
from typing import ClassVar

__all__ = ["KvextError", "readable_size"]


def readable_size(num_bytes: int) -> str:
    """Bytes as people read them in a message."""
    shift, unit = (30, "GiB") if num_bytes >= 1 << 30 else (20, "MiB")
    return f"{num_bytes / (1 << shift):,.1f} {unit}"


@dataclass(eq=False)
class KvextError(Exception):
    """Root of the tree; catch it to catch everything kvext raises on purpose."""

    _says: ClassVar[str] = "{self.__class__.__name__}"
    """The message: fact and value; remedy."""

    def __str__(self) -> str:  # type: ignore[explicit-override]  # typing has it from 3.12 on
        return self._says.format(self=self)

    def __reduce__(self) -> tuple[type["KvextError"], tuple[object, ...]]:  # type: ignore[explicit-override]
        # By default an exception pickles its positional arguments only.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def as_dict(self) -> dict[str, object]:
        """The error as JSON-ready data: its name, its message and its fields."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"error": type(self).__name__, "message": str(self), **own}
