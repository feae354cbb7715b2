"""A planner that checks itself against the simplest one: look at everybody in every step."""

from collections.abc import Mapping

from typing_extensions import override

from kvext.connector.plan import SaveJob, saveable_blocks
from kvext.connector.planner import Planner


class AttentivePlanner(Planner):
    """Fails if a step leaves out a block that it could have offered."""

    @override
    def plan_saves(self, num_scheduled: Mapping[str, int]) -> tuple[SaveJob, ...]:
        jobs = super().plan_saves(num_scheduled)
        block_tokens = self._rules.shape.block_tokens
        for request_id, count in num_scheduled.items():
            state = self._requests[request_id]
            assert state.doubt_from is None
            if state.uncached or self._lookup.namespace(state) is None:
                continue
            computed = self._engine.num_computed(request_id) + count
            stop = saveable_blocks(len(state.tokens), computed, block_tokens)
            if state.save_limit is not None:
                stop = min(stop, state.save_limit)
            assert state.next_save >= stop
        return jobs
