"""The safetensors writer against the format's own reader, and bfloat16 against exact arithmetic."""

import math
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from kvext.testing.safetensors import to_bfloat16, write_safetensors

LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127
finite_float32 = st.floats(
    width=32,
    allow_nan=False,
    allow_infinity=False,
    max_value=LARGEST_BFLOAT16,
    min_value=-(2.0**127),
)


def exact(bfloat16_bits: int) -> Fraction:
    (value,) = struct.unpack("<f", struct.pack("<I", bfloat16_bits << 16))
    return Fraction(value)


@given(finite_float32)
def test_bfloat16_is_the_nearest_with_ties_to_even(value: float) -> None:
    rounded = int(to_bfloat16(np.array([value], np.float32))[0])
    distance = abs(exact(rounded) - Fraction(value))
    for neighbour in (rounded - 1, rounded + 1):
        if neighbour & 0x7FFF >= 0x7F80 or neighbour < 0 or neighbour > 0xFFFF:
            continue
        other = abs(exact(neighbour) - Fraction(value))
        assert distance < other or (distance == other and rounded % 2 == 0)


@pytest.mark.parametrize(
    ("float32_bits", "bfloat16_bits"),
    [
        pytest.param(0x3F808000, 0x3F80, id="tie goes down to even"),
        pytest.param(0x3F818000, 0x3F82, id="tie goes up to even"),
        pytest.param(0x3F808001, 0x3F81, id="above the tie goes up"),
        pytest.param(0x3F817FFF, 0x3F81, id="below the tie goes down"),
        pytest.param(0x3FFFFFFF, 0x4000, id="carry reaches the exponent"),
        pytest.param(0x80000000, 0x8000, id="minus zero stays"),
    ],
)
def test_bfloat16_of_known_bit_patterns(float32_bits: int, bfloat16_bits: int) -> None:
    value = np.array([float32_bits], np.uint32).view(np.float32)
    assert to_bfloat16(value).tolist() == [bfloat16_bits]


def test_reader_of_the_format_finds_the_same_float32_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "row": np.array([math.pi], np.float32),
    }
    write_safetensors(path, dict(tensors))
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor)


def test_uint16_tensors_are_declared_as_bfloat16(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"half": to_bfloat16(np.ones((2, 4), np.float32))})
    with safe_open(path, framework="np") as file:
        entry = file.get_slice("half")
        assert (entry.get_dtype(), entry.get_shape()) == ("BF16", [2, 4])


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    wide = np.ones(2, np.float64)
    with pytest.raises(KeyError, match="float64"):
        write_safetensors(tmp_path / "x", {"wide": wide})  # type: ignore[dict-item]
