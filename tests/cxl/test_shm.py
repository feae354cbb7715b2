"""Creating regions: whole or not at all, once, with progress."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kvext.cxl import create_region, region_path, remove_region
from kvext.errors import (
    PoolExists,
    PoolFolderMissing,
    PoolFull,
    PoolLockTimeout,
    PoolMissing,
    PoolPermission,
)
from kvext.pool import Pool

MIB = 1 << 20


def test_region_is_reserved_whole_and_progress_reaches_the_end(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    seen: list[tuple[int, int]] = []
    create_region(
        path, 130 * MIB, Pool.initialise, on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(64 * MIB, 130 * MIB), (128 * MIB, 130 * MIB), (130 * MIB, 130 * MIB)]
    assert path.stat().st_blocks * 512 >= 130 * MIB
    assert path.stat().st_mode & 0o777 == 0o600


def test_second_creation_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    create_region(path, MIB, Pool.initialise)
    before = path.read_bytes()
    with pytest.raises(PoolExists):
        create_region(path, MIB, Pool.initialise)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_folder_with_too_little_room_is_named_and_nothing_stays(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    with pytest.raises(PoolFull) as caught:
        create_region(path, 1 << 50, Pool.initialise)
    assert caught.value.needed_bytes == 1 << 50
    assert list(tmp_path.iterdir()) == []


def test_failure_while_initialising_leaves_nothing(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise PoolPermission("x", "no")

    with pytest.raises(PoolPermission):
        create_region(region_path(tmp_path, "a"), MIB, fail)
    assert list(tmp_path.iterdir()) == []


def test_many_creators_make_one_region(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    made: list[str] = []
    start = threading.Barrier(6)

    def create() -> None:
        start.wait()
        try:
            create_region(path, 8 * MIB, Pool.initialise)
        except PoolExists:
            made.append("lost")
        else:
            made.append("won")

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == ["lost"] * 5 + ["won"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_creator_that_hangs_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")

    def initialise_slowly(new: Path) -> None:
        with pytest.raises(PoolLockTimeout):
            create_region(path, MIB, Pool.initialise, wait_s=0.02)
        Pool.initialise(new)

    create_region(path, MIB, initialise_slowly)
    Pool.attach(path).close()


def test_who_waits_for_the_creator_does_not_wait_for_the_pools_first_engine(
    tmp_path: Path,
) -> None:
    path = region_path(tmp_path, "a")
    outcome: list[str] = []

    def create_too() -> None:
        try:
            create_region(path, MIB, Pool.initialise, wait_s=60)
        except PoolExists:
            outcome.append("exists")

    waiting = threading.Thread(target=create_too)
    engines: list[Pool] = []

    def initialise_and_use(new: Path) -> None:
        Pool.initialise(new)
        # An engine is in the region before the other creator has looked again.
        engines.append(Pool.attach(new, extent_bytes=4096))
        waiting.start()
        while num_open(new) < 3:  # ours, the engine's, the other's
            assert waiting.is_alive()

    create_region(path, MIB, initialise_and_use)
    waiting.join(timeout=10)
    found_while_the_engine_lives = list(outcome)
    engines[0].close()
    waiting.join()
    assert found_while_the_engine_lives == ["exists"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def num_open(path: Path) -> int:
    """Descriptors of this process on a file."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(link.readlink())
    return links.count(path)


def test_leftover_of_a_dead_creator_is_taken_over(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    path.with_name(path.name + ".new").write_bytes(b"x" * 5000)
    create_region(path, MIB, Pool.initialise)
    Pool.attach(path).close()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_missing_folder_and_missing_region_are_named(tmp_path: Path) -> None:
    with pytest.raises(PoolFolderMissing, match="make the folder"):
        create_region(tmp_path / "none" / "kvext-a.pool", MIB, Pool.initialise)
    with pytest.raises(PoolMissing):
        remove_region(region_path(tmp_path, "a"))


def test_removed_region_stays_mapped_where_it_is_in_use(tmp_path: Path) -> None:
    path = region_path(tmp_path, "a")
    create_region(path, MIB, Pool.initialise)
    with Pool.attach(path, extent_bytes=4096) as pool:
        remove_region(path)
        assert pool.stat().num_extents > 0
