"""Blocks that do not verify: nobody computes on them, however they are shared and steps overlap."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.engines import Engine, Engines, answer_of, prompt
from tests.engine.pools import SHAPE, attached, keys_of


def wreck(options: dict[str, Any], tokens: list[int], blocks: list[int]) -> None:
    """Make stored blocks wrong by far; one flipped bit may be too little to change an answer."""
    with attached(options) as pool:
        _, keys = keys_of(pool, tokens)
        lease = pool.match(keys, SHAPE)
        for block in blocks:
            values = np.frombuffer(
                pool.record(lease.refs[16 * block : 16 * block + 16]), np.float32
            )
            values *= -3
        lease.release()


def scramble(engine: Engine) -> None:
    """Fill the engine's memory, so that a recycled block does not hold the right bytes by luck."""
    engine.ask_all([prompt(9000 + index, 1000) for index in range(5)])
    engine.forget_local()


@pytest.mark.parametrize("case", ["loader_aborted", "loader_in_pieces"])
def test_who_shares_a_failed_block_locally_gets_the_rightanswer_of(
    engines: Engines, model: Path, pool_options: dict[str, Any], case: str
) -> None:
    from vllm import SamplingParams  # noqa: PLC0415

    in_pieces = case == "loader_in_pieces"
    extra: dict[str, Any] = {"long_prefill_token_threshold": 32} if in_pieces else {}
    shared = prompt(210, 160)
    first, second = shared + prompt(211, 40), shared + prompt(212, 40)
    expected = engines.get(model, None, **extra).ask(second)
    options = {**pool_options, "pool_name": f"sharer-{case}"}
    engine = engines.get(model, options, **extra)
    engine.ask(shared + prompt(213, 5))
    scramble(engine)
    wreck(options, shared, [0, 1, 2, 3])
    core = engine.llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=0)
    for name, tokens in (("loader", first), ("sharer", second)):
        core.add_request(name, {"prompt_token_ids": tokens}, sampling)
    answers = {output.request_id: answer_of(output) for output in core.step() if output.finished}
    if case == "loader_aborted":
        core.abort_request(["loader"])
    while core.has_unfinished_requests():
        answers |= {
            output.request_id: answer_of(output) for output in core.step() if output.finished
        }
    assert answers["sharer"].kvext["local_tokens"] == 160, "the control: they did share"
    assert answers["sharer"].same_as(expected)
    assert engine.ask(second).same_as(expected), "vLLM's own cache must hold no garbage either"


@pytest.mark.usefixtures("async_scheduling")
@pytest.mark.parametrize("load", ["sync", "async"])
def test_corrupted_block_under_async_scheduling_is_recomputed(
    engines: Engines, model: Path, pool_options: dict[str, Any], load: str
) -> None:
    options = {**pool_options, "load": load, "pool_name": f"lagging-{load}"}
    engine = engines.get(model, options, fresh=True)
    assert engine.llm.llm_engine.engine_core.engine_core.batch_queue is not None
    tokens = prompt(190, 300)
    cold = engine.ask(tokens, max_tokens=20)
    scramble(engine)
    wreck(options, tokens, [0])
    hurt = engine.ask(tokens, max_tokens=20)
    assert hurt.kvext["failed_loads"] == {"corrupt": 1}
    assert hurt.same_as(cold)
