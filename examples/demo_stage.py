"""What the demo plays on: one pool, the engines that share it, and nothing left afterwards."""

import os
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from interrupts import Interrupted, Interrupts
from rich.console import Console

from kvext.config import Config, format_bytes, parse_bytes
from kvext.cxl import region_path
from kvext.errors import PoolFull
from kvext.testing.chat import StreamedAnswer
from kvext.testing.engine_metrics import EngineMetrics
from kvext.testing.long_prompts import Messages, warm_up_question
from kvext.testing.serving import ServedEngine

__all__ = ["Stage", "Turn", "cores_for_two"]

ANSWER_TOKENS = 32
_ENGINE_OPTIONS = (
    "--served-model-name=SmolLM2",
    "--max-model-len=8192",
    "--kv-cache-memory-bytes=512M",
    "--block-size=32",  # whole blocks are cached: at most 31 tokens of a prompt's end are not
    "--enforce-eager",  # ready sooner: nothing is compiled
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question to one engine, and what the engine counted for it."""

    engine: str
    answer: StreamedAnswer
    counted: EngineMetrics


class Stage:
    """Starts engines on the demo's pool and takes everything away at the end."""

    def __init__(
        self,
        model: Path,
        pool_size: str,
        folder: Path,
        *,
        keep_pool: bool,
        console: Console,
        interrupts: Interrupts,
    ) -> None:
        """Name the pool; nothing is started.

        Args:
            model: The served model's folder.
            pool_size: Such as "1GiB".
            folder: Where the pool's region shall lie.
            keep_pool: Whether the region stays at the end.
            console: Takes the progress lines.
            interrupts: The program's, to start engines undisturbed.
        """
        # Two demos on one host do not meet, and a pool that was kept makes no later demo warm.
        self._pool_name = f"demo-{os.getpid()}"
        self.pool_path = region_path(folder, self._pool_name)
        self._keep_pool = keep_pool
        self._model = model
        self._pool_size = pool_size
        self._folder = folder
        self._console = console
        self._interrupts = interrupts
        self._engines: list[ServedEngine] = []
        self._scratch = Path()
        self._begun_s = 0.0

    def __enter__(self) -> Self:
        """Check that there is memory, and make a place for logs.

        Raises:
            PoolFull: The folder cannot hold the pool.
        """
        needed_bytes = parse_bytes(self._pool_size)
        free_bytes = shutil.disk_usage(self._folder).free
        if free_bytes < needed_bytes:
            raise PoolFull(str(self.pool_path), needed_bytes, free_bytes)
        self._scratch = Path(tempfile.mkdtemp(prefix="kvext-demo-"))
        self._begun_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all engines; remove the pool, unless it is to be kept, and a success's logs."""
        self._interrupts.mute()
        try:
            for engine in self._engines:
                if error is None:
                    engine.stop()
                else:
                    engine.kill()
        finally:
            if not self._keep_pool:
                # An engine that ends while it makes the pool leaves "<name>.pool.new".
                for region in self._folder.glob(f"{self.pool_path.name}*"):
                    region.unlink()
        if error is None or isinstance(error, Interrupted):
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def pool_hint(self) -> str:
        """How to look at the pool and to remove it."""
        name = shlex.join([self._pool_name, "--folder", str(self._folder)])
        return f"kvext pool stat {name}; kvext pool rm {name}"

    def say(self, text: str) -> None:
        """One progress line."""
        elapsed_s = time.monotonic() - self._begun_s
        self._console.print(
            f"[dim]{elapsed_s:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )

    def start_engine(self, name: str, core: int) -> ServedEngine:
        """Serve the model in a new process, ready and warmed up."""
        # No agent: it would look after a pool that is gone in a minute, and leave a log behind.
        command = ["kvext", "serve", str(self._model), "--pool", self._pool_size, "--no-agent"]
        command += ["--pool-name", self._pool_name]
        if str(self._folder) != Config().pool_folder:
            command += ["--pool-folder", str(self._folder)]
        self.say(f"starting the {name} engine on core {core}; vLLM takes 20 to 40 s to get ready")
        if not self._engines:
            size = format_bytes(parse_bytes(self._pool_size))
            self.say(f"the first one also makes the pool, {size} of shared memory:")
            self._console.print(f"          [bold]{shlex.join(command)}[/bold]", soft_wrap=True)
        engine = ServedEngine(
            [*command, *_ENGINE_OPTIONS],
            log=self._scratch / f"{name}.log",
            cores=str(core),
            environment={"TMPDIR": str(self._scratch)},
        )
        self._engines.append(engine)
        with self._interrupts.held():
            engine.start()
        engine.wait_until_ready()
        # A server's very first answer pays for imports and pools of threads; not what is measured.
        engine.chat(warm_up_question(), max_tokens=8)
        return engine

    def ask(self, name: str, engine: ServedEngine, question: Messages) -> Turn:
        """Ask one question and read what the engine counted for it."""
        before = engine.metrics()
        answer = engine.chat(question, ANSWER_TOKENS)
        return Turn(name, answer, engine.metrics_with(before, answer.prompt_tokens))


def cores_for_two() -> tuple[int, int]:
    """Two different cores that this process may use; the same one twice if there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]
