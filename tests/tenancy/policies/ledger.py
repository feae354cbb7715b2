"""A dictionary that believes what a policy says of its victims, and checks the rest against it."""

from collections.abc import Iterable, Sequence

from kvext.tenancy.policy import Access, Admission, EvictionPolicy


class Ledger:
    """A policy, and what must be in its cache if each of its answers is true."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self.policy = policy
        self.sizes: dict[int, int] = {}
        self._seen: set[int] = set()

    def access(self, access: Access) -> Admission:
        expected_hits = 0
        while expected_hits < len(access.keys) and access.keys[expected_hits] in self.sizes:
            expected_hits += 1
        admission = self.policy.access(access)
        assert admission.num_hits == expected_hits
        for key in access.keys:
            self.sizes.setdefault(key, access.block_size)
        self._seen.update(access.keys)
        self._strike_out(admission.victims)
        return admission

    def evict(self, size: int) -> Sequence[int]:
        before = sum(self.sizes.values())
        victims = self.policy.evict(size)
        victim_sizes = self._strike_out(victims)
        assert sum(victim_sizes) >= min(size, before)
        assert sum(victim_sizes[:-1]) < max(size, 1), "it evicts more than it was asked for"
        return victims

    def resize(self, capacity: int) -> Sequence[int]:
        victims = self.policy.resize(capacity)
        assert self.policy.capacity == capacity
        self._strike_out(victims)
        return victims

    def remove(self, keys: Iterable[int]) -> None:
        gone = list(keys)
        self.policy.remove(gone)
        for key in gone:
            self.sizes.pop(key, None)
        self.check()

    def check(self) -> None:
        assert self.policy.size == sum(self.sizes.values())
        assert self.policy.size <= self.policy.capacity
        assert {key for key in self._seen if key in self.policy} == set(self.sizes)

    def _strike_out(self, victims: Sequence[int]) -> list[int]:
        """Raises KeyError if a victim was not there, or was named twice."""
        victim_sizes = [self.sizes.pop(key) for key in victims]
        self.check()
        return victim_sizes
