"""What the documentation says about options, commands and errors, as Markdown from the code.

Pure functions: `kvext_reference` puts their text into pages, tests hold it against the code.
"""

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields

import click

from kvext import errors
from kvext.cli import kvext as command_line
from kvext.config import OptionInfo, describe_options

__all__ = ["commands_text", "errors_text", "options_text", "walk_commands"]


def options_text() -> str:
    """A heading, the meaning, the values and the default of each option of the schema."""
    return "\n\n".join(_option_text(option) for option in describe_options())


def commands_text() -> str:
    """A heading, the usage, the help and the options of each command that does something."""
    return "\n\n".join(
        _command_text(name, command)
        for name, command in walk_commands()
        if not isinstance(command, click.Group)
    )


def errors_text() -> str:
    """The tree of errors as the module draws it, then each error with its fields."""
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    rows = [_error_row(kind) for kind in _leaves(errors.KvextError)]
    table = ["| error | when | fields |", "|---|---|---|", *rows]
    return f"```text\n{inspect.cleandoc(tree)}\n```\n\n" + "\n".join(table)


def walk_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and group with what must be typed for it, such as `kvext pool stat`."""
    yield from _walk("kvext", command_line)


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _walk(f"{name} {part.name}", part)


def _option_text(option: OptionInfo) -> str:
    return (
        f"## `{option.name}`\n\n{option.description}\n\n"
        f"Value: {option.kind}. Default: `{json.dumps(option.default)}`."
    )


def _command_text(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    prose, example = _split_help(command)
    rows = [f"| `{spelling}` | {_cell(text)} |" for spelling, text in _options(command, context)]
    return "\n\n".join(
        (
            f"## `{name}`",
            f"```text\n{usage}\n```",
            prose,
            *([f"```sh\n{example}\n```"] if example else []),
            "\n".join(["| option | meaning |", "|---|---|", *rows]),
        )
    )


def _split_help(command: click.Command) -> tuple[str, str]:
    """The help's prose, and the calls behind its "Example:" line."""
    # click keeps a line with \b alone where it must not rewrap.
    prose, _, example = inspect.cleandoc(command.help or "").partition("\b\nExample:\n")
    return prose.strip(), inspect.cleandoc(example)


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        # Arguments have no help of their own: the usage names them, the prose explains them.
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield record


def _leaves(kind: type[errors.KvextError]) -> Iterator[type[errors.KvextError]]:
    if not kind.__subclasses__():
        yield kind
    for child in kind.__subclasses__():
        # Test doubles and demos derive errors of their own.
        if child.__module__ == errors.__name__:
            yield from _leaves(child)


def _error_row(kind: type[errors.KvextError]) -> str:
    names = ", ".join(f"`{field.name}`" for field in fields(kind))
    return f"| `{kind.__name__}` | {_cell(inspect.getdoc(kind) or '')} | {names} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
