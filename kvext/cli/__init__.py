"""The `kvext` command: it starts engines that share a pool, and looks after pools."""

import importlib

import click

from kvext import __version__
from kvext.cli.answer import example
from kvext.cli.doctor import doctor
from kvext.cli.serve import serve

__all__ = ["kvext", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvext")
@example(
    "kvext serve Qwen/Qwen3-0.6B --pool 8GiB",
    "kvext pool stat",
    "kvext simulate --trace requests.jsonl --blocks 2.5k",
    "kvext doctor",
)
def kvext() -> None:
    """Share the KV cache of LLM engines in one pool that outlives them."""


def _native(name: str) -> click.Command:
    """A command, or what stands for it where the native core does not load."""
    try:
        # Not above: `kvext doctor` must run without them.
        module = importlib.import_module(f"kvext.cli.{name}")
    except ImportError as error:
        return _unavailable(name, str(error))
    command: click.Command = getattr(module, name)
    return command


def _unavailable(name: str, reason: str) -> click.Command:
    def refuse() -> None:
        message = f"{reason}; run `kvext doctor`"
        raise click.ClickException(message)

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, expose_value=False)],
        context_settings={"ignore_unknown_options": True},
        help="Not available: the native core does not load; see `kvext doctor`.",
    )


kvext.add_command(serve)
kvext.add_command(_native("pool"))
kvext.add_command(_native("agent"))
kvext.add_command(_native("simulate"))
kvext.add_command(doctor)


def main() -> None:
    """Run the command line of this process."""
    kvext(prog_name="kvext")
