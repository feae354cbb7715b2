"""Which of a request's blocks are worth offering to the tier at all.

The judge is asked once a request, with the keys of its prompt, and only where one is configured.
"""

from typing import Protocol

from kvext.connector.decisions import Decisions
from kvext.connector.request import RequestState

__all__ = ["USED_ONCE", "StoreGate", "StoreJudge"]

USED_ONCE = "used_once"
"""Why a block was not offered: such blocks were hardly ever asked for again."""


class StoreJudge(Protocol):
    """Knows what kinds of blocks come back."""

    def num_wanted(self, keys: bytes, domain: str) -> int:
        """How many leading blocks of a request to store, those of its answer included.

        Args:
            keys: 32 bytes a block of the prompt.
            domain: Whose request it is.
        """
        ...


class StoreGate:
    """Applies a judge's word to a request, step by step."""

    __slots__ = ("_block_tokens", "_decisions", "_judge")

    def __init__(self, judge: StoreJudge, decisions: Decisions, block_tokens: int) -> None:
        """Take what judging needs.

        Args:
            judge: Decides for each request.
            decisions: Hears of every block that is refused.
            block_tokens: Tokens a block.
        """
        self._judge = judge
        self._decisions = decisions
        self._block_tokens = block_tokens

    def limit(self, state: RequestState, namespace: bytes, stop: int) -> int:
        """Lower `stop`, the first block that is not final yet, to what is wanted.

        Args:
            state: The request.
            namespace: Its namespace's digest.
            stop: First block behind those that could be offered.
        """
        if state.num_wanted is None:
            prompt = range(len(state.tokens) // self._block_tokens)
            keys = state.keys(prompt, namespace, self._block_tokens) if prompt else b""
            state.num_wanted = self._judge.num_wanted(keys, state.subject.domain)
        refused = range(max(state.num_wanted, state.num_judged), stop)
        state.num_judged = max(state.num_judged, stop)
        if refused:
            self._decisions.refuse(state, len(refused), USED_ONCE)
        return min(stop, state.num_wanted)
