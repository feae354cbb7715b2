"""Served engines over HTTP: what a user of `kvext serve` sees. One story, told once."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvext.testing.chat import Answer, StreamedAnswer
from kvext.testing.engine_metrics import EngineMetrics
from kvext.testing.long_prompts import Messages, log_question
from kvext.testing.serving import EngineNotServing, ServedEngine

# The first test waits for all engine starts.
pytestmark = pytest.mark.timeout(420)

BLOCK_TOKENS = 32
KV_BYTES_A_TOKEN = 4096  # of the tiny model in float32
ANSWER_TOKENS = 12
ENGINE_OPTIONS = (
    "--dtype=float32",
    f"--block-size={BLOCK_TOKENS}",
    "--max-model-len=4096",
    "--kv-cache-memory-bytes=64M",
    "--enforce-eager",
)
FIRST_LOG = log_question("Heron Rock", days=8)
SECOND_LOG = log_question("Sable Head", days=8)


@dataclass(frozen=True, slots=True)
class Turn:
    answer: StreamedAnswer
    counted: EngineMetrics

    @property
    def whole_blocks_tokens(self) -> int:
        """The most that any cache can have: at least one token is computed."""
        return (self.answer.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Story:
    """Two engines live and share a pool; one is killed, and a third takes its place.

    Beside the third, one with a misspelt option refuses to start.
    """

    cold: Turn
    beside: Turn
    both_lived: bool
    stored: Answer
    found: Answer
    after_kill: Turn
    refusal: str


@pytest.fixture(scope="module")
def story(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Engines get ready in pairs, since a start takes 20 s and more."""
    folder = tmp_path_factory.mktemp("served")
    command = ["kvext", "serve", str(model), "--pool", "64MiB", "--pool-folder", str(folder)]
    command += ENGINE_OPTIONS
    first, second, third = (
        ServedEngine(command, log=folder / f"{core}-{name}.log", cores=core)
        for core, name in (("0", "first"), ("1", "second"), ("0", "third"))
    )
    misspelt = ServedEngine(
        ["vllm", "serve", str(model), *ENGINE_OPTIONS, *misspelt_option(folder)],
        log=folder / "misspelt.log",
        cores="1",
    )
    with ExitStack() as stack:
        start_together(stack, first, second)
        first.wait_until_ready()
        second.wait_until_ready()
        cold = turn(first, FIRST_LOG)
        beside = turn(second, FIRST_LOG)
        both_lived = bool(first.pids) and bool(second.pids)
        stored = first.ask(SECOND_LOG, ANSWER_TOKENS, ignore_eos=True)
        found = second.ask(SECOND_LOG, ANSWER_TOKENS, ignore_eos=True)
        first.kill()
        start_together(stack, third, misspelt)
        third.wait_until_ready()
        after_kill = turn(third, FIRST_LOG)
        with pytest.raises(EngineNotServing):
            misspelt.wait_until_ready()
    refusal = (folder / "misspelt.log").read_text(encoding="utf-8")
    return Story(cold, beside, both_lived, stored, found, after_kill, refusal)


def start_together(stack: ExitStack, *engines: ServedEngine) -> None:
    for engine in engines:
        stack.callback(engine.stop)
        engine.start()


def misspelt_option(folder: Path) -> list[str]:
    transfer = {
        "kv_connector": "KvextConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"pool_folder": str(folder), "pool_sise": "64MiB"},
    }
    return ["--kv-transfer-config", json.dumps(transfer)]


def turn(engine: ServedEngine, question: Messages) -> Turn:
    before = engine.metrics()
    answer = engine.chat(question, ANSWER_TOKENS, ignore_eos=True)
    return Turn(answer, engine.metrics_with(before, answer.prompt_tokens))


def test_first_engine_computes_and_stores_everything(story: Story) -> None:
    counted = story.cold.counted
    assert (counted.external_hits, counted.loaded_bytes) == (0, 0)
    num_blocks = story.cold.answer.prompt_tokens // BLOCK_TOKENS
    assert counted.stored_bytes >= num_blocks * BLOCK_TOKENS * KV_BYTES_A_TOKEN


def test_second_of_two_live_engines_hits_what_the_first_stored(story: Story) -> None:
    assert story.both_lived
    assert story.beside.counted.external_hits == story.beside.whole_blocks_tokens
    assert story.beside.answer.token_ids == story.cold.answer.token_ids


def test_engine_after_a_sigkill_hits_and_gives_the_same_tokens(story: Story) -> None:
    assert story.after_kill.counted.external_hits == story.after_kill.whole_blocks_tokens
    assert story.after_kill.answer.token_ids == story.cold.answer.token_ids
    assert len(story.cold.answer.token_ids) == ANSWER_TOKENS


def test_worker_copies_the_bytes_of_every_token_that_the_scheduler_counts(story: Story) -> None:
    for warm in (story.beside, story.after_kill):
        assert warm.counted.loaded_bytes == warm.counted.external_hits * KV_BYTES_A_TOKEN


def test_response_says_what_its_request_took_from_the_pool(story: Story) -> None:
    tokens = (story.found.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert story.stored.kvext["pool_tokens"] == 0
    assert story.found.kvext["pool_tokens"] == tokens
    assert story.found.kvext["loaded_bytes"] == tokens * KV_BYTES_A_TOKEN
    assert story.found.token_ids == story.stored.token_ids


def test_unknown_option_ends_the_start_and_names_the_nearest_known_one(story: Story) -> None:
    assert "unknown option 'pool_sise'; did you mean 'pool_size'?" in story.refusal
