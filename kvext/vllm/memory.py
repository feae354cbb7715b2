# ruff: noqa: N806 - tensor names carry shapes
"""An engine's KV tensors: are they what kvext can copy, and what do their bytes look like?

vLLM gives one tensor a layer whose first dimension is the block, `kv_BHNC`: B blocks, H head
slots, N tokens, C key and value elements. What lies inside a block is the attention backend's
business; `KVLayout.packing` names everything that it depends on.
"""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import AttentionSpec

from kvext.protocol.layout import KVLayout
from kvext.vllm.compat import vllm_release
from kvext.vllm.support import attention_spec, drops_blocks, num_ranks, window_tokens

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

__all__ = ["EngineMemory", "MemoryRefusal", "describe_memory"]

_ROW_MAJOR = frozenset({"amx_mla", "cpu_mla"})
"""CPU backends that pack KV alike on every instruction set: one token's vector after another."""

_WITHOUT_CONTEXT = frozenset({"cpu_mla"})
"""Backends that compute a prompt only as a whole; vLLM switches its own prefix cache off, too."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The KV memory of one worker.

    Attributes:
        tensors: One `kv_BHNC` a layer, in the model's order.
        layout: What the bytes of a block depend on.
        num_blocks: B.
        record_bytes: Bytes of one block over all layers; of several groups, of the largest one.
        layers: vLLM's names of the layers, and which of the tensors each uses.
        groups: The memory of each KV group, if the engine has several or drops blocks; their
            tensors may be the same memory, of which each block is one group's at a time.
    """

    tensors: tuple[torch.Tensor, ...]
    layout: KVLayout
    num_blocks: int
    record_bytes: int
    layers: Mapping[str, int]
    groups: "tuple[EngineMemory, ...]" = ()

    @property
    def is_host(self) -> bool:
        """Whether the processor can read the memory where it lies."""
        return bool(self.tensors[0].device.type == "cpu")

    @property
    def piece_bytes(self) -> list[int]:
        """Bytes of one block in each layer."""
        return [tensor[0].numel() * tensor.element_size() for tensor in self.tensors]


@dataclass(frozen=True, slots=True)
class MemoryRefusal:
    """Why an engine's memory cannot be served: a fact, its value and a remedy."""

    reason: str


def describe_memory(
    kv_caches: Mapping[str, torch.Tensor],
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
) -> EngineMemory | MemoryRefusal:
    """Look at the tensors that vLLM registers.

    Args:
        kv_caches: Layer name to tensor; layers that share KV have the same tensor.
        vllm_config: vLLM's configuration.
        kv_cache_config: How vLLM divides its KV memory.

    Returns:
        The memory, or why it cannot be served.
    """
    if not drops_blocks(kv_cache_config):
        spec = attention_spec(kv_cache_config)
        return _describe(kv_caches, vllm_config, spec, kv_cache_config.num_blocks)
    groups: list[EngineMemory] = []
    for number, group in enumerate(kv_cache_config.kv_cache_groups):
        layers = {name: kv_caches[name] for name in group.layer_names if name in kv_caches}
        spec = attention_spec(kv_cache_config, number)
        memory = _describe(layers, vllm_config, spec, kv_cache_config.num_blocks)
        if isinstance(memory, MemoryRefusal):
            return memory
        groups.append(memory)
    return _join(groups, kv_cache_config)


def _describe(
    kv_caches: Mapping[str, torch.Tensor],
    vllm_config: "VllmConfig",
    spec: AttentionSpec,
    num_blocks: int,
) -> EngineMemory | MemoryRefusal:
    """The memory of one group."""
    unique = {tensor.data_ptr(): tensor for tensor in kv_caches.values()}
    tensors = tuple(unique.values())
    if not tensors:
        return MemoryRefusal("the engine has no KV tensors; drop the connector")
    problem = _find_problem(tensors, num_blocks)
    if problem:
        return MemoryRefusal(problem)
    backend = _backend(vllm_config, next(iter(kv_caches)), tensors[0].device.type)
    if not backend:
        return MemoryRefusal("the attention backend does not tell how it packs KV; use another one")
    if backend in _WITHOUT_CONTEXT:
        return MemoryRefusal(
            f"attention backend {backend.upper()} cannot go on from KV that it has not computed; "
            "use one that can, such as AMX_MLA on a processor with AMX"
        )
    layout = _layout(tensors, vllm_config, spec, backend)
    places = {address: place for place, address in enumerate(unique)}
    layers = {name: places[tensor.data_ptr()] for name, tensor in kv_caches.items()}
    memory = EngineMemory(tensors, layout, tensors[0].shape[0], 0, layers)
    return replace(memory, record_bytes=sum(memory.piece_bytes))


