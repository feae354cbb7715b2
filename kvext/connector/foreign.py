"""KV in the engine's memory that kvext cannot vouch for, and so never offers to a tier.

Other connectors of the same engine bring in KV under names of their own, and weights that change
in a running engine leave KV of the old ones behind. Such blocks, and whatever was computed on
them, spread through the engine's own prefix cache. Each block is foreign until it is given out
to be computed anew.
"""

from collections.abc import Callable, Mapping, Sequence

from kvext.connector.request import RequestState
from kvext.connector.rules import EngineBlocks, PlanRules

__all__ = ["ForeignBlocks"]


class ForeignBlocks:
    """Finds requests that stand on foreign KV and limits what they may save."""

    __slots__ = ("_admitted", "_block_ids", "_block_tokens", "_engine", "_groups", "_null_block")

    def __init__(self, engine: EngineBlocks, rules: PlanRules) -> None:
        """Trust everything that the engine holds.

        Args:
            engine: The engine's block tables.
            rules: What does not change.
        """
        self._engine = engine
        self._block_tokens = rules.shape.block_tokens
        self._groups = range(max(len(rules.groups), 1))
        self._null_block = rules.null_block
        self._block_ids: set[int] = set()
        self._admitted: dict[str, RequestState] = {}

    def admit(
        self, request_id: str, state: RequestState, block_ids: Callable[[], Sequence[int]]
    ) -> None:
        """A request got its blocks; those beyond the engine's own hit will be written anew."""
        self._admitted[request_id] = state
        if self._block_ids:
            num_local = self._num_local(state)
            self._block_ids.difference_update(block_ids()[num_local:])
            for group in self._groups[1:]:
                self._block_ids.difference_update(
                    self._engine.block_ids(request_id, group)[num_local:]
                )

    def part(self, request_id: str) -> None:
        """A request has ended."""
        self._admitted.pop(request_id, None)

    def settle(self) -> None:
        """At the end of a pass, see what the requests admitted in it were given.

        Computed tokens that neither the engine's own hit nor our load explains come from another
        connector.
        """
        for request_id, state in self._admitted.items():
            if self._engine.num_computed(request_id) > state.expected_tokens:
                self._limit(request_id, state, state.expected_tokens // self._block_tokens)
        if self._block_ids:
            for request_id, state in self._admitted.items():
                for group in self._groups:
                    local = self._engine.block_ids(request_id, group)[: self._num_local(state)]
                    held = (index for index, block in enumerate(local) if block in self._block_ids)
                    first = next(held, None)
                    if first is not None:
                        self._limit(request_id, state, first)
        self._admitted.clear()

    def follow(self, request_id: str, state: RequestState) -> None:
        """A limited request runs: what it holds beyond its limit is foreign, too."""
        if state.save_limit is not None:
            for group in self._groups:
                self._block_ids.update(
                    self._engine.block_ids(request_id, group)[state.save_limit :]
                )
            self._block_ids.discard(self._null_block)

    def distrust_all(self, requests: Mapping[str, RequestState]) -> None:
        """Whatever the engine holds now is foreign, the live requests' blocks to come included."""
        self._block_ids = set(range(self._engine.num_blocks)) - {self._null_block}
        for state in requests.values():
            state.save_limit = 0

    def _limit(self, request_id: str, state: RequestState, first_block: int) -> None:
        limit = state.save_limit
        state.save_limit = first_block if limit is None else min(limit, first_block)
        self.follow(request_id, state)

    def _num_local(self, state: RequestState) -> int:
        return state.local_tokens // self._block_tokens
