"""The table of announced blocks: each loss is told once, within a bounded number of looks."""

from kvext.connector.announced import AnnouncedBlocks


class Tier:
    """Knows which keys are there, and counts how many it was asked for."""

    def __init__(self) -> None:
        self.gone: set[bytes] = set()
        self.most_asked = 0

    def lookup(self, keys: bytes) -> bytes:
        self.most_asked = max(self.most_asked, len(keys) // 32)
        split = [keys[at : at + 32] for at in range(0, len(keys), 32)]
        return bytes(key not in self.gone for key in split)


def key_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


def filled(tier: Tier, count: int, capacity: int = 100) -> AnnouncedBlocks[int]:
    announced: AnnouncedBlocks[int] = AnnouncedBlocks(tier.lookup, capacity, slice_blocks=4)
    for number in range(count):
        assert announced.add(key_of(number), number) is None
    return announced


def test_every_lost_block_is_told_once_within_one_round() -> None:
    tier = Tier()
    announced = filled(tier, 10)
    tier.gone = {key_of(number) for number in (0, 3, 9)}
    lost = [number for _ in range(4) for number in announced.sweep()]
    assert sorted(lost) == [0, 3, 9]
    assert [announced.sweep() for _ in range(4)] == [[], [], [], []]
    assert key_of(3) not in announced
    assert key_of(4) in announced
    assert tier.most_asked == 4


def test_all_blocks_lost_at_once_leave_an_empty_table() -> None:
    tier = Tier()
    announced = filled(tier, 10)
    tier.gone = {key_of(number) for number in range(10)}
    lost = [number for _ in range(5) for number in announced.sweep()]
    assert sorted(lost) == list(range(10))
    assert len(announced) == 0
    assert announced.sweep() == []


def test_full_table_tells_of_the_block_that_makes_room() -> None:
    announced = filled(Tier(), 5, capacity=5)
    displaced = announced.add(key_of(5), 5)
    assert displaced == 0
    assert len(announced) == 5
    assert key_of(0) not in announced
    assert key_of(5) in announced
