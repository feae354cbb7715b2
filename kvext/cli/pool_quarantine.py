"""`kvext pool quarantine | release`: take a namespace out of use, and let it begin anew."""

from collections.abc import Callable

import click

from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.cli.pool_options import named, namespace_digest, pool_file
from kvext.pool import Pool

__all__ = ["quarantine", "release"]


def _of_one_namespace(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--namespace",
        metavar="HEX",
        required=True,
        help="The namespace; the first digits are enough (see `stat`).",
    )(command)


@click.command()
@named
@_of_one_namespace
@json_option
@answering
@example(
    "kvext pool quarantine --namespace 3fa9c1",
    "kvext pool quarantine tests --folder /tmp --namespace 3fa9c1 --json",
)
def quarantine(name: str, folder: str, namespace: str, *, as_json: bool) -> None:
    """Have every engine neither find nor store anything of one namespace of pool NAME.

    A namespace is one model with one KV layout, adapter and sharing domain. An engine does the
    same by itself when shadow verification finds wrong KV. What engines hold in their own memory
    is not touched: reset their prefix caches, too.
    """
    with Pool.attach(pool_file(folder, name)) as attached:
        digest = namespace_digest(attached.namespaces(), namespace)
        has_changed = attached.quarantine_namespace(digest)
    if as_json:
        echo_json(_document(name, digest, is_quarantined=True, has_changed=has_changed))
    else:
        was = "is" if has_changed else "was already"
        click.echo(f"namespace {digest.hex()} {was} in quarantine; kvext pool release ends it")


@click.command()
@named
@_of_one_namespace
@json_option
@answering
@example(
    "kvext pool release --namespace 3fa9c1",
    "kvext pool release tests --folder /tmp --namespace 3fa9c1 --json",
)
def release(name: str, folder: str, namespace: str, *, as_json: bool) -> None:
    """End the quarantine of one namespace of pool NAME, without what it held.

    What was suspicious enough for a quarantine is not served again: the namespace begins empty,
    and the space of its blocks is taken back as it is needed.
    """
    with Pool.attach(pool_file(folder, name)) as attached:
        digest = namespace_digest(attached.namespaces(), namespace)
        has_changed = attached.release_namespace(digest)
    if as_json:
        echo_json(_document(name, digest, is_quarantined=False, has_changed=has_changed))
    elif has_changed:
        click.echo(f"namespace {digest.hex()} begins anew, without what it held")
    else:
        click.echo(f"namespace {digest.hex()} was not in quarantine")


def _document(
    name: str, digest: bytes, *, is_quarantined: bool, has_changed: bool
) -> dict[str, object]:
    return {
        "name": name,
        "namespace": digest.hex(),
        "quarantined": is_quarantined,
        "changed": has_changed,
    }
