"""Serve one model in a process of its own: `python one_engine.py MODEL DTYPE`.

The request on stdin is JSON: `prompts` (texts), `chats` (questions), `adapter` (a folder or null),
`max_tokens`. The answer is a JSON list of token id lists and texts, on the last line of stdout.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

QUIET_OFFLINE_SINGLE_PROCESS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What greedy decoding gave for one prompt."""

    token_ids: tuple[int, ...]
    text: str


def ask_engine(
    model: Path,
    dtype: str,
    *,
    prompts: Sequence[str] = (),
    chats: Sequence[str] = (),
    adapter: Path | None = None,
    max_tokens: int = 16,
) -> list[Answer]:
    """Start an engine in a new process, ask everything greedily, and wait for its end."""
    request = {
        "prompts": list(prompts),
        "chats": list(chats),
        "adapter": str(adapter) if adapter else None,
        "max_tokens": max_tokens,
    }
    engine = subprocess.run(
        [sys.executable, __file__, str(model), dtype],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | QUIET_OFFLINE_SINGLE_PROCESS,
        timeout=110,
        check=False,
    )
    assert engine.returncode == 0, engine.stderr
    answers = json.loads(engine.stdout.splitlines()[-1])
    return [Answer(tuple(token_ids), text) for token_ids, text in answers]


def main() -> None:
    """Answer the request on stdin."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - only the child process loads the engine
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    model, dtype = sys.argv[1:]
    request = json.load(sys.stdin)
    llm = LLM(
        model=model,
        dtype=dtype,
        max_model_len=1024,
        enforce_eager=True,
        block_size=32,
        kv_cache_memory_bytes=64 << 20,
        enable_lora=request["adapter"] is not None,
    )
    greedy = SamplingParams(temperature=0, max_tokens=request["max_tokens"])
    outputs = []
    if request["prompts"]:
        outputs += llm.generate(request["prompts"], greedy, use_tqdm=False)
    if request["prompts"] and request["adapter"]:
        lora = LoRARequest("adapter", 1, request["adapter"])
        outputs += llm.generate(request["prompts"], greedy, use_tqdm=False, lora_request=lora)
    if request["chats"]:
        chats = [[{"role": "user", "content": question}] for question in request["chats"]]
        outputs += llm.chat(chats, greedy, use_tqdm=False)
    answers = [(list(o.outputs[0].token_ids), o.outputs[0].text) for o in outputs]
    llm.llm_engine.engine_core.shutdown()
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
