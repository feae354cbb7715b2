"""Real vLLM engines in this process, one at a time: two live ones would share connector globals."""

import gc
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="WARNING",
    VLLM_NO_USAGE_STATS="1",
)

BLOCK_TOKENS = 32
KV_MEMORY_BYTES = 16 << 20  # 128 blocks of the tiny model in float32


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got: greedy tokens, their log-probabilities, and where its KV came from."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    cached_tokens: int
    kvext: dict[str, Any]
    others: dict[str, Any] = field(default_factory=dict)
    """What other connectors of the same engine answered."""

    def same_as(self, other: "Answer", tolerance: float = 1e-4) -> bool:
        """Equal tokens, and log-probabilities that differ by rounding at most."""
        return self.tokens == other.tokens and all(
            abs(mine - theirs) <= tolerance
            for mine, theirs in zip(self.logprobs, other.logprobs, strict=True)
        )


class Engine:
    """One live engine with kvext's connector."""

    def __init__(
        self,
        model: Path,
        connector_options: dict[str, Any] | None,
        *,
        connector: dict[str, str] | None = None,
        **engine: Any,
    ) -> None:
        """Start it; `connector_options` None means stock vLLM."""
        from vllm import LLM  # noqa: PLC0415 - takes seconds

        from kvext.vllm.epoch import mark_idle  # noqa: PLC0415

        mark_idle()  # the fixture has closed the engine before
        options: dict[str, Any] = {
            "model": str(model),
            "dtype": "float32",
            "max_model_len": 2048,
            "max_num_batched_tokens": 2048,
            "enforce_eager": True,
            "block_size": BLOCK_TOKENS,
            "kv_cache_memory_bytes": KV_MEMORY_BYTES,
            "disable_log_stats": True,
            **engine,
        }
        if connector_options is not None:
            options["kv_transfer_config"] = {
                "kv_connector": "KvextConnector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": connector_options,
                **(connector or {}),
            }
        self.llm = LLM(**options)

    def ask(self, tokens: Sequence[int], *, lora: Any = None, **request: Any) -> Answer:
        """One request, greedily."""
        return self.ask_all([tokens], lora=lora, **request)[0]

    def ask_all(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int = 8,
        salt: str | None = None,
        lora: Any = None,
    ) -> list[Answer]:
        """Several requests at once, greedily."""
        from vllm import SamplingParams  # noqa: PLC0415

        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=0)
        inputs: list[dict[str, Any]] = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        for entry in inputs:
            if salt is not None:
                entry["cache_salt"] = salt
        outputs = self.llm.generate(inputs, sampling, use_tqdm=False, lora_request=lora)
        return [answer_of(output) for output in outputs]

    def forget_local(self) -> None:
        """Empty the engine's own prefix cache; the pool keeps its blocks."""
        assert self.llm.reset_prefix_cache()

    def close(self) -> None:
        """End it and free what it held."""
        from vllm.distributed.parallel_state import (  # noqa: PLC0415
            cleanup_dist_env_and_memory,
        )

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        cleanup_dist_env_and_memory()
        gc.collect()


def answer_of(output: Any) -> Answer:
    """What a finished request got."""
    """Read what vLLM says of one finished request."""
    completion = output.outputs[0]
    logprobs = tuple(next(iter(step.values())).logprob for step in completion.logprobs)
    others = dict(output.kv_transfer_params or {})
    kvext = others.pop("kvext", {})
    return Answer(tuple(completion.token_ids), logprobs, output.num_cached_tokens, kvext, others)


class Engines:
    """Keeps the last engine until another configuration is asked for."""

    def __init__(self) -> None:
        """Begin with none."""
        self._key = ""
        self._engine: Engine | None = None

    def get(
        self, model: Path, options: dict[str, Any] | None, *, fresh: bool = False, **engine: Any
    ) -> Engine:
        """An engine of this configuration with an empty local cache."""
        key = json.dumps([str(model), options, engine], sort_keys=True)
        if fresh or key != self._key or self._engine is None:
            self.close()
            self._engine = Engine(model, options, **engine)
            self._key = key
        self._engine.forget_local()
        return self._engine

    def close(self) -> None:
        """End the live engine, if there is one."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def prompt(seed: int, num_tokens: int = 400) -> list[int]:
    """Random tokens that only this seed gives."""
    source = random.Random(seed)  # noqa: S311 - reproducible, not secret
    return [source.randrange(3, 500) for _ in range(num_tokens)]