def _join(groups: list[EngineMemory], kv_cache_config: "KVCacheConfig") -> EngineMemory:
    """All groups as one; the layout names each group's layers, so that no two divisions meet."""
    first = groups[0]
    hasher = hashlib.sha256()
    for number, (memory, group) in enumerate(
        zip(groups, kv_cache_config.kv_cache_groups, strict=True)
    ):
        window = window_tokens(attention_spec(kv_cache_config, number))
        names = ",".join(group.layer_names)
        hasher.update(f"{memory.layout.canonical().hex()} {window} {names}\n".encode())
    layout = KVLayout(
        first.layout.dtype,
        sum(memory.layout.num_layers for memory in groups),
        first.layout.num_kv_heads,
        first.layout.head_size,
        f"{first.layout.packing}/groups-{len(groups)}-{hasher.hexdigest()}",
    )
    largest = max(memory.record_bytes for memory in groups)
    return EngineMemory(first.tensors, layout, first.num_blocks, largest, {}, tuple(groups))


def _find_problem(tensors: tuple[torch.Tensor, ...], num_blocks: int) -> str:
    first = tensors[0]
    for kv_BHNC in tensors:
        shape = tuple(kv_BHNC.shape)
        if kv_BHNC.dim() < 2 or shape[0] != num_blocks:  # noqa: PLR2004 - a block and its inside
            return (
                f"KV tensors of shape {shape} for {num_blocks} blocks are unknown; use a layout "
                "with whole blocks"
            )
        if shape != tuple(first.shape) or kv_BHNC.dtype != first.dtype:
            return "layers whose KV tensors differ are not supported yet; drop the connector"
        if kv_BHNC.device.type == "cpu" and not kv_BHNC.is_contiguous():
            return (
                f"KV tensors with strides {kv_BHNC.stride()} are not contiguous; use layout LBHNC"
            )
    return ""


def _layout(
    tensors: tuple[torch.Tensor, ...],
    vllm_config: "VllmConfig",
    spec: AttentionSpec,
    backend: str,
) -> KVLayout:
    device = tensors[0].device.type
    ranks = num_ranks(vllm_config)
    dims = "x".join(str(size) for size in tensors[0].shape[1:])
    packing = "/".join(
        (
            f"vllm-{vllm_release()}",
            device,
            platform.machine(),
            backend,
            _quantization(vllm_config, spec),
            f"v{spec.head_size_v}",
            dims,
            # Sums over other numbers of ranks round otherwise.
            *([f"tp{ranks}"] if ranks > 1 else []),
        )
    )
    dtype = str(spec.dtype).removeprefix("torch.")
    return KVLayout(dtype, len(tensors), spec.num_kv_heads, spec.head_size, packing)


def _quantization(vllm_config: "VllmConfig", spec: AttentionSpec) -> str:
    """The spec calls both fp8 formats uint8 and per-tensor; only the option tells them apart."""
    mode = spec.kv_quant_mode.name.lower()
    latent_dtype = getattr(spec, "cache_dtype_str", None) or "auto"
    if mode == "none" and latent_dtype == "auto":
        return "quant-none"
    return f"quant-{mode}-{vllm_config.cache_config.cache_dtype}"


def _backend(vllm_config: "VllmConfig", layer_name: str, device: str) -> str:
    """The attention backend and, on a CPU, the instruction set that it packs for."""
    layer: Any = vllm_config.compilation_config.static_forward_context.get(layer_name)
    attn_backend = getattr(layer, "attn_backend", None)
    if attn_backend is None:
        return ""
    name = str(attn_backend.get_name()).lower()
    if name in _ROW_MAJOR:
        return name
    if device == "cpu":
        isa = getattr(layer, "isa", "")
        return f"{name}-{isa}" if isa else ""
    return f"{name}-{current_platform.get_device_name().replace('/', '-').lower()}"
