"""What a host does to a pool: too little memory, limits, another boot, a file cut short."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.errors import PoolDamaged
from kvext.pool import Pool
from kvext.protocol.transfer import StoreOutcome
from tests.faults.anatomy import BOOT_ID_AT
from tests.faults.conftest import Toll, refused
from tests.faults.ledger import Ledger
from tests.faults.nursery import Nursery
from tests.faults.orders import Orders
from tests.faults.records import RECORD_BYTES, SHAPE, Blocks, key_of, namespace_of
from tests.faults.tasks import CREATED_BYTES
from tests.faults.ward import Ward
from tests.faults.worker import READY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

CREATE = """
import sys
from pathlib import Path
from kvext.cxl import create_region
from kvext.errors import PoolError
from kvext.pool import Pool
try:
    create_region(Path(sys.argv[1]), int(sys.argv[2]), Pool.initialise)
except PoolError as error:
    print(type(error).__name__, sorted(path.name for path in Path(sys.argv[1]).parent.iterdir()))
else:
    print("created")
"""
MIB = 1 << 20
CREATORS = 30


def store_one(pool: Pool, index: int) -> StoreOutcome:
    outcomes = pool.store(key_of(0, index), SHAPE, namespace_of(0), Blocks(1).pages, [0])
    return StoreOutcome(outcomes[0])


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = tmp_path / "kvext-host.pool"
    create_region(path, MIB, Pool.initialise)
    with Pool.attach(path, extent_bytes=RECORD_BYTES) as pool:
        assert store_one(pool, 0) is StoreOutcome.STORED
    return path


@pytest.mark.parametrize("num_bytes", [0, 100, 4096, MIB // 2, MIB - 1, MIB + 4096])
def test_region_of_another_size_than_its_header_says_is_refused(
    num_bytes: int, region: Path
) -> None:
    os.truncate(region, num_bytes)
    for extent_bytes in (RECORD_BYTES, None):
        with pytest.raises(PoolDamaged):
            Pool.attach(region, extent_bytes=extent_bytes)


def test_region_of_another_boot_is_laid_out_anew(region: Path) -> None:
    with region.open("r+b") as file:
        os.pwrite(file.fileno(), b"11111111-2222-3333-4444-555555555555", BOOT_ID_AT)
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
        assert pool.match(key_of(0, 0), SHAPE).num_blocks == 0
        assert pool.num_free == pool.num_extents
        assert pool.fsck(verify_data=True).is_clean
        assert store_one(pool, 0) is StoreOutcome.STORED


@pytest.mark.parametrize("taken_bytes", [0, 3 * MIB])
def test_full_tmpfs_refuses_the_pool_and_keeps_nothing_of_it(
    taken_bytes: int, tmp_path: Path
) -> None:
    """A small tmpfs of its own stands in for a full `/dev/shm`."""
    if reason := refused("unshare", "--mount"):
        pytest.skip(f"no mount namespaces here: {reason}")
    mount = f'mount -t tmpfs -o size=4m kvext {tmp_path} && exec "$@"'
    fill = f"open('{tmp_path}/other', 'wb').write(bytes({taken_bytes}))\n"
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            mount,
            "sh",
            sys.executable,
            "-c",
            fill + CREATE,
            tmp_path / "kvext-full.pool",
            str(4 * MIB + 4096 if not taken_bytes else 2 * MIB),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "PoolFull ['other']\n", done


@contextmanager
def limited_memory(num_bytes: int) -> Iterator[Path]:
    """A control group's list of processes, whose memory is limited; skips where there is none."""
    for parent, limit in (
        (Path("/sys/fs/cgroup"), "memory.max"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    ):
        group = parent / f"kvext-test-{os.getpid()}"
        if not (parent / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        try:
            if not (group / limit).exists():
                pytest.skip("control groups here do not limit memory")
            (group / limit).write_text(str(num_bytes))
            yield group / "cgroup.procs"
        finally:
            group.rmdir()
        return
    pytest.skip("no control groups here")


def test_pool_beyond_the_memory_limit_is_never_there_in_part(tmp_path: Path) -> None:
    """Its pages are charged to whoever creates it, who may be killed for that by the kernel."""
    if reason := refused("unshare", "--mount"):
        pytest.skip(f"no mount namespaces here: {reason}")
    path = tmp_path / "kvext-limited.pool"
    again = f"{sys.executable} -c '{CREATE}' {path} {8 * MIB}"
    steps = (
        f"mount -t tmpfs -o size=512m kvext {tmp_path}",
        "echo $$ > $1",
        f"{sys.executable} -c '{CREATE}' {path} {256 * MIB}",
        'echo "status $?"',
        f"test ! -e {path} && echo absent",
        again,
    )
    with limited_memory(96 * MIB) as processes:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", "\n".join(steps), "sh", str(processes)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    lines = done.stdout.splitlines()
    assert lines[-3:-1] in ([f"status {status}", "absent"] for status in (0, 137)), done
    assert lines[-1] == "created", done


def test_death_of_a_creator_leaves_a_whole_pool_or_none(
    nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    Ledger.create(tmp_path / "ledger")
    region = tmp_path / "kvext-made.pool"
    orders = Orders(
        task="creator",
        row=0,
        region=str(region),
        ledger=str(tmp_path / "ledger"),
        folder=str(tmp_path),
    )
    draw = random.Random(3)  # noqa: S311 - a test's draws
    for _ in range(CREATORS):
        creator = Ward(nursery, orders)
        creator.expect(READY)
        creator.fate(draw.uniform(0.0, 0.01))
        creator.kill()
        toll.count("creation", signal.SIGKILL)
        if region.exists():
            with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
                assert store_one(pool, 0) is StoreOutcome.STORED
                assert pool.fsck(verify_data=True).is_clean
            region.unlink()
        create_region(region, CREATED_BYTES, Pool.initialise)  # whatever was left behind
