"""The pool against a dictionary: in whatever order things happen, bytes are right or missing."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from typing_extensions import override

from kvext.cxl import create_region
from kvext.pool import Lease, Pool
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

NUM_EXTENTS = 6
NUM_KEYS = 14
REGION_BYTES = 299_008  # room for NUM_EXTENTS records

numbers = st.integers(0, NUM_KEYS - 1)


class PoolAgainstDictionary(RuleBasedStateMachine):
    """Two handles of one small pool; the model knows what may be there and what is pinned."""

    leases: Bundle[tuple[Lease, list[int]]] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "kvext-machine.pool"
        create_region(path, REGION_BYTES, Pool.initialise)
        self.pools = [Pool.attach(path, extent_bytes=RECORD_BYTES) for _ in range(2)]
        self.memory = EngineMemory(NUM_KEYS + 1)
        for number in range(NUM_KEYS):
            self.memory.write(number, seed=number)
        self.maybe_stored: set[int] = set()
        self.pins = dict.fromkeys(range(NUM_KEYS), 0)

    @override
    def teardown(self) -> None:
        for pool in self.pools:
            pool.close()
        self.folder.cleanup()

    @rule(which=st.integers(0, 1), batch=st.lists(numbers, min_size=1, max_size=4, unique=True))
    def store(self, which: int, batch: list[int]) -> None:
        keys = b"".join(map(key_of, batch))
        outcomes = self.pools[which].store(keys, SHAPE, NAMESPACE, self.memory.pages, batch)
        for number, outcome in zip(batch, outcomes, strict=True):
            if outcome == StoreOutcome.EXISTS:
                assert number in self.maybe_stored
            elif outcome == StoreOutcome.STORED:
                self.maybe_stored.add(number)
            else:
                assert outcome == StoreOutcome.NO_SPACE
                assert sum(count > 0 for count in self.pins.values()) + len(batch) > NUM_EXTENTS

    @rule(
        target=leases,
        which=st.integers(0, 1),
        batch=st.lists(numbers, min_size=1, max_size=4, unique=True),
    )
    def match(self, which: int, batch: list[int]) -> tuple[Lease, list[int]]:
        lease = self.pools[which].match(b"".join(map(key_of, batch)), SHAPE)
        held = batch[: lease.num_blocks]
        assert set(held) <= self.maybe_stored
        for number in held:
            self.pins[number] += 1
        return lease, held

    @rule(which=st.integers(0, 1), leased=leases)
    def load(self, which: int, leased: tuple[Lease, list[int]]) -> None:
        lease, held = leased
        for position, number in enumerate(held[: lease.num_blocks]):
            ref = lease.refs[16 * position : 16 * position + 16]
            outcome = self.pools[which].load(ref, self.memory.pages, [NUM_KEYS])
            assert outcome[0] == LoadOutcome.LOADED
            assert self.memory.read(NUM_KEYS) == self.memory.read(number)

    @rule(leased=consumes(leases))
    def release(self, leased: tuple[Lease, list[int]]) -> None:
        lease, held = leased
        lease.release()
        for number in held:
            self.pins[number] -= 1

    @rule(which=st.integers(0, 1))
    def clear(self, which: int) -> None:
        self.pools[which].clear()
        self.maybe_stored = {number for number in self.maybe_stored if self.pins[number]}

    @rule(which=st.integers(0, 1), wanted=st.sets(st.integers(0, NUM_EXTENTS - 1)))
    def evict(self, which: int, wanted: set[int]) -> None:
        table = self.pools[which].records()
        keys = [table.keys[32 * row : 32 * row + 32] for row in range(len(table))]
        named = [row for row in range(len(table)) if row in wanted]
        refs = b"".join(table.refs[16 * row : 16 * row + 16] for row in named)
        free = {key_of(number): number for number, count in self.pins.items() if not count}
        gone = {free[keys[row]] for row in named if keys[row] in free}
        assert self.pools[which].evict(refs) == len(gone)
        assert self.pools[which].evict(refs) == 0, "a reference names one record for ever"
        self.maybe_stored -= gone

    @invariant()
    def tables_are_sound(self) -> None:
        assert self.pools[1].fsck(verify_data=True).is_clean

    @invariant()
    def pinned_blocks_are_there_and_space_adds_up(self) -> None:
        found = self.pools[0].lookup(b"".join(map(key_of, range(NUM_KEYS))), SHAPE)
        present = {number for number in range(NUM_KEYS) if found[number]}
        assert present <= self.maybe_stored
        assert {number for number, count in self.pins.items() if count} <= present
        stat = self.pools[1].stat()
        assert stat.num_extents == NUM_EXTENTS
        assert stat.num_committed == len(present)
        assert stat.num_free + stat.num_committed == NUM_EXTENTS
        assert stat.num_pinned == sum(count > 0 for count in self.pins.values())


PoolAgainstDictionary.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
test_pool_against_dictionary = PoolAgainstDictionary.TestCase
