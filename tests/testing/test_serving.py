import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.testing.chat import EngineLost, RequestRefused
from kvext.testing.engine_metrics import EngineMetrics
from kvext.testing.serving import EngineNotServing, ServedEngine

STAND_IN = [sys.executable, str(Path(__file__).with_name("stand_in_engine.py"))]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Python puts it
QUESTION = [{"role": "user", "content": "Say two words."}]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


@pytest.fixture
def engine(log: Path) -> Iterator[ServedEngine]:
    with ServedEngine(STAND_IN, log=log) as engine:
        yield engine


def test_streamed_answer_has_text_tokens_and_the_time_to_the_first(engine: ServedEngine) -> None:
    answer = engine.chat(QUESTION, max_tokens=3)
    assert (answer.text, answer.token_ids, answer.prompt_tokens) == ("two words", (7, 8, 9), 12)
    assert answer.ttft_s > 0


def test_whole_answer_has_the_counts_of_kvext(engine: ServedEngine) -> None:
    answer = engine.ask(QUESTION, max_tokens=3)
    assert (answer.text, answer.token_ids, answer.kvext) == (
        "two words",
        (7, 8, 9),
        {"pool_tokens": 96},
    )


def test_refusal_quotes_the_server(engine: ServedEngine) -> None:
    with pytest.raises(RequestRefused, match=r"status 400: max_tokens must be at least 1"):
        engine.chat(QUESTION, max_tokens=0)


def test_stream_without_an_end_is_no_answer(log: Path) -> None:
    with ServedEngine([*STAND_IN, "--cut-off"], log=log) as engine, pytest.raises(EngineLost):
        engine.chat(QUESTION, max_tokens=3)


def test_metrics_are_summed_over_engine_cores(engine: ServedEngine) -> None:
    metrics = engine.metrics()
    assert (metrics.prompt_tokens, metrics.external_hits, metrics.store_s) == (12, 128, 0.25)
    assert metrics.loaded_bytes == 0


def test_metrics_show_what_was_added_since() -> None:
    earlier = EngineMetrics.parse("vllm:prompt_tokens_total 5\n")
    later = EngineMetrics.parse("vllm:prompt_tokens_total 9\nkvext:loaded_bytes_total 64\n")
    added = later.since(earlier)
    assert (added.prompt_tokens, added.loaded_bytes) == (4, 64)


def test_engine_that_ends_at_start_is_reported_with_its_last_words(log: Path) -> None:
    with (
        pytest.raises(EngineNotServing, match="did you mean 'pool_size'") as caught,
        ServedEngine([*STAND_IN, "--refuse"], log=log),
    ):
        pass
    assert "ended with exit code 1" in caught.value.reason


def test_engine_that_never_gets_ready_is_reported_and_ended(log: Path) -> None:
    command = [sys.executable, "-c", "import time; print('waiting', flush=True); time.sleep(600)"]
    engine = ServedEngine(command, log=log, start_deadline_s=0.3)
    with pytest.raises(EngineNotServing, match=r"was not ready after 0.3 s"), engine:
        pass
    assert engine.pids == []


def test_killed_engine_leaves_neither_process_nor_shared_memory(log: Path) -> None:
    name = f"kvext-test-{os.getpid()}"
    with ServedEngine([*STAND_IN, "--shared-memory", name], log=log) as engine:
        pids = engine.pids
        assert len(pids) == 3, "server, worker and resource tracker"
        assert (SHARED_MEMORY / name).exists()
        engine.kill()
        assert engine.pids == []
    assert not [pid for pid in pids if _lives(pid)]
    assert not (SHARED_MEMORY / name).exists()
    with pytest.raises(EngineLost):
        engine.chat(QUESTION, max_tokens=3)


def test_stopped_engine_leaves_no_process(log: Path) -> None:
    with ServedEngine(STAND_IN, log=log) as engine:
        pids = engine.pids
    assert pids
    assert not [pid for pid in pids if _lives(pid)]


def test_proxies_of_the_environment_do_not_reach_the_engine(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid")
    with ServedEngine(STAND_IN, log=log, cores="0") as engine:
        environment = Path(f"/proc/{engine.pids[0]}/environ").read_bytes().split(b"\0")
    assert not [entry for entry in environment if entry.upper().startswith(b"HTTP_PROXY=")]
    assert b"VLLM_CPU_OMP_THREADS_BIND=0" in environment


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
