"""Small prompts whose equal beginnings have equal keys, as tests of tenancy need them."""

from array import array
from collections.abc import Sequence

from kvext.tenancy.policy import Access

TENANT_BITS = 40
_ODD = 0x9E3779B97F4A7C15


def prompt(
    now_ms: int,
    path: Sequence[int],
    *,
    tenant: int = 0,
    block_tokens: int = 16,
    answer_blocks: int = 0,
) -> Access:
    """A request whose block i is the one that follows the first i numbers of the path."""
    keys = array("Q")
    key = 0
    for step in path:
        key = (key ^ (step + 1)) * _ODD % (1 << TENANT_BITS)
        key ^= key >> 17
        keys.append((tenant << TENANT_BITS) + key)
    return Access(
        now_ms, keys, input_tokens=(len(keys) - answer_blocks) * block_tokens, output_tokens=1
    )


def fresh(now_ms: int, number: int, *, tenant: int = 0, num_blocks: int = 4) -> Access:
    """A request that has no block in common with those of other numbers."""
    return prompt(now_ms, [number * 1000 + at for at in range(num_blocks)], tenant=tenant)
