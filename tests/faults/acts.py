"""Single things that workers do with the pool, checking every byte that they read.

A worker that finds a fault ends with an error, which the driver sees at its next pause.
"""

from collections.abc import Callable

from kvext.errors import PoolLockTimeout
from kvext.pool import Reservation
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.faults.ledger import Tally
from tests.faults.records import (
    KEYS_A_ROW,
    RECORD_BYTES,
    SHAPE,
    key_of,
    keys_of,
    model_of,
    namespace_of,
    record_of,
)
from tests.faults.worker import ANSWER_S, MOST_HELD, Worker

__all__ = [
    "drop_own",
    "evict_some",
    "fill_one",
    "give_up_own",
    "leave_a_reservation",
    "load",
    "look_around",
    "read_some",
    "reap",
    "store_some",
    "try_under_lock",
]


def read_some(worker: Worker) -> None:
    """Load a few records of anybody's, pinned, and compare all bytes."""
    row, indexes = worker.random.randrange(worker.orders.num_rows), worker.some_indexes()
    with worker.timed("load"):
        lease = worker.pool.match(keys_of(row, indexes), SHAPE)
        found = indexes[: lease.num_blocks]
        outcomes = load(worker, lease.refs, list(range(len(found))))
    for block, (index, outcome) in enumerate(zip(found, outcomes, strict=True)):
        if outcome == LoadOutcome.STALE:  # only a process that was fenced meanwhile sees that
            worker.ledger.add(worker.row, Tally.STALE)
            continue
        if outcome == LoadOutcome.CORRUPT and worker.orders.is_damaged:
            continue
        assert outcome == LoadOutcome.LOADED, (LoadOutcome(outcome), row, index)
        assert worker.blocks.read(block) == record_of(row, index), ("wrong bytes", row, index)
        worker.ledger.add(worker.row, Tally.LOADS)
    worker.held.append(lease)
    if len(worker.held) > MOST_HELD:
        worker.held.pop(0).release()


def load(worker: Worker, refs: bytes, blocks: list[int]) -> bytes:
    """One outcome a block, in one of the ways there are."""
    match worker.random.randrange(4):
        case 0:
            under_way = worker.pool.begin_load(refs, worker.blocks.pages, blocks)
            assert under_way.finish(ANSWER_S)
            return under_way.outcomes
        case 1:
            return worker.pool.load(refs, worker.blocks.pages, blocks, verify=True)
        case _:
            verify = worker.orders.is_damaged
            return worker.pool.load(refs, worker.blocks.pages, blocks, verify=verify)


def store_some(worker: Worker) -> None:
    """Store a few of the worker's own records."""
    indexes = [i for i in worker.some_indexes() if not worker.ledger.is_acknowledged(worker.row, i)]
    for block, index in enumerate(indexes):
        worker.blocks.write(block, record_of(worker.row, index))
    with worker.timed("store"):
        outcomes = worker.pool.store(
            keys_of(worker.row, indexes),
            SHAPE,
            namespace_of(worker.row),
            worker.blocks.pages,
            list(range(len(indexes))),
        )
    for index, outcome in zip(indexes, outcomes, strict=True):
        worker.count(StoreOutcome(outcome))
        if outcome == StoreOutcome.STORED:
            worker.ledger.mark(worker.row, index, acknowledged=True)


def fill_one(worker: Worker) -> None:
    """Reserve, then commit or abort, as a writer does that fills records itself."""
    index = worker.random.randrange(KEYS_A_ROW)
    with worker.timed("fill"):
        made = worker.pool.reserve(
            key_of(worker.row, index), SHAPE, RECORD_BYTES, namespace_of(worker.row)
        )
        if not isinstance(made, Reservation):
            worker.count(made)
            return
        if worker.random.random() < 0.3:
            try_under_lock(worker, made.abort)
            return
        made.fill(record_of(worker.row, index))
        outcome = made.commit()
    worker.count(outcome)
    if outcome is StoreOutcome.STORED:
        worker.ledger.mark(worker.row, index, acknowledged=True)


def evict_some(worker: Worker) -> None:
    """Give a few of the worker's own records up."""
    indexes = worker.some_indexes()
    lease = worker.pool.match(keys_of(worker.row, indexes), SHAPE)
    refs = lease.refs
    lease.release()
    for index in indexes:
        worker.ledger.mark(worker.row, index, acknowledged=False)
    with worker.timed("evict"):
        try_under_lock(worker, lambda: worker.pool.evict(refs))


def try_under_lock(worker: Worker, action: Callable[[], object]) -> bool:
    """Do what may fail because somebody else has the allocation lock and keeps it."""
    try:
        action()
    except PoolLockTimeout:
        worker.ledger.add(worker.row, Tally.LOCK_TIMEOUTS)
        return False
    return True


def look_around(worker: Worker) -> None:
    """What people and agents ask."""
    with worker.timed("other"):
        worker.pool.stat()
        worker.pool.lookup(keys_of(worker.row, worker.some_indexes()), SHAPE)
        worker.pool.records()
        assert worker.orders.is_damaged or worker.pool.num_free <= worker.pool.num_extents


def drop_own(worker: Worker) -> None:
    """Fence, clear or quarantine the worker's own namespace; nothing of it is found then."""
    pool, own, model = worker.pool, namespace_of(worker.row), model_of(worker.row)
    worker.ledger.forget(worker.row)
    is_named = try_under_lock(worker, lambda: pool.name_namespace(own, "own", model))
    match worker.random.randrange(3):
        case 0:
            is_dropped = try_under_lock(worker, lambda: pool.fence(model)) and is_named
        case 1:
            try_under_lock(worker, lambda: pool.clear(own))
            is_dropped = False  # what readers have pinned stays
        case _:
            is_dropped = try_under_lock(worker, lambda: pool.quarantine_namespace(own))
    found = pool.lookup(keys_of(worker.row, list(range(KEYS_A_ROW))), SHAPE)
    assert not is_dropped or not any(found), "dropped records are still found"
    # Whatever an earlier worker of this row has left behind:
    try_under_lock(worker, lambda: pool.release_namespace(own))


def leave_a_reservation(worker: Worker) -> Reservation | None:
    """Reserve what nobody will commit, unless every key of the worker's own is there."""
    for index in worker.random.sample(range(KEYS_A_ROW), KEYS_A_ROW):
        made = worker.pool.reserve(
            key_of(worker.row, index), SHAPE, RECORD_BYTES, namespace_of(worker.row)
        )
        if isinstance(made, Reservation):
            return made
        if made is not StoreOutcome.EXISTS:
            break
    return None


def give_up_own(worker: Worker) -> None:
    """Make room for reservations among the worker's own keys."""
    worker.ledger.forget(worker.row)
    try_under_lock(worker, lambda: worker.pool.clear(namespace_of(worker.row)))


def reap(worker: Worker) -> None:
    """Reap once."""
    try_under_lock(worker, worker.pool.reap)
