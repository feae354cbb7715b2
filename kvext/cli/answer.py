"""How every command of kvext answers: text or one JSON document, errors included.

Exit codes: 0 done, 1 an error of kvext's tree, 2 a wrong call (click's own).
"""

import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import click

from kvext.errors import KvextError

__all__ = ["answering", "echo_json", "example", "json_option"]

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


def echo_json(document: object) -> None:
    """Print one JSON document; paths and other values without a JSON form become text."""
    click.echo(json.dumps(document, indent=2, default=str))


def answering(command: Callable[..., None]) -> Callable[..., None]:
    """Make the errors of kvext's tree answers of the command, never tracebacks.

    The error is one line on standard error, or JSON on standard output under `--json`.
    """

    @functools.wraps(command)
    def run(*args: Any, as_json: bool, **options: Any) -> None:
        try:
            command(*args, as_json=as_json, **options)
        except KvextError as error:
            if as_json:
                echo_json(error.as_dict())
            else:
                click.echo(f"error: {error}", err=True)
            click.get_current_context().exit(1)

    return run


def example(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """End a command's `--help` with calls that can be typed as they stand."""
    # A line with \b alone keeps click from rewrapping the paragraph.
    paragraph = "\n  ".join(("\b\nExample:", *lines))

    def extend_help(command: Callable[..., None]) -> Callable[..., None]:
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{paragraph}"
        return command

    return extend_help
