"""`kvext serve`: the plain `vllm serve` command with kvext's connector in it, printed and run.

Options of kvext become the connector's JSON, everything else reaches vLLM as it was typed. The
command that is printed does the same without kvext's command line.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.cli.start_agent import start_agent
from kvext.config import FILE_OPTION, OptionInfo, describe_options, load_config
from kvext.errors import EngineMissing, InvalidOption, OptionConflict

__all__ = ["engine_command", "serve"]

_TRANSFER_OPTION = "--kv-transfer-config"
# vLLM's own offloading takes the connector's place.
_OFFLOADING_OPTION = "--kv-offloading-size"


def engine_command(
    model: str, vllm_options: Sequence[str], options: Mapping[str, object]
) -> list[str]:
    """The `vllm serve` command that a `kvext serve` call stands for.

    Args:
        model: Folder or hub name, as vLLM takes it.
        vllm_options: What vLLM gets untouched.
        options: kvext's options that differ from their defaults.

    Returns:
        The argument vector.

    Raises:
        OptionConflict: `vllm_options` configure a connector of their own.
    """
    for option in vllm_options:
        _refuse_other_connector(option)
    transfer: dict[str, object] = {
        "kv_connector": "KvextConnector",
        "kv_role": "kv_both",
        # A block that cannot be loaded is computed; vLLM's default fails the request.
        "kv_load_failure_policy": "recompute",
    }
    if options:
        transfer["kv_connector_extra_config"] = dict(options)
    document = json.dumps(transfer, separators=(",", ":"))
    return ["vllm", "serve", model, *vllm_options, _TRANSFER_OPTION, document]


def _refuse_other_connector(option: str) -> None:
    # vLLM takes underscores, nested "--name.key" forms and unambiguous abbreviations.
    name = option.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
    for taken in (_TRANSFER_OPTION, _OFFLOADING_OPTION):
        if len(name) > len("--kv-") and taken.startswith(name):
            raise OptionConflict(
                taken, "kvext serve sets the connector itself", "leave it out, or run `vllm serve`"
            )


def _flags(option: OptionInfo) -> tuple[str, ...]:
    flag = "--" + option.name.replace("_", "-")
    if isinstance(option.default, bool):
        return (f"{flag}/--no-{flag[2:]}",)
    # The one that everybody types has the short name, too.
    return ("--pool", flag) if option.name == "pool_size" else (flag,)


def _kvext_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command one flag for each option of the schema."""
    for option in reversed(list(describe_options())):
        of_type = type(option.default)
        command = click.option(
            *_flags(option),
            option.name,
            type=None if of_type is bool else of_type,
            default=None,
            metavar="SIZE" if option.name == "pool_size" else None,
            help=f"{option.description} Default: {json.dumps(option.default)}.",
        )(command)
    return command


@click.command(
    context_settings={"ignore_unknown_options": True},
    options_metavar="[kvext options]",
)
@click.argument("model")
@click.argument("vllm_options", nargs=-1, type=click.UNPROCESSED, metavar="[vLLM options]")
@_kvext_options
@click.option(
    "--kvext-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with kvext's options; options given here win over it.",
)
@click.option(
    "--agent/--no-agent",
    "with_agent",
    default=True,
    show_default=True,
    help="Start the pool's agent if none runs (see `kvext agent`); it ends after the last engine.",
)
@click.option("--dry-run", is_flag=True, help="Print the command and do not run it.")
@json_option
@answering
@example(
    "kvext serve Qwen/Qwen3-0.6B --pool 8GiB --port 8000",
    "kvext serve Qwen/Qwen3-0.6B --pool 8GiB --port 8001",
    "kvext serve Qwen/Qwen3-0.6B --pool 8GiB --dry-run --json",
)
def serve(
    model: str,
    vllm_options: tuple[str, ...],
    *,
    kvext_config: Path | None,
    with_agent: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Serve MODEL with vLLM, its KV cache in a pool that engines share.

    Prints the `vllm serve` command that it stands for, then becomes that process, with the pool's
    agent beside it. Options that
    kvext does not know go to vLLM as they are, and so does everything after `--`.
    """
    if model.startswith("-"):
        msg = f"name the model before vLLM's options: kvext serve MODEL {model} ..."
        raise click.UsageError(msg)
    if as_json and not dry_run:
        msg = "--json describes the command and needs --dry-run"
        raise click.UsageError(msg)
    options = _differing(given, kvext_config)
    command = engine_command(model, vllm_options, options)
    if as_json:
        echo_json({"argv": command})
        return
    click.echo(shlex.join(command))
    if dry_run:
        return
    program = _find(command[0])
    sys.stdout.flush()
    if with_agent and not start_agent(load_config(options)):
        click.echo("warning: no process could be made for the pool's agent", err=True)
    os.execv(program, command)  # noqa: S606 - no shell: the arguments are the user's own


def _differing(given: Mapping[str, object], kvext_config: Path | None) -> dict[str, object]:
    """The options to write down: those given, less those that say what goes without saying."""
    options = {name: value for name, value in given.items() if value is not None}
    if "pool_folder" in options:
        options["pool_folder"] = str(Path(str(options["pool_folder"])).absolute())
    if kvext_config is not None:
        options = {FILE_OPTION: str(kvext_config.absolute()), **options}
    load_config(options)
    if kvext_config is None:
        defaults = {option.name: option.default for option in describe_options()}
        options = {name: value for name, value in options.items() if value != defaults[name]}
    return options


def _find(name: str) -> str:
    """The engine's program."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and "kvext" not in allowed.split(","):
        raise InvalidOption("VLLM_PLUGINS", allowed, "add kvext to it, or unset it")
    # An environment that is not activated has its programs beside its Python.
    here = str(Path(sys.executable).parent)
    program = shutil.which(name) or shutil.which(name, path=here)
    if program is None:
        remedy = "pip install 'kvext[vllm]', or activate the environment that has it"
        raise EngineMissing(name, remedy)
    return program
