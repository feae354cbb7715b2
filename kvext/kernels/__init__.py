"""Copying KV blocks between an accelerator's paged memory and records, without any engine.

Plain torch and Triton, so that it runs and is tested alone; `kvext.kernels.triton_copy` is the
only module that needs Triton, and nothing imports it before it is used.
"""

from kvext.kernels.copy_engine import CopyEngine, open_engine
from kvext.kernels.lane import Mark
from kvext.kernels.paged import PagedKV, PieceShape, piece_shape
from kvext.kernels.pinned import PinnedRegion
from kvext.kernels.routes import Route, choose_route

__all__ = [
    "CopyEngine",
    "Mark",
    "PagedKV",
    "PieceShape",
    "PinnedRegion",
    "Route",
    "choose_route",
    "open_engine",
    "piece_shape",
]
