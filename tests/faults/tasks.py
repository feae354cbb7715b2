"""Whole lives of worker processes."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kvext.cxl import create_region, remove_region
from kvext.errors import PoolMissing
from kvext.pool import Pool, Reservation, _core
from kvext.protocol.transfer import LoadOutcome
from tests.faults.acts import (
    drop_own,
    evict_some,
    fill_one,
    give_up_own,
    leave_a_reservation,
    look_around,
    read_some,
    reap,
    store_some,
    try_under_lock,
)
from tests.faults.ledger import Tally
from tests.faults.orders import Orders
from tests.faults.probe import Damage, probe
from tests.faults.records import (
    RECORD_BYTES,
    SHAPE,
    key_of,
    namespace_of,
    neighbour_of,
    record_of,
)
from tests.faults.worker import GO, READY, Dismissed, Worker

__all__ = ["CREATED_BYTES", "work"]

CREATED_BYTES = 4 << 20
"""Size of the pools that creators make."""


def reader(worker: Worker) -> None:
    """Read for ever."""
    for act in _endless(worker, (read_some,), (0.97, 0.03), look_around):
        act(worker)


def writer(worker: Worker) -> None:
    """Write for ever: the worker's own records come and go."""
    for act in _endless(worker, (store_some, fill_one, evict_some), (0.5, 0.2, 0.3)):
        act(worker)


def _endless(
    worker: Worker,
    acts: tuple[Callable[[Worker], None], ...],
    weights: tuple[float, ...],
    *more: Callable[[Worker], None],
) -> Iterator[Callable[[Worker], None]]:
    worker.attach()
    worker.say(READY)
    while True:
        worker.obey(worker.orders.pace_s)
        yield worker.random.choices((*acts, *more), weights)[0]


def everything(worker: Worker) -> None:
    """Pass every step of the core, over and over, from attaching to detaching."""
    said = False
    while True:
        worker.attach()
        if not said:
            worker.say(READY)
            said = True
        for act in (store_some, read_some, fill_one, drop_own, read_some, store_some, evict_some):
            act(worker)
            worker.obey(worker.orders.pace_s)
        try_under_lock(worker, worker.pool.reap)
        try_under_lock(worker, worker.pool.claim_agent_role)
        read_some(worker)
        leave_a_reservation(worker)
        worker.ledger.add(worker.row, Tally.CYCLES)
        worker.pool.close()
        worker.held.clear()


def holder(worker: Worker) -> None:
    """Hold pins and reservations, and say so; obey until told to end."""
    worker.attach()
    give_up_own(worker)
    for _ in range(3):
        store_some(worker)
    for index in worker.ledger.acknowledged(worker.row):
        worker.held.append(worker.pool.match(key_of(worker.row, index), SHAPE))
    reservations = [leave_a_reservation(worker) for _ in range(3)]
    worker.say(READY)
    while True:
        worker.obey(0.01)
        del reservations[:]
        worker.pool.match(key_of(worker.row, 0), SHAPE).release()


def comes_back(worker: Worker) -> None:
    """Hold pins and reservations, stop until fenced, and come back to everything."""
    worker.attach()
    for _ in range(3):
        store_some(worker)
        read_some(worker)
        leave_a_reservation(worker)
    os.kill(os.getpid(), signal.SIGSTOP)
    read_some(worker)
    worker.let_go()
    worker.pool.close()
    everything(worker)


def late_writer(worker: Worker) -> None:
    """Reserve, stop until fenced, then fill and commit as if nothing had been."""
    worker.attach()
    worker.say(READY)
    if worker.orders.arm is not None:  # stops inside
        store_some(worker)
    else:
        made = leave_a_reservation(worker)
        assert made is not None
        os.kill(os.getpid(), signal.SIGSTOP)
        made.fill(b"\xff" * RECORD_BYTES)
        worker.count(made.commit())
    worker.say(READY)
    while True:
        worker.obey(1.0)


def spoiler(worker: Worker) -> None:
    """Spoil a record of its own and load it."""
    worker.attach()
    worker.ledger.forget(worker.row)
    pool, key = worker.pool, key_of(worker.row, 0)
    worker.blocks.write(0, record_of(worker.row, 0))
    pool.store(key, SHAPE, namespace_of(worker.row), worker.blocks.pages, [0])
    lease = pool.match(key, SHAPE)
    pool.record(lease.refs)[RECORD_BYTES // 2] ^= 1
    assert pool.load(lease.refs, worker.blocks.pages, [0])[0] == LoadOutcome.CORRUPT
    worker.say(READY)
    while True:
        worker.obey(1.0)


def reaper(worker: Worker) -> None:
    """Reap for ever."""
    for act in _endless(worker, (reap,), (1.0,)):
        act(worker)


def repairer(worker: Worker) -> None:
    """Repair the pool."""
    worker.attach()
    worker.pool.fsck(repair=True)
    worker.say(READY)
    while True:
        worker.obey(1.0)


def neighbour(worker: Worker) -> None:
    """Reserve the record at the head of a chain of the index."""
    worker.attach()
    made = worker.pool.reserve(neighbour_of(1), SHAPE, RECORD_BYTES, namespace_of(worker.row))
    assert isinstance(made, Reservation)
    worker.say(READY)
    while True:
        worker.obey(1.0)


def agent(worker: Worker) -> None:
    """Have the agent's role, stop until fenced, and learn that it is gone."""
    worker.attach()
    assert worker.pool.claim_agent_role()
    os.kill(os.getpid(), signal.SIGSTOP)
    assert not worker.pool.holds_agent_role
    assert not worker.pool.claim_agent_role()
    worker.say(READY)
    while True:
        worker.obey(1.0)


def creator(worker: Worker) -> None:
    """Make a pool and take it away, for ever."""
    region = Path(worker.orders.region)
    remove_if_there(region)
    worker.say(READY)
    while True:
        create_region(region, CREATED_BYTES, Pool.initialise)
        remove_region(region)


def remove_if_there(region: Path) -> None:
    """Take away what a dead creator has left."""
    with contextlib.suppress(PoolMissing):
        remove_region(region)


def prober(worker: Worker) -> None:
    """Use damaged regions, one a command."""
    folder = Path(worker.orders.folder)
    while True:
        worker.take(GO)
        damage = msgspec.json.decode((folder / "damage.json").read_bytes(), type=Damage)
        finding = probe(damage, Path(worker.orders.region))
        (folder / "finding.json").write_bytes(msgspec.json.encode(finding))
        worker.say(READY)


def observer(worker: Worker) -> None:
    """Clear its own namespace for ever, without being a member."""
    worker.say(READY)
    while True:
        with Pool.attach(Path(worker.orders.region), lock_wait_s=worker.orders.lock_wait_s) as pool:
            try_under_lock(worker, lambda: pool.clear(namespace_of(worker.row)))
        worker.obey(worker.orders.pace_s)


TASKS: dict[str, Callable[[Worker], None]] = {
    task.__name__: task
    for task in (
        reader,
        writer,
        everything,
        holder,
        comes_back,
        late_writer,
        agent,
        neighbour,
        creator,
        spoiler,
        repairer,
        reaper,
        prober,
        observer,
    )
}


def work(orders: Orders) -> None:
    """Carry out the orders; the whole life of a worker process."""
    worker = Worker(orders)
    arm = orders.arm
    if arm is not None:
        _core.arm_step(arm.label, arm.countdown, arm.signal)
    try:
        TASKS[orders.task](worker)
    except Dismissed:
        worker.end()
