"""What is not worth writing, and what that may cost."""

import random

import pytest

from kvext.tenancy.policies import make_policy
from kvext.tenancy.policy import Access
from kvext.tenancy.store_admission import StoreAdmission
from tests.tenancy.prompts import fresh, prompt


def traffic(seed: int = 0) -> list[tuple[str, Access]]:
    """One tenant reads documents again and again, the other none twice."""
    draw = random.Random(seed)  # noqa: S311 - made-up traffic
    requests = []
    for at in range(4000):
        requests.append(("reader", fresh(at, draw.randrange(300), tenant=0, num_blocks=6)))
        requests.append(("scanner", fresh(at, at, tenant=1, num_blocks=8)))
    return requests


def test_without_pressure_every_full_block_is_wanted() -> None:
    admission = StoreAdmission(1000)
    for _, access in traffic():
        assert admission.num_wanted(access, under_pressure=False) == len(access.keys)


def test_partial_tail_is_never_wanted() -> None:
    admission = StoreAdmission(1000)
    request = Access(0, prompt(0, [1, 2, 3]).keys, input_tokens=40, partial_tail=True)
    assert admission.num_wanted(request, under_pressure=False) == 2


def test_what_was_seen_before_is_wanted_under_pressure() -> None:
    admission = StoreAdmission(100_000)
    for tenant, access in traffic():
        admission.num_wanted(access, tenant=tenant, under_pressure=True)
    scan = fresh(5000, 3999, tenant=1, num_blocks=8)
    assert admission.num_wanted(scan, tenant="scanner", under_pressure=True) == 8


def test_blocks_of_a_scanner_are_soon_not_written_and_those_of_a_reader_are() -> None:
    admission = StoreAdmission(1000)
    wanted = [
        (tenant, admission.num_wanted(access, tenant=tenant, under_pressure=True))
        for tenant, access in traffic()
    ]
    late = wanted[len(wanted) // 2 :]
    assert sum(number for tenant, number in late if tenant == "scanner") == 0
    assert all(number == 6 for tenant, number in late if tenant == "reader")


def test_scanner_that_becomes_a_reader_is_written_again() -> None:
    admission = StoreAdmission(1000)
    for tenant, access in traffic():
        admission.num_wanted(access, tenant=tenant, under_pressure=True)
    draw = random.Random(1)  # noqa: S311 - made-up traffic
    wanted = [
        admission.num_wanted(
            fresh(9000 + at, 5000 + draw.randrange(2000), tenant=1, num_blocks=8),
            tenant="scanner",
            under_pressure=True,
        )
        for at in range(3000)
    ]
    assert sum(wanted[-500:]) > 0.9 * 500 * 8


@pytest.mark.parametrize("lost_part", [0.0, 0.02, 0.1])
def test_lost_hits_stay_near_their_bound(lost_part: float) -> None:
    draw = random.Random(2)  # noqa: S311 - made-up traffic
    admission = StoreAdmission(2000, lost_part=lost_part)
    for at in range(20_000):
        # Longer prompts come back ever less often.
        size = draw.choice([2, 4, 8, 16])
        number = draw.randrange(40 * size**2)
        access = fresh(at, size * 100_000 + number, num_blocks=size)
        admission.num_wanted(access, under_pressure=True)
    counts = admission.counts
    assert counts.num_lost <= (lost_part + 0.04) * (counts.num_found + counts.num_lost)


def test_fewer_blocks_are_written_for_each_hit() -> None:
    def replay(admission: StoreAdmission | None) -> tuple[int, int]:
        cache = make_policy("lru", 1000)
        num_hits, num_written = 0, 0
        for tenant, access in traffic():
            keys = access.keys
            if admission is not None:
                under_pressure = cache.size + len(keys) > cache.capacity
                keys = keys[
                    : admission.num_wanted(access, tenant=tenant, under_pressure=under_pressure)
                ]
            before = cache.size
            answer = cache.access(Access(access.now_ms, keys, input_tokens=1))
            num_hits += answer.num_hits
            num_written += cache.size - before + len(answer.victims)
        return num_hits, num_written

    hits, written = replay(None)
    fewer_hits, fewer_written = replay(StoreAdmission(1000))
    assert fewer_hits > hits
    assert fewer_written / fewer_hits < 0.5 * written / hits
