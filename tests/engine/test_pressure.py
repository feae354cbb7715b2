"""Little memory, many requests, preemptions and aborts: right answers, and nothing stays pinned."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached

TINY: dict[str, Any] = {
    "kv_cache_memory_bytes": 20 * 131072,
    "max_model_len": 512,
    "max_num_batched_tokens": 128,
}


def scheduler_of(engine: Engine) -> Any:
    return engine.llm.llm_engine.engine_core.engine_core.scheduler


def count_preemptions(engine: Engine) -> list[str]:
    """Requests that vLLM preempts from now on."""
    scheduler, preempted = scheduler_of(engine), []
    original = scheduler._preempt_request  # noqa: SLF001 - vLLM counts them only in its metrics

    def preempt(request: Any, *args: Any, **kwargs: Any) -> Any:
        preempted.append(request.request_id)
        return original(request, *args, **kwargs)

    scheduler._preempt_request = preempt  # noqa: SLF001
    return preempted


def assert_at_rest(engine: Engine, options: dict[str, Any]) -> None:
    scheduler = scheduler_of(engine)
    assert not scheduler.running
    assert not scheduler.waiting
    with attached(options) as pool:
        stat = pool.stat()
        assert (stat.num_pinned, stat.num_reserved) == (0, 0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("load", ["sync", "async"])
def test_preempted_requests_come_back_to_right_answers(
    engines: Engines, model: Path, pool_options: dict[str, Any], load: str
) -> None:
    options = {**pool_options, "load": load, "pool_name": f"pressure-{load}"}
    shared = prompt(300, 96)
    prompts = [shared + prompt(301 + index, 60 + 7 * (index % 5)) for index in range(24)]
    roomy = engines.get(model, None)
    expected = [roomy.ask(tokens, max_tokens=60).tokens for tokens in prompts]
    engine = engines.get(model, options, **TINY)
    preempted = count_preemptions(engine)
    pool_tokens = 0
    for _ in range(2):
        answers = engine.ask_all(prompts, max_tokens=60)
        engine.forget_local()
        assert [answer.tokens for answer in answers] == expected
        assert_at_rest(engine, options)
        pool_tokens = sum(answer.kvext["pool_tokens"] for answer in answers)
    assert pool_tokens > 0
    assert preempted


def test_aborted_requests_leave_no_pins(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    from vllm import SamplingParams  # noqa: PLC0415

    options = {**pool_options, "load": "async", "pool_name": "aborts"}
    engine = engines.get(model, options)
    prompts = [prompt(400 + index, 300) for index in range(6)]
    cold = [engine.ask(tokens) for tokens in prompts]
    engine.forget_local()
    core = engine.llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    for steps in range(4):
        for index, tokens in enumerate(prompts):
            core.add_request(f"{steps}-{index}", {"prompt_token_ids": tokens}, sampling)
        for _ in range(steps):
            core.step()
        core.abort_request([f"{steps}-{index}" for index in range(6)])
        # vLLM frees the blocks when it hears, in a later step, that their load has ended.
        engine.ask(prompt(490 + steps))
        engine.forget_local()
    warm = [engine.ask(tokens) for tokens in prompts]
    for answer, reference in zip(warm, cold, strict=True):
        assert answer.same_as(reference)
    assert_at_rest(engine, options)
