"""The small parts that policies decide with, against values worked out by hand."""

import pytest

from kvext.tenancy.policies.features import children_bucket, crossed, gap_bucket, log_bucket
from kvext.tenancy.policies.logit import LogitModel
from kvext.tenancy.policies.runs import Run
from kvext.tenancy.policies.splitmix import SplitMix64
from kvext.tenancy.policies.survival import NUM_BINS, bin_of, gittins_index
from kvext.tenancy.policies.table import TableModel

ONCE = Run((1, *[0] * 14))


def test_random_numbers_are_splitmix64s() -> None:
    """The first outputs from the seed 1234567, as other implementations give them."""
    random = SplitMix64(1234567)
    assert random.below(2**64) == 6457827717110365317
    assert random.below(2**64) == 3203168211198807973
    assert random.below(2**64) == 9817491932198370423


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [(0, 0), (1999, 0), (2000, 1), (15_999, 4), (16_000, 5), (1_536_000, 18), (2**62, 18)],
)
def test_a_bin_begins_at_its_edge_and_the_last_has_no_end(age_ms: int, expected: int) -> None:
    assert bin_of(age_ms) == expected


def test_certain_hit_is_worth_one_per_half_its_bin() -> None:
    assert gittins_index([1.0] + [0.0] * (NUM_BINS - 1), 0) == pytest.approx(1 / 1000)


def test_block_without_hope_is_worth_nothing() -> None:
    assert gittins_index([0.0] * NUM_BINS, 3) == 0


def test_index_waits_for_the_better_bin() -> None:
    """Nothing for two seconds, then a hit for certain: one hit in 2000 + 1000 milliseconds."""
    assert gittins_index([0.0, 1.0] + [0.0] * (NUM_BINS - 2), 0) == pytest.approx(1 / 3000)


def test_index_does_not_wait_for_a_poor_bin() -> None:
    poor_later = [0.5, *[0.001] * (NUM_BINS - 1)]
    assert gittins_index(poor_later, 0) == pytest.approx(0.5 / 1500)


def test_buckets_are_powers_of_two() -> None:
    assert [log_bucket(value) for value in (-1, 0, 1, 2, 3, 4, 2**40)] == [0, 0, 1, 2, 2, 3, 20]
    assert [gap_bucket(gap_ms) for gap_ms in (-1, 0, 999, 1000, 4000)] == [0, 1, 1, 2, 4]
    assert [children_bucket(number) for number in (0, 1, 2, 7, 8)] == [0, 0, 1, 1, 2]
    assert crossed(3, 9) == 31


def test_logit_begins_with_a_tenth_and_learns_either_way() -> None:
    model = LogitModel()
    assert model.hazards(ONCE, 0) == pytest.approx([0.1] * NUM_BINS)
    for _ in range(200):
        model.learn(ONCE, 0, 1, 1)
        model.learn(ONCE, 10, 0, 1)
    learnt = model.hazards(ONCE, 0)
    assert learnt[0] > 0.5
    assert learnt[10] < 0.1


def test_table_believes_a_class_once_it_has_shown_itself() -> None:
    model = TableModel()
    twice = Run((2, *[0] * 14))
    assert model.hazards(ONCE, 0) == pytest.approx([0.1] * NUM_BINS)
    model.learn(ONCE, 0, 0, 1000)
    model.learn(twice, 0, 1000, 1000)
    assert model.hazards(ONCE, 0)[0] == pytest.approx(0.5 * 50 / 1050, rel=0.01)
    assert model.hazards(twice, 0)[0] == pytest.approx((1000 + 0.5 * 50) / 1050, rel=0.01)
