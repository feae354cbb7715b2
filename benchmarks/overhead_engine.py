"""One arm of `overhead.py`: a real vLLM engine in a process of its own, kept busy on command.

The engine always has the same number of requests to serve, each with a prompt that nobody has
asked before, and both arms get the same ones. So step for step they schedule the same tokens,
and what differs is the connector.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Arm", "Round", "Workload", "run_arm"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What an engine is asked."""

    num_concurrent: int
    prompt_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]

    def requests(self) -> Iterator[tuple[list[int], int]]:
        """Prompts and lengths of answers, the same at every call."""
        source = random.Random(0)  # noqa: S311 - reproducible, not secret
        while True:
            num_tokens = source.randint(*self.prompt_tokens)
            prompt = [source.randrange(3, 500) for _ in range(num_tokens)]
            yield prompt, source.randint(*self.answer_tokens)


@dataclass(frozen=True, slots=True)
class Arm:
    """An engine's description.

    Attributes:
        model: Folder of the model.
        pool_folder: Where the connector's pool lies; None for no connector.
        core: CPU core that the process is bound to, so that both arms run on the same one.
    """

    model: Path
    pool_folder: Path | None
    core: int


@dataclass(slots=True)
class Round:
    """What one engine did in one round.

    Attributes:
        num_steps: Steps of the engine.
        num_tokens: Tokens that it computed.
        num_running: Requests that were scheduled, over all steps.
        schedule_s: CPU time of the scheduler's `schedule`.
        update_s: CPU time of its `update_from_output`.
        add_s: CPU time of its `add_request`.
        cpu_s: CPU time of the process.
        wall_s: Time on the clock.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_running: int = 0
    schedule_s: float = 0.0
    update_s: float = 0.0
    add_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0


def run_arm(arm: Arm, workload: Workload, orders: Connection) -> None:
    """Start an engine, then run as many steps as each order says and answer with a `Round`.

    Args:
        arm: The engine.
        workload: What it is asked.
        orders: Gives numbers of steps; 0 ends the engine.
    """
    os.sched_setaffinity(0, {arm.core})
    os.environ.update(
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
    )
    engine = _BusyEngine(_start(arm, workload), workload)
    orders.send(None)
    while num_steps := orders.recv():
        orders.send(engine.run(num_steps))
    engine.close()


def _start(arm: Arm, workload: Workload) -> Any:
    from vllm import LLM  # noqa: PLC0415 - the environment must be set before

    options: dict[str, Any] = {}
    if arm.pool_folder is not None:
        options["kv_transfer_config"] = {
            "kv_connector": "KvextConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "pool_folder": str(arm.pool_folder),
                "pool_size": "256MiB",
            },
        }
    longest = workload.prompt_tokens[1] + workload.answer_tokens[1]
    return LLM(
        model=str(arm.model),
        dtype="float32",
        max_model_len=longest,
        max_num_batched_tokens=2048,
        max_num_seqs=workload.num_concurrent,
        enforce_eager=True,
        block_size=32,
        kv_cache_memory_bytes=512 << 20,
        disable_log_stats=True,
        **options,
    )


class _BusyEngine:
    """Keeps an engine at its number of requests and measures its scheduler."""

    def __init__(self, llm: Any, workload: Workload) -> None:
        self._engine = llm.llm_engine
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self._workload = workload
        self._requests = workload.requests()
        self._round = Round()
        self._num_added = 0
        for method, figure in (
            ("schedule", "schedule_s"),
            ("update_from_output", "update_s"),
            ("add_request", "add_s"),
        ):
            setattr(self._scheduler, method, self._timed(getattr(self._scheduler, method), figure))

    def run(self, num_steps: int) -> Round:
        """Do some steps; new requests take the place of those that end."""
        self._round = Round()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(num_steps):
            while self._engine.get_num_unfinished_requests() < self._workload.num_concurrent:
                self._add()
            self._engine.step()
        self._round.cpu_s = time.process_time() - cpu_s
        self._round.wall_s = time.perf_counter() - wall_s
        return self._round

    def close(self) -> None:
        """End the engine."""
        self._engine.engine_core.shutdown()

    def _add(self) -> None:
        from vllm import SamplingParams  # noqa: PLC0415

        prompt, answer_tokens = next(self._requests)
        sampling = SamplingParams(
            temperature=0, max_tokens=answer_tokens, ignore_eos=True, detokenize=False
        )
        self._num_added += 1
        self._engine.add_request(str(self._num_added), {"prompt_token_ids": prompt}, sampling)

    def _timed(self, method: Callable[..., Any], figure: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun_s = time.thread_time()
            result = method(*args, **kwargs)
            spent_s = time.thread_time() - begun_s
            done = self._round
            setattr(done, figure, getattr(done, figure) + spent_s)
            if figure == "schedule_s":
                done.num_steps += 1
                done.num_tokens += result.total_num_scheduled_tokens
                done.num_running += len(result.num_scheduled_tokens)
            return result

        return timed
