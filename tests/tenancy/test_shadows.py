"""What shadows say of caches that are not there."""

import random
from functools import partial

import pytest

from kvext.tenancy.policies import make_policy
from kvext.tenancy.policy import Access
from kvext.tenancy.shadows import ConversationSample, Fading, Shadows
from kvext.tenancy.tuning import Tuning
from tests.tenancy.prompts import prompt


def conversations(number: int, *, shared: int, seed: int = 0) -> list[tuple[int, Access]]:
    """Requests of conversations that grow by two blocks a turn, with their conversation."""
    draw = random.Random(seed)  # noqa: S311 - made-up traffic
    starts = [draw.uniform(0, 1e6) for _ in range(number)]
    turns = [(start + turn * 2e4, at, turn) for at, start in enumerate(starts) for turn in range(6)]
    return [
        (at, prompt(int(now), [*range(shared), *(100 + at * 50 + i for i in range(2 * turn + 2))]))
        for now, at, turn in sorted(turns)
    ]


@pytest.mark.parametrize("shared", [0, 3])
def test_sample_takes_whole_conversations_and_about_one_of_so_many(shared: int) -> None:
    sample = ConversationSample(4)
    taken: dict[int, set[bool]] = {}
    for at, request in conversations(800, shared=shared):
        taken.setdefault(at, set()).add(sample.takes(request))
    whole = [answers.pop() for answers in taken.values() if len(answers) == 1]
    assert len(whole) > 0.98 * 800
    assert sum(whole) == pytest.approx(200, abs=50)


def test_sample_of_one_takes_all() -> None:
    sample = ConversationSample(1)
    assert all(sample.takes(request) for _, request in conversations(50, shared=1))


def test_rate_is_that_of_late() -> None:
    fading = Fading(memory=100.0)
    for at in range(1000):
        fading.add(1.0, at)
    for at in range(1000, 2000):
        fading.add(3.0, at)
    assert fading.rate(2000) == pytest.approx(3.0, rel=0.02)
    assert Fading(100.0).rate(0) == 0.0


def test_rate_of_a_short_past_is_not_too_low() -> None:
    fading = Fading(memory=1e6)
    for at in range(100):
        fading.add(2.0, at)
    assert fading.rate(100) == pytest.approx(2.0, rel=0.01)


def shadows_of(sizes: list[int], shadow_blocks: int) -> Shadows:
    tuning = Tuning(shadow_blocks=shadow_blocks, fair_turnovers=1000.0)
    return Shadows(sizes, partial(make_policy, "lru"), tuning=tuning, now_ms=0)


@pytest.mark.parametrize(("shadow_blocks", "error"), [(1000, 1e-3), (100, 0.1)])
def test_shadow_of_the_entitlement_hits_as_a_cache_of_its_size(
    shadow_blocks: int, error: float
) -> None:
    traffic = [access for _, access in conversations(3000, shared=2)]
    cache = make_policy("lru", 400)
    exact = sum(cache.access(access).num_hits for access in traffic)
    shadows = shadows_of([400, 200, 800], shadow_blocks)
    for access in traffic:
        shadows.see(access, 0)
        shadows.fit(400)
    assert shadows.alone() * shadows.num_blocks == pytest.approx(exact, rel=max(error, 0.06))


def test_sampled_shadows_cost_as_much_less() -> None:
    shadows = shadows_of([400, 200, 800], 50)
    for _, access in conversations(2000, shared=0):
        shadows.see(access, 0)
    # Four shadows, the mirror among them, of one of eight conversations.
    assert shadows.num_shadowed < 0.7 * shadows.num_blocks


def test_curve_rises_with_the_size() -> None:
    shadows = shadows_of([400, 200, 800], 1000)
    for _, access in conversations(1000, shared=0):
        shadows.see(access, 0)
    curve = shadows.curve(1_000_000)
    assert [point.size for point in curve] == [0, 200, 400, 800]
    saved = [point.saved for point in curve]
    assert saved == sorted(saved)
    assert saved[-1] > saved[1]


def test_tenant_served_as_alone_has_no_surplus_to_spend() -> None:
    shadows = shadows_of([400, 200, 800], 1000)
    own = make_policy("lru", 400)
    for _, access in conversations(1000, shared=0):
        shadows.see(access, own.access(access).num_hits)
    alone = {point.size: point.saved for point in shadows.curve(1_000_000)}[400]
    assert shadows.enough(1.0, 1_000_000) == pytest.approx(alone)
    assert shadows.enough(0.5, 1_000_000) < 0.9 * alone
