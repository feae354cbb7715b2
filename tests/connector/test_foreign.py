"""KV that kvext did not compute or load: neither it nor what stands on it is ever offered."""

from concurrent.futures import ThreadPoolExecutor

from kvext.connector.edge import Edge
from kvext.connector.mover import AbsentMover
from kvext.connector.plan import LoadJob, StepPlan
from kvext.connector.transfers import Transfers
from kvext.testing.tier import FakeTier
from tests.connector.toy_engine import PROMPT, ToyEngine, warm_tier
from tests.connector.toy_parts import BLOCK_TOKENS


def test_tokens_that_nobody_of_ours_explains_limit_what_is_saved() -> None:
    engine = ToyEngine(FakeTier())
    request = engine.add("a", PROMPT)
    planner, blocks = engine.planner, list(range(6))
    request.blocks = blocks
    planner.match("a", BLOCK_TOKENS, len(PROMPT))
    planner.allocate("a", lambda: blocks, 0)
    request.num_computed = 3 * BLOCK_TOKENS
    planner.plan_saves({})
    follower = engine.add("b", PROMPT)
    follower.blocks = [*blocks[:5], 6]
    planner.match("b", 5 * BLOCK_TOKENS, len(PROMPT))
    planner.allocate("b", lambda: follower.blocks, 0)
    follower.num_computed = 5 * BLOCK_TOKENS
    planner.plan_saves({})
    request.is_running = follower.is_running = True
    plan = engine.step()
    assert {job.request_id: job.block_ids for job in plan.saves} == {"a": (0,), "b": (0,)}


def test_foreign_block_that_is_given_out_anew_is_trusted_again() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier, num_blocks=8)
    engine.planner.distrust_memory()
    engine.add("a", PROMPT)
    engine.step()
    engine.step()
    assert tier.num_records == 5


def test_change_of_weights_forgets_what_was_computed_and_uncaches_the_living() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier, chunk_blocks=2)
    engine.add("through", PROMPT)
    engine.step()
    assert tier.num_records == 2
    engine.planner.change_weights("the weights were changed")
    for _ in range(3):
        engine.step()
    assert tier.num_records == 2
    assert engine.forgotten == set(range(engine.num_blocks))
    engine.end("through")
    assert engine.responses["through"]["reason"] == "the weights were changed"


def test_load_that_began_before_a_change_of_weights_fails() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, async_loads=True)
    request = engine.add("a", PROMPT)
    engine.step()
    assert request.is_loading
    engine.planner.change_weights("the weights were changed")
    engine.run_loads()
    engine.step()
    assert request.num_computed < 5 * BLOCK_TOKENS
    engine.step()
    engine.end("a")
    assert engine.responses["a"]["failed_loads"] == {"weights_changed": 5}
    assert tier.num_pins == 0


def test_worker_without_a_tier_fails_what_it_was_promised() -> None:
    with ThreadPoolExecutor(1) as threads:
        transfers = Transfers(AbsentMover(), Edge(), lambda _: True, lambda: 0.0, threads)
        job = LoadJob(1, "a", b"r" * 32, (4, 5), is_async=False)
        transfers.start(StepPlan((job,)))
    assert transfers.take_failed_blocks() == {4, 5}
