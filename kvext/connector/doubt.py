"""After a failed load: which blocks may hold garbage, and who may have computed on them.

The engine recomputes from the first failed block on, but only for one of the requests that
hold it. Others, admitted in the same step through the engine's own prefix cache, may compute
on garbage meanwhile. So the engine is made to forget the doubtful blocks, and whoever holds
one must show, when it is scheduled next, that it computes it again; else it saves nothing from
there on.
"""

from collections.abc import Mapping

from kvext.connector.ledger import InFlightLoad
from kvext.connector.request import RequestState
from kvext.connector.rules import EngineBlocks

__all__ = ["contain_failed_load", "settle_doubt"]


def contain_failed_load(
    requests: Mapping[str, RequestState],
    engine: EngineBlocks,
    loader_id: str,
    load: InFlightLoad,
    num_usable: int,
    block_tokens: int,
) -> None:
    """Keep what a failed load left, and what was computed on it, out of every cache.

    Args:
        requests: The live requests; who holds a doubtful block is marked.
        engine: The engine's block tables and prefix cache.
        loader_id: Whose load failed; it may have ended since.
        load: The load as it was planned.
        num_usable: Its leading blocks that are good.
        block_tokens: Tokens a block.
    """
    start = load.first_block + num_usable
    doubtful = set(load.block_table[start:])
    if loader_id in requests:
        doubtful.update(engine.block_ids(loader_id)[start:])
    tainted = set(doubtful)
    for request_id, state in requests.items():
        block_ids = engine.block_ids(request_id)
        index = next((i for i, block_id in enumerate(block_ids) if block_id in doubtful), None)
        if index is None:
            continue
        state.doubt_from = index if state.doubt_from is None else min(index, state.doubt_from)
        tainted.update(block_ids[index:])
        # The engine sends only one holder back. The one it chose may be aborted, or recompute
        # in pieces, and the others would go on upon garbage.
        engine.rewind(request_id, index * block_tokens)
    engine.forget(tainted)


def settle_doubt(state: RequestState, num_computed: int, block_tokens: int) -> None:
    """See whether a marked request computes its first doubtful block again.

    Args:
        state: The request's state.
        num_computed: Its computed tokens before its next step.
        block_tokens: Tokens a block.
    """
    if state.doubt_from is None:
        return
    if num_computed > state.doubt_from * block_tokens:
        limit = state.save_limit
        state.save_limit = state.doubt_from if limit is None else min(limit, state.doubt_from)
    state.doubt_from = None
