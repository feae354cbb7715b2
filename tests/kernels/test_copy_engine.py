"""Every route that runs without a device, against the oracle; the refusals of all of them."""

import pytest
import torch

from kvext.kernels import Route, open_engine
from kvext.kernels.reference import gather_reference
from tests.kernels.caches import CACHES, Cache, blocks_but

NUM_BLOCKS = 9
WHOLE_BLOCKS = [cache for cache in CACHES if cache.order == (0, 1, 2)]
ROUTES = [(cache, Route.STAGED) for cache in CACHES] + [
    (cache, Route.PIECES) for cache in WHOLE_BLOCKS
]


@pytest.mark.parametrize("as_list", [False, True], ids=["one tensor", "scattered records"])
@pytest.mark.parametrize(("cache", "route"), ROUTES, ids=lambda value: getattr(value, "name", ""))
def test_blocks_travel_out_and_back(cache: Cache, route: Route, as_list: bool) -> None:  # noqa: FBT001 - a parameter
    source, target = cache.tensors(NUM_BLOCKS, seed=1), cache.tensors(NUM_BLOCKS, seed=2)
    taking, giving = open_engine(source, 5, route), open_engine(target, 5, route)
    buffer_RP = torch.zeros((5, taking.kv.record_bytes), dtype=torch.uint8)  # noqa: N806
    records = [buffer_RP[row] for row in (4, 2, 0, 1)] if as_list else buffer_RP[:4]
    assert taking.gather([8, 0, 0, 3], records).wait(1.0)
    assert torch.equal(torch.stack(list(records)), gather_reference(source, [8, 0, 0, 3]))
    around = blocks_but(target, [5, 6, 7, 1])
    assert giving.scatter(records, [5, 6, 7, 1]).wait(1.0)
    assert torch.equal(gather_reference(target, [5, 6, 7, 1]), torch.stack(list(records)))
    assert blocks_but(target, [5, 6, 7, 1]) == around


@pytest.mark.parametrize("route", [Route.STAGED, Route.PIECES])
@pytest.mark.parametrize("block_ids", [[0, NUM_BLOCKS], [-1, 0]])
def test_a_block_outside_the_cache_is_refused(route: Route, block_ids: list[int]) -> None:
    engine = open_engine(CACHES[0].tensors(NUM_BLOCKS, seed=1), 2, route)
    records = torch.zeros((2, engine.kv.record_bytes), dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"exceed 0\.\.8; give ids"):
        engine.gather(block_ids, records)
    with pytest.raises(ValueError, match=r"exceed 0\.\.8; give ids"):
        engine.scatter(records, block_ids)


def test_counts_that_differ_are_refused() -> None:
    engine = open_engine(CACHES[0].tensors(NUM_BLOCKS, seed=1), 3)
    records = torch.zeros((3, engine.kv.record_bytes), dtype=torch.uint8)
    with pytest.raises(ValueError, match="2 blocks for 3 records; give one record a block"):
        engine.gather([0, 1], records)


def test_pieces_of_several_runs_are_not_copied_one_by_one() -> None:
    (scattered,) = (cache for cache in CACHES if cache.name == "tokens before heads")
    with pytest.raises(ValueError, match="use another route"):
        open_engine(scattered.tensors(NUM_BLOCKS, seed=1), 2, Route.PIECES)
