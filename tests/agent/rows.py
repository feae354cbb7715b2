"""Records without a pool, from rows."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kvext.agent.records import Records

__all__ = ["Row", "extents", "records"]


@dataclass(frozen=True, slots=True)
class Row:
    """One record; it lies in the extent of this number."""

    key: int
    extent: int
    last: int = 1
    previous: int = 0
    hits: int = 0


def records(rows: Iterable[Row]) -> Records:
    """The snapshot that a pool with these records would give."""
    listed = list(rows)
    refs = np.zeros(len(listed), [("slot", "<u4"), ("extent", "<u4"), ("generation", "<u8")])
    refs["extent"] = [row.extent for row in listed]
    return Records(
        np.array([row.key for row in listed], np.uint64),
        refs,
        np.array([row.last for row in listed], np.int64),
        np.array([row.previous for row in listed], np.int64),
        np.array([row.hits for row in listed], np.int64),
    )


def extents(refs: object) -> list[int]:
    """Where the named records lie."""
    return [int(extent) for extent in np.asarray(refs)["extent"]]
