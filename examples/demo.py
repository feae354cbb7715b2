"""A real model, a crash, and a second engine that starts warm: `make demo`.

    python examples/demo.py                  # about two minutes on two cores
    python examples/demo.py --keep-pool      # and look at the pool afterwards

Nothing is left behind, however it ends: no process, and no shared memory without `--keep-pool`.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from demo_report import Casualty, DemoResult, Occupancy, Scenes, show
from demo_stage import ANSWER_TOKENS, Stage, cores_for_two
from interrupts import Interrupted, Interrupts
from rich.console import Console
from smollm2 import ModelUnavailable, smollm2_folder

from kvext.config import Config
from kvext.errors import KvextError
from kvext.pool import Pool, PoolStat
from kvext.testing.chat import EngineLost
from kvext.testing.long_prompts import log_question
from kvext.testing.serving import ServedEngine

__all__ = ["kill_in_mid_store", "main", "play"]

_STORE_DEADLINE_S = 120.0
_POLL_S = 0.0002


class NothingStored(Exception):
    """The engine answered, or ran out of time, without storing anything."""


def play(stage: Stage) -> tuple[Scenes, DemoResult]:
    """All scenes, from the first cold question to two engines at once."""
    core, other_core = cores_for_two()
    engine = stage.start_engine("first", core)
    with Pool.attach(stage.pool_path) as observer:
        question = log_question("Heron Rock")
        stage.say("asking about a long log, cold: every token of it is computed")
        cold = stage.ask("first", engine, question)
        stage.say("asking again: the engine's own prefix cache has it")
        local_hit = stage.ask("first", engine, question)
        stage.say("asking about another log, and SIGKILL while the engine stores its blocks")
        casualty = kill_in_mid_store(engine, observer)
        engine = stage.start_engine("second", core)
        stage.say("asking the first question again: the pool has outlived the engine")
        warm = stage.ask("second", engine, question)
        neighbour = stage.start_engine("third", other_core)
        question = log_question("Sable Head")
        stage.say("both engines live; asking the second one about a new log, cold")
        neighbour_cold = stage.ask("second", engine, question)
        stage.say("asking the third engine the same")
        neighbour_warm = stage.ask("third", neighbour, question)
        pool = Occupancy.of(observer.stat(), observer.namespaces())
    scenes = Scenes(cold, local_hit, casualty, warm, neighbour_cold, neighbour_warm)
    return scenes, DemoResult.of(scenes, pool)


def kill_in_mid_store(engine: ServedEngine, observer: Pool) -> Casualty:
    """Ask something long and kill the engine when some of its blocks are stored, others half.

    Args:
        engine: The victim.
        observer: The pool that it stores to.

    Returns:
        What of the request was in the pool.

    Raises:
        NothingStored: There was never a half-written block to see.
    """
    num_before = observer.stat().num_committed
    end_s = time.monotonic() + _STORE_DEADLINE_S
    with ThreadPoolExecutor(1) as caller:
        doomed = caller.submit(engine.chat, log_question("Gull Point"), ANSWER_TOKENS)
        try:
            while not _is_half_way(observer.stat(), num_before):
                if doomed.done() or time.monotonic() > end_s:
                    raise NothingStored("the engine was not seen to store; read its log")
                time.sleep(_POLL_S)
        finally:
            engine.kill()
    if not isinstance(doomed.exception(), EngineLost):
        raise NothingStored("the engine had answered before it was killed")
    stat = observer.stat()
    return Casualty(stat.num_committed - num_before, stat.num_reserved)


def _is_half_way(stat: PoolStat, num_before: int) -> bool:
    return stat.num_committed > num_before and stat.num_reserved > 0


@click.command()
@click.option("--pool", default="1GiB", show_default=True, metavar="SIZE", help="Pool's size.")
@click.option(
    "--pool-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Config().pool_folder,
    show_default=True,
    help="Where the pool lies.",
)
@click.option("--keep-pool", is_flag=True, help="Leave the pool for `kvext pool stat`.")
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A chat model's folder; SmolLM2-135M-Instruct by default, built on first use.",
)
@click.option(
    "--result",
    "result_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="demo-result.json",
    show_default=True,
    help="File that takes the figures.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, not a table.")
def main(
    *,
    pool: str,
    pool_folder: Path,
    keep_pool: bool,
    model: Path | None,
    result_file: Path,
    as_json: bool,
) -> None:
    """Serve a real model, kill its engine, and see a second one start warm."""
    console = Console(stderr=as_json)
    try:
        with Interrupts() as interrupts:
            stage = Stage(
                model or smollm2_folder(),
                pool,
                pool_folder,
                keep_pool=keep_pool,
                console=console,
                interrupts=interrupts,
            )
            with stage:
                scenes, result = play(stage)
    except (KvextError, ModelUnavailable, NothingStored, TimeoutError) as error:
        raise click.ClickException(str(error)) from error
    except Interrupted as interrupted:
        left = "no process" if keep_pool else "no process and no shared memory"
        click.echo(f"{interrupted}; {left} is left behind", err=True)
        sys.exit(interrupted.exit_code)
    document = json.dumps(result.as_dict(), indent=2)
    result_file.write_text(document + "\n", encoding="utf-8")
    if as_json:
        click.echo(document)
    else:
        show(scenes, result, console)
        console.print(f"Figures: {result_file}", highlight=False)
    if keep_pool:
        console.print(f"Kept: {stage.pool_hint}", highlight=False, soft_wrap=True)
    if result.failure:
        raise click.ClickException(result.failure)


if __name__ == "__main__":
    main()
