"""How the releases of vLLM differ where kvext touches them; no other module asks for a version.

`DIFFERENCES` names each difference and what it means to kvext, and a test holds it against the
installed vLLM. What has to be bridged is bridged by the functions below.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vllm.version import __version__

__all__ = [
    "DIFFERENCES",
    "TESTED_RELEASES",
    "Difference",
    "host_hit_source",
    "is_tested",
    "vllm_release",
]

TESTED_RELEASES = ("0.31", "0.32")
"""The releases whose engines run kvext's tests; on others the contracts in `hooks` decide."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that one release of vLLM has and its predecessor has not, or the reverse.

    Attributes:
        release: The first release that is so.
        owner: The module, class or function that changed, as `module:name`.
        member: What it has now, or no longer: a member of a class, a parameter of a function.
        meaning: What kvext does about it.
        is_removal: Whether the release dropped it.
    """

    release: str
    owner: str
    member: str
    meaning: str
    is_removal: bool = False


_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorBase_V1"

DIFFERENCES = (
    Difference(
        "0.32",
        _BASE,
        "_cache_hit_source",
        "hits are labelled `host`; 0.31 counts all external hits as one (`host_hit_source`)",
    ),
    Difference("0.32", _BASE, "get_external_cache_hit_sources", "vLLM's own, which uses the label"),
    Difference(
        "0.32",
        _BASE,
        "get_loaded_kv_cache_group_ids",
        "vLLM's own: a load of ours restores every group",
    ),
    Difference(
        "0.32",
        "vllm.lora.request:LoRARequest",
        "tensorizer_config_dict",
        "not read: an adapter is identified by the files in its folder",
        is_removal=True,
    ),
    Difference("0.33", _BASE, "supports_sleep_mode", "not claimed: vLLM's default stands"),
    Difference("0.33", _BASE, "unregister_kv_caches", "vLLM's own, which does nothing"),
    Difference("0.33", _BASE, "restore_kv_caches", "vLLM's own, which does nothing"),
    Difference(
        "0.33",
        "vllm.v1.core.block_pool:BlockPool.__init__",
        "num_hash_lookahead_tokens",
        "passed by vLLM to itself: kvext makes no block pool",
    ),
    Difference(
        "0.33",
        "vllm.v1.core.sched.interface:SchedulerInterface",
        "has_request",
        "implemented by vLLM's own schedulers: kvext brings none",
    ),
    Difference(
        "0.33",
        "vllm.v1.kv_offload.cpu.policies.base:CachePolicy.insert",
        "req_context",
        "of vLLM's own offloading, which kvext does not extend",
    ),
    Difference(
        "0.33",
        "vllm.v1.kv_offload.base:OffloadingManager",
        "lock",
        "of vLLM's own offloading, which kvext does not extend",
    ),
)
"""0.31 and 0.32 were compared by running both, 0.33 by its sources: no CPU build exists yet."""


def vllm_release(version: str = __version__) -> str:
    """The release that a version belongs to: `"0.32"` for `"0.32.1+cpu"`."""
    return ".".join(version.split(".")[:2])


def is_tested(version: str = __version__) -> bool:
    """Whether kvext's tests run with this release of vLLM."""
    return vllm_release(version) in TESTED_RELEASES


def host_hit_source() -> Any:
    """How vLLM shall label hits that come from the host's memory; None if it has no labels."""
    try:
        sources = import_module("vllm.v1.metrics.cache_hit_source")
    except ModuleNotFoundError:
        return None
    return sources.CacheHitSource.HOST
