"""Little memory, many requests, preemptions and aborts: right answers, and nothing stays pinned."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.engines import Answer, Engine, Engines, answer_of, prompt
from tests.engine.pools import attached

TINY: dict[str, Any] = {
    "kv_cache_memory_bytes": 20 * 131072,
    "max_model_len": 512,
    "max_num_batched_tokens": 128,
}


PREFIXES = [prompt(300 + number, 96) for number in range(4)]
PROMPTS = [PREFIXES[index % 4] + prompt(310 + index, 40 + 9 * (index % 5)) for index in range(40)]


@pytest.fixture(scope="module")
def expected(engines: Engines, model: Path) -> list[Answer]:
    """What stock vLLM answers, with room for everything."""
    stock = engines.get(model, None)
    return [stock.ask(tokens, max_tokens=32) for tokens in PROMPTS]


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
    assert not scheduler.requests
    block_pool = scheduler.kv_cache_manager.block_pool
    assert block_pool.get_num_free_blocks() == block_pool.num_gpu_blocks - 1, "one is vLLM's own"
    with attached(options) as pool:
        stat = pool.stat()
        assert (stat.num_pinned, stat.num_reserved) == (0, 0)


def run_under_pressure(engine: Engine, prompts: list[list[int]]) -> dict[int, Answer]:
    """Six times as many requests as prompts, a seventh of them aborted on the way.

    Returns:
        The answers of those that ended by themselves, by request number.
    """
    from vllm import SamplingParams  # noqa: PLC0415

    sampling = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, logprobs=0)
    core, num_requests = engine.llm.llm_engine, 6 * len(prompts)
    answers: dict[int, Answer] = {}
    added = 0
    while added < num_requests or core.has_unfinished_requests():
        for _ in range(min(5, num_requests - added)):
            tokens = prompts[added % len(prompts)]
            core.add_request(str(added), {"prompt_token_ids": tokens}, sampling)
            added += 1
        doomed = [str(number) for number in range(max(added - 20, 0), added) if number % 7 == 3]
        core.abort_request([name for name in doomed if int(name) not in answers])
        for output in core.step():
            if output.finished and output.outputs[0].finish_reason == "length":
                answers[int(output.request_id)] = answer_of(output)
    return answers


@pytest.mark.timeout(400)
@pytest.mark.parametrize("load", ["sync", "async"])
def test_hundreds_of_requests_in_a_tiny_pool_all_end_with_right_answers(
    engines: Engines,
    model: Path,
    pool_options: dict[str, Any],
    expected: list[Answer],
    load: str,
) -> None:
    options = {**pool_options, "load": load, "pool_name": f"pressure-{load}", "always_load": True}
    engine = engines.get(model, options, **TINY)
    preempted = count_preemptions(engine)
    answers = run_under_pressure(engine, PROMPTS)
    for number, answer in answers.items():
        assert answer.same_as(expected[number % 40], tolerance=1e-3), number
    assert len(answers) >= 200
    assert preempted
    assert sum(answer.kvext["loaded_blocks"] for answer in answers.values()) > 0
    assert sum(answer.kvext["stored_blocks"] for answer in answers.values()) > 0
    engine.ask(prompt(399, 40))  # a last step, in which vLLM frees what was aborted while loading
    assert_at_rest(engine, options)


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
