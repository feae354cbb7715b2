"""Record shapes: what fits the index's 32 bits, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.protocol.layout import RecordShape

shapes = st.integers(1, 255).flatmap(
    lambda world: st.builds(
        RecordShape, st.integers(1, 65_535), st.integers(0, world - 1), st.just(world)
    )
)


@given(shapes)
def test_packed_shape_holds_every_field_in_32_bits(shape: RecordShape) -> None:
    packed = shape.packed
    assert 0 <= packed < 2**32
    assert RecordShape(packed >> 16, packed >> 8 & 255, packed & 255) == shape


@pytest.mark.parametrize(
    ("block_tokens", "rank", "world"), [(0, 0, 1), (65_536, 0, 1), (16, 1, 1), (16, 0, 256)]
)
def test_shape_outside_its_range_is_refused(block_tokens: int, rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="is outside"):
        RecordShape(block_tokens, rank, world)
