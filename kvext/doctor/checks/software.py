"""Python, the engine, the plug-in's registration and the native core."""

import re

from kvext.doctor.finding import Finding, Status
from kvext.doctor.snapshot import Software

__all__ = [
    "MINIMUM_ENGINE",
    "MINIMUM_PYTHON",
    "TESTED_ENGINE",
    "check_engine",
    "check_native_core",
    "check_plugin",
    "check_plugin_allowed",
    "check_python",
]

MINIMUM_PYTHON = (3, 11)
MINIMUM_ENGINE = (0, 31)
"""The oldest release of vLLM that `pyproject.toml` allows."""
TESTED_ENGINE = (0, 32)
"""The newest release of vLLM that the tests run."""

_PLUGIN = "kvext"


def check_python(software: Software) -> Finding:
    """Whether this Python is new enough."""
    fact = f"Python {_dotted(software.python)}"
    if software.python[:2] < MINIMUM_PYTHON:
        mend = f"make the environment with Python {_dotted(MINIMUM_PYTHON)} or newer"
        return Finding("python", Status.ERROR, f"{fact} is too old", mend)
    return Finding("python", Status.OK, fact)


def check_engine(software: Software) -> Finding:
    """Whether a vLLM that kvext knows is installed beside it."""
    installed = software.engines
    if not installed:
        fact = "no vLLM in this Python's environment: pools can be looked after, engines not run"
        return Finding("engine", Status.WARNING, fact, "pip install 'kvext[vllm]'")
    fact = ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))
    known = f"{_dotted(MINIMUM_ENGINE)} to {_dotted(TESTED_ENGINE)}"
    releases = {_release(version) for version in installed.values()}
    if len(releases) > 1:
        fact += ": two releases in one environment overwrite one another's files"
        return Finding(
            "engine", Status.ERROR, fact, "pip uninstall one of them, reinstall the other"
        )
    release = releases.pop()
    if release < MINIMUM_ENGINE:
        mend = f"pip install 'vllm>={_dotted(MINIMUM_ENGINE)}'"
        return Finding("engine", Status.ERROR, f"{fact} is older than kvext knows ({known})", mend)
    if release > TESTED_ENGINE:
        mend = f"pip install 'vllm=={_dotted(TESTED_ENGINE)}.*', or try it before you rely on it"
        return Finding(
            "engine", Status.WARNING, f"{fact} is newer than kvext knows ({known})", mend
        )
    return Finding("engine", Status.OK, f"{fact} (kvext knows {known})")


def check_plugin(software: Software) -> Finding:
    """Whether vLLM can find kvext's entry point."""
    if not software.plugin:
        fact = "no entry point vllm.general_plugins:kvext, so vLLM does not know KvextConnector"
        mend = "pip install --force-reinstall --no-deps kvext"
        return Finding("plugin", Status.ERROR, fact, mend)
    return Finding("plugin", Status.OK, f"registered as {software.plugin}")


def check_plugin_allowed(software: Software) -> Finding:
    """Whether VLLM_PLUGINS, vLLM's allow-list, lets kvext through."""
    allowed = software.allowed_plugins
    if allowed is None:
        return Finding("plugin-allowed", Status.OK, "VLLM_PLUGINS is not set: all plug-ins load")
    fact = f"VLLM_PLUGINS={allowed}"
    # vLLM compares whole names and strips nothing.
    if _PLUGIN not in allowed.split(","):
        mend = f"export VLLM_PLUGINS={','.join(filter(None, (allowed, _PLUGIN)))}, or unset it"
        return Finding("plugin-allowed", Status.ERROR, f"{fact} keeps kvext out", mend)
    return Finding("plugin-allowed", Status.OK, f"{fact} lets kvext in")


def check_native_core(software: Software) -> Finding:
    """Whether the native core loads, and what it makes of this processor."""
    if not software.instruction_sets:
        mend = "pip install --force-reinstall --no-deps kvext"
        fact = f"the native core does not load: {software.core_fault}"
        return Finding("native-core", Status.ERROR, fact, mend)
    loops, sha256 = software.instruction_sets
    return Finding("native-core", Status.OK, f"copies and checksums: {loops}; SHA-256: {sha256}")


def _release(version: str) -> tuple[int, ...]:
    """Major and minor number; what follows is patch level, pre-release or build."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
