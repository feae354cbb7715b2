"""How the commands of `kvext pool` are told which pool and which part of it."""

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from kvext.assembly import pool_path
from kvext.config import Config, load_config
from kvext.errors import InvalidOption
from kvext.pool import NamespaceUse

__all__ = [
    "in_folder",
    "model_digest",
    "named",
    "namespace_digest",
    "pool_config",
    "pool_file",
]


def named(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the pool's name and folder."""
    command = in_folder(command)
    return click.argument("name", default=Config().pool_name)(command)


def in_folder(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the pools' folder."""
    return click.option(
        "--folder",
        default=Config().pool_folder,
        show_default=True,
        help="Folder of the pool's region.",
    )(command)


def pool_config(folder: str, name: str, size: str = "auto") -> Config:
    """The checked configuration of a pool that was named on the command line."""
    absolute = str(Path(folder).absolute())
    return load_config({"pool_name": name, "pool_folder": absolute, "pool_size": size})


def pool_file(folder: str, name: str) -> Path:
    """The region's file."""
    return pool_path(pool_config(folder, name))


def namespace_digest(uses: Iterable[NamespaceUse], prefix: str) -> bytes:
    """The one namespace whose digest begins so.

    Raises:
        InvalidOption: None does, or several do.
    """
    return _one("--namespace", "namespace", {use.digest for use in uses}, prefix)


def model_digest(option: str, uses: Iterable[NamespaceUse], prefix: str) -> bytes:
    """The one model whose digest begins so.

    Raises:
        InvalidOption: None does, or several do.
    """
    return _one(option, "model", {use.model for use in uses}, prefix)


def _one(option: str, what: str, digests: set[str], prefix: str) -> bytes:
    matching = {digest for digest in digests if prefix and digest.startswith(prefix.lower())}
    if len(matching) != 1:
        known = "more digits are needed" if matching else f"no {what} of the pool begins so"
        raise InvalidOption(option, prefix, f"{known}; see `kvext pool stat`")
    return bytes.fromhex(matching.pop())
