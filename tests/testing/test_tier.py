import pytest

from kvext.protocol.transfer import LoadOutcome
from kvext.testing.tier import FakePages, FakeTier
from tests.contracts.tier_contract import SHAPE, Layers, TierContract, keys_of


class TestFakeTier(TierContract):
    @pytest.fixture
    def capacity(self) -> int:
        return 8

    @pytest.fixture
    def tier(self, capacity: int) -> FakeTier:
        return FakeTier(capacity)

    @pytest.fixture
    def pages(self, layers: Layers) -> FakePages:
        return FakePages(layers)

    def test_a_corrupt_block_is_told_and_forgotten(self, tier: FakeTier, pages: FakePages) -> None:
        tier.store(keys_of(1), SHAPE, b"n" * 32, pages, [0])
        tier.corrupt(keys_of(1), SHAPE)
        lease = tier.match(keys_of(1), SHAPE)
        assert tier.load(lease.refs, pages, [1]) == bytes([LoadOutcome.CORRUPT])
        assert tier.match(keys_of(1), SHAPE).num_blocks == 0
