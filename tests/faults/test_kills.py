"""Processes are killed and stopped at every step of the core, under load.

After each: no wrong byte, every acknowledged record there, capacity back to the byte, no pin left,
nothing for fsck to name, and nobody who waited longer than its deadline.
"""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.arena import Arena, Cast
from tests.faults.conftest import Toll
from tests.faults.ledger import Tally
from tests.faults.nursery import Nursery
from tests.faults.steps import ELSEWHERE, LABELS, victim_at
from tests.faults.ward import Ward
from tests.faults.worker import ANSWER_S, READY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

UNDER_LOAD = [label for label in LABELS if not label.startswith(ELSEWHERE)]
ROOMY_BYTES = 2 << 20
"""Room for every key there is, so that nothing need ever be evicted."""
TIGHT_BYTES = 600_000
KILLS_A_STEP = 10
STOPS_A_STEP = 10
RANDOM_KILLS = 60
RANDOM_STOPS = 20
MASSACRES = 6
FSCKS = 100
UPSETS = 100
SHORT_LEASE_S = 0.12


@pytest.mark.parametrize("label", UNDER_LOAD)
def test_death_at_a_step_costs_the_survivors_nothing(
    label: str, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    lease_s = SHORT_LEASE_S if label.startswith("readmit.") else 30.0
    with Arena(tmp_path / "arena", [nursery], region_bytes=ROOMY_BYTES, lease_s=lease_s) as arena:
        for _ in range(KILLS_A_STEP):
            victim_at(arena, label, signal.SIGKILL).bury()
            toll.count(label, signal.SIGKILL)
            arena.pause()
            arena.check()
            arena.go_on()
        arena.end()


@pytest.mark.parametrize("label", UNDER_LOAD)
def test_stop_at_a_step_is_fenced_and_healed(
    label: str, nurseries: tuple[Nursery, Nursery], tmp_path: Path, toll: Toll
) -> None:
    """Most of it is waiting for leases to pass: two arenas at a time, one roomy and one tight."""
    with ThreadPoolExecutor(2) as threads:
        halves = [
            threads.submit(
                _stop_at, label, nursery, tmp_path / f"arena-{region_bytes}", region_bytes
            )
            for nursery, region_bytes in zip(nurseries, (ROOMY_BYTES, TIGHT_BYTES), strict=True)
        ]
        for half in halves:
            for _ in range(half.result()):
                toll.count(label, signal.SIGSTOP)


def _stop_at(label: str, nursery: Nursery, folder: Path, region_bytes: int) -> int:
    can_evict = region_bytes < ROOMY_BYTES
    with Arena(folder, [nursery], region_bytes=region_bytes, lease_s=SHORT_LEASE_S) as arena:
        for round_number in range(STOPS_A_STEP // 2):
            victim = victim_at(arena, label, signal.SIGSTOP)
            arena.outlast(victim)
            _end_of(victim, arena, wakes=bool(round_number % 2), can_evict=can_evict)
        arena.end()
    return STOPS_A_STEP // 2


def _end_of(victim: Ward, arena: Arena, *, wakes: bool, can_evict: bool) -> None:
    """A stopped process wakes for a while, or does not, and is killed; all must hold each time."""
    if wakes:
        victim.signal(signal.SIGCONT)
        arena.pause(victim)
        arena.check(can_evict=can_evict)
        arena.go_on(victim)
    victim.kill()
    arena.pause()
    arena.check(can_evict=can_evict)
    arena.go_on()


@pytest.mark.parametrize("region_bytes", [ROOMY_BYTES, TIGHT_BYTES], ids=["roomy", "tight"])
def test_death_at_any_moment_costs_the_survivors_nothing(
    region_bytes: int, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    with Arena(
        tmp_path / "arena", [nursery], region_bytes=region_bytes, cast=Cast(num_writers=3)
    ) as arena:
        _kill_at_random(arena, RANDOM_KILLS, toll, "random")
        arena.end()


def test_death_at_any_moment_among_equal_process_ids(
    twins: tuple[Nursery, Nursery], tmp_path: Path, toll: Toll
) -> None:
    with Arena(
        tmp_path / "arena",
        twins,
        region_bytes=ROOMY_BYTES,
        cast=Cast(num_writers=3),
        equal_pids=True,
    ) as arena:
        equal = [arena.num_equal_pids()]
        for _ in range(6):
            _kill_at_random(arena, RANDOM_KILLS // 6, toll, "random, equal pids")
            equal.append(arena.num_equal_pids())
        # Now and then a thread of another worker is quicker to take the id.
        assert sum(equal) >= len(equal), equal
        arena.end()


def test_stop_at_any_moment_of_a_crowded_pool_is_fenced_and_healed(
    nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    with Arena(
        tmp_path / "arena", [nursery], region_bytes=TIGHT_BYTES, lease_s=SHORT_LEASE_S
    ) as arena:
        for round_number in range(RANDOM_STOPS):
            victim = arena.bear("everything", arena.victim_row)
            victim.expect(READY)
            victim.fate(arena.random.uniform(0.0, 0.02))
            victim.signal(signal.SIGSTOP)
            assert victim.fate(ANSWER_S).what == "stopped"
            toll.count("random", signal.SIGSTOP)
            arena.outlast(victim)
            _end_of(victim, arena, wakes=bool(round_number % 2), can_evict=True)
        arena.end()


def test_death_of_all_at_once_leaves_a_whole_pool(
    nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    with Arena(tmp_path / "arena", [nursery], region_bytes=ROOMY_BYTES) as arena:
        for _ in range(MASSACRES):
            victim = arena.bear("everything", arena.victim_row)
            victim.fate(arena.random.uniform(0.0, 0.05))
            arena.leave()
            for worker in (victim, *arena.survivors):
                worker.signal(signal.SIGKILL)
            for worker in (victim, *arena.survivors):
                worker.kill()
                toll.count("all at once", signal.SIGKILL)
            arena.come_back()
            arena.check()
            for row in range(len(arena.survivors)):
                arena.replace(row)
        arena.end()


@pytest.mark.parametrize("region_bytes", [ROOMY_BYTES, TIGHT_BYTES], ids=["roomy", "tight"])
def test_many_that_stop_wake_and_die_in_any_order_harm_nobody(
    region_bytes: int, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    cast = Cast(num_victims=4)
    with Arena(
        tmp_path / "arena",
        [nursery],
        region_bytes=region_bytes,
        cast=cast,
        lease_s=SHORT_LEASE_S,
    ) as arena:
        rows = range(arena.victim_row, arena.num_rows)
        victims = {row: arena.bear("everything", row) for row in rows}
        for turn in range(UPSETS):
            row = arena.random.choice(rows)
            number = arena.random.choice((signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL))
            if number is signal.SIGKILL:
                victims[row].kill()
                victims[row] = arena.bear("everything", row)
            else:
                victims[row].signal(number)
            if number is not signal.SIGCONT:
                toll.count("upsets", number)
            arena.doze(arena.random.uniform(0.0, arena.lease_s / 2))
            if turn % 4 == 0:
                arena.try_to_reap()
        for victim in victims.values():
            victim.kill()
        arena.pause()
        arena.check(can_evict=region_bytes == TIGHT_BYTES)
        arena.go_on()
        arena.end()


def test_writers_are_told_and_readers_go_on_while_a_stopped_process_holds_the_lock(
    nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    with Arena(tmp_path / "arena", [nursery], region_bytes=ROOMY_BYTES) as arena:
        for label in ("lock.taken", "reserve.slot_filled", "lock.unmarked"):
            victim = victim_at(arena, label, signal.SIGSTOP)
            toll.count(label, signal.SIGSTOP)
            arena.await_more(Tally.LOCK_TIMEOUTS, 20)
            arena.await_more(Tally.LOADS, 100)
            victim.signal(signal.SIGCONT)
            arena.await_more(Tally.STORES, 10)
            arena.pause(victim)
            arena.check()
            arena.go_on(victim)
            victim.kill()
        arena.end()


def test_fsck_names_nothing_and_mends_nothing_while_all_work(
    nursery: Nursery, tmp_path: Path
) -> None:
    with Arena(
        tmp_path / "arena", [nursery], region_bytes=TIGHT_BYTES, cast=Cast(pace_s=0)
    ) as arena:
        for round_number in range(FSCKS):
            report = arena.pool.fsck(repair=round_number % 2 == 0, verify_data=True)
            assert report.is_clean, report
        arena.pause()
        arena.check(can_evict=True)
        arena.go_on()
        arena.end()


def test_death_and_stop_at_every_step_among_equal_process_ids(
    twins: tuple[Nursery, Nursery], tmp_path: Path, toll: Toll
) -> None:
    with Arena(
        tmp_path / "arena",
        twins,
        region_bytes=ROOMY_BYTES,
        lease_s=SHORT_LEASE_S,
        equal_pids=True,
    ) as arena:
        for label in UNDER_LOAD:
            for number in (signal.SIGKILL, signal.SIGSTOP):
                victim = victim_at(arena, label, number)
                toll.count(f"{label}, equal pids", number)
                if number is signal.SIGSTOP:
                    arena.outlast(victim)
                victim.kill()
                arena.pause()
                arena.check()
                arena.go_on()
        arena.end()


def _kill_at_random(arena: Arena, num_kills: int, toll: Toll, name: str) -> None:
    """Kill anybody, survivors included, and put another one into its place."""
    victim = arena.bear("everything", arena.victim_row)
    for _ in range(num_kills):
        row = arena.random.randrange(arena.victim_row + 1)
        doomed = victim if row == arena.victim_row else arena.survivors[row]
        doomed.fate(arena.random.uniform(0.0, 0.03))
        doomed.kill()
        toll.count(name, signal.SIGKILL)
        if row == arena.victim_row:
            victim = arena.bear("everything", row)
        else:
            arena.replace(row)
        arena.pause(victim)
        arena.check(can_evict=True)
        arena.go_on(victim)
    victim.kill()


def test_enough_have_died(
    toll: Toll, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    toll.write(tmp_path / "toll.json")
    with capsys.disabled():
        print(f"\nprocesses killed and stopped, by step:\n{toll}")  # noqa: T201
    if request.session.testscollected < 2 * len(UNDER_LOAD):
        pytest.skip("only some of the tests were chosen")
    assert toll.killed.total() >= 500
    assert all(toll.killed[label] >= KILLS_A_STEP for label in UNDER_LOAD)
    assert all(toll.stopped[label] >= STOPS_A_STEP for label in UNDER_LOAD)
