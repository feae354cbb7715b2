"""The `kvext` command: it starts engines that share a pool, and looks after pools."""

import click

from kvext import __version__
from kvext.cli.answer import example
from kvext.cli.pool import pool
from kvext.cli.serve import serve

__all__ = ["kvext", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvext")
@example(
    "kvext serve Qwen/Qwen3-0.6B --pool 8GiB",
    "kvext pool stat",
)
def kvext() -> None:
    """Share the KV cache of LLM engines in one pool that outlives them."""


kvext.add_command(serve)
kvext.add_command(pool)


def main() -> None:
    """Run the command line of this process."""
    kvext(prog_name="kvext")
