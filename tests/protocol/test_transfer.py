"""Outcomes: which of them mean that a block is not in the tier."""

from kvext.protocol.transfer import StoreOutcome


def test_block_is_rejected_unless_it_is_in_the_tier_afterwards() -> None:
    kept = {outcome for outcome in StoreOutcome if not outcome.is_rejected}
    assert kept == {StoreOutcome.STORED, StoreOutcome.EXISTS}
