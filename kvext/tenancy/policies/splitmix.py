"""SplitMix64: random numbers that are the same on every machine and in both forms of a policy.

Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014).
"""

__all__ = ["SplitMix64", "mixed"]

_WORDS = 1 << 64
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def mixed(word: int) -> int:
    """A 64-bit word whose every bit depends on all bits of `word`."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % _WORDS
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % _WORDS
    return word ^ (word >> 31)


class SplitMix64:
    """A generator with 64 bits of state."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        """Start at `seed`, taken modulo 2**64."""
        self._state = seed % _WORDS

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1; modulo prefers some by `bound` in 2**64."""
        self._state = (self._state + _GOLDEN_GAMMA) % _WORDS
        return mixed(self._state) % bound
