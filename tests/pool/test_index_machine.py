"""The index against a dictionary, with keys that all want the same few slots.

No eviction here: the pool is larger than all keys, so what was stored must be found, exactly.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)
from typing_extensions import override

from kvext.cxl import create_region
from kvext.pool import Pool, Reservation
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome

NUM_KEYS = 40
GROUPS = [bytes([group]) * 32 for group in range(3)]
SHAPES = [RecordShape(16), RecordShape(32)]
RECORD = b"r" * 64

entries = st.tuples(st.integers(0, NUM_KEYS - 1), st.sampled_from(SHAPES))
Entry = tuple[int, RecordShape]


def crowded_key(number: int) -> bytes:
    """Five neighbouring home slots for all keys, at the end of the table, so that probes wrap."""
    home = (1 << 20) - 3 + number % 5
    return home.to_bytes(8, "little") + number.to_bytes(24, "little")


class IndexAgainstDictionary(RuleBasedStateMachine):
    """Reserve, commit, abort, and drop by group, which leaves tombstones everywhere."""

    reserved: Bundle[tuple[Entry, Reservation]] = Bundle("reserved")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "kvext-index.pool"
        create_region(path, 1 << 20, Pool.initialise)
        self.pool = Pool.attach(path, extent_bytes=len(RECORD))
        self.stored: set[Entry] = set()
        self.pending: set[Entry] = set()

    @override
    def teardown(self) -> None:
        self.pool.close()
        self.folder.cleanup()

    @rule(target=reserved, entry=entries)
    def reserve(self, entry: Entry) -> MultipleResults[tuple[Entry, Reservation]]:
        number, shape = entry
        made = self.pool.reserve(crowded_key(number), shape, len(RECORD), GROUPS[number % 3])
        if entry in self.stored | self.pending:
            assert made is StoreOutcome.EXISTS
            return multiple()
        assert isinstance(made, Reservation)
        self.pending.add(entry)
        return multiple((entry, made))

    @rule(pair=consumes(reserved))
    def commit(self, pair: tuple[Entry, Reservation]) -> None:
        entry, reservation = pair
        reservation.fill(RECORD)
        assert reservation.commit() is StoreOutcome.STORED
        self.pending.remove(entry)
        self.stored.add(entry)

    @rule(pair=consumes(reserved))
    def abort(self, pair: tuple[Entry, Reservation]) -> None:
        assert pair[1].abort()
        self.pending.remove(pair[0])

    @rule(group=st.integers(0, 2))
    def drop_group(self, group: int) -> None:
        doomed = {entry for entry in self.stored if entry[0] % 3 == group}
        assert self.pool.clear(GROUPS[group]).num_dropped == len(doomed)
        self.stored -= doomed

    @invariant()
    def finds_exactly_what_is_stored(self) -> None:
        keys = b"".join(map(crowded_key, range(NUM_KEYS)))
        for shape in SHAPES:
            found = self.pool.lookup(keys, shape)
            assert {n for n in range(NUM_KEYS) if found[n]} == {
                number for number, of_shape in self.stored if of_shape == shape
            }


IndexAgainstDictionary.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None
)
test_index_against_dictionary = IndexAgainstDictionary.TestCase
