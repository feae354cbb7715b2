"""Random weights for tiny models, scaled so that what a model answers depends on its context."""

from typing import Literal

import numpy as np

from kvext.testing.safetensors import Float32Array, Tensor, to_bfloat16

__all__ = ["LOGIT_GAIN", "QUERY_GAIN", "DType", "mlp_weights", "projection", "stored"]

DType = Literal["float32", "bfloat16"]

QUERY_GAIN = 2.0
"""Attention is sharp: the few keys that fit best decide."""
LOGIT_GAIN = 4.0
"""So is the choice of the next token."""


def projection(
    rng: np.random.Generator, output_size: int, input_size: int, *, gain: float = 1.0
) -> Float32Array:
    """Weights [output, input] that map inputs of unit variance to outputs of variance gain^2."""
    scale = np.float32(gain / np.sqrt(input_size))
    return rng.standard_normal((output_size, input_size), np.float32) * scale


def mlp_weights(
    rng: np.random.Generator, stem: str, hidden_size: int, mlp_size: int
) -> dict[str, Float32Array]:
    """The three projections of a gated feed-forward layer, named below `stem`."""
    return {
        f"{stem}.mlp.gate_proj.weight": projection(rng, mlp_size, hidden_size),
        f"{stem}.mlp.up_proj.weight": projection(rng, mlp_size, hidden_size),
        f"{stem}.mlp.down_proj.weight": projection(rng, hidden_size, mlp_size),
    }


def stored(weights: dict[str, Float32Array], dtype: DType) -> dict[str, Tensor]:
    """The weights as a file of this dtype holds them."""
    if dtype == "float32":
        return dict(weights)
    return {name: to_bfloat16(tensor) for name, tensor in weights.items()}
