"""`kvext pool`: make a pool, look at it, switch it off, empty it, remove it.

Every command attaches as an observer: it takes no place in the process table and leaves the
geometry to the first engine.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kvext.agent.attachment import num_engines
from kvext.assembly import automatic_pool_bytes, create_pool, pool_path
from kvext.cli import pool_view
from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.cli.pool_care import fence, fsck
from kvext.cli.pool_options import in_folder, named, namespace_digest, pool_config, pool_file
from kvext.cli.pool_quarantine import quarantine, release
from kvext.cli.progress import reserving_memory
from kvext.config import format_bytes
from kvext.cxl import find_regions, region_name, remove_region
from kvext.errors import (
    PoolBusy,
    PoolDamaged,
    PoolError,
    PoolFolderMissing,
    PoolMissing,
    PoolVersionMismatch,
)
from kvext.pool import NamespaceUse, Pool, PoolStat

__all__ = ["pool"]


@click.group()
@example(
    "kvext pool create --size 8GiB",
    "kvext pool stat",
)
def pool() -> None:
    """Make, inspect, check, fence, switch off, empty and remove pools of KV blocks.

    NAME is "default" unless you say otherwise; engines find a pool by the same name and folder.
    """


pool.add_command(fsck)
pool.add_command(fence)
pool.add_command(quarantine)
pool.add_command(release)


@pool.command()
@named
@click.option(
    "--size",
    default="auto",
    show_default=True,
    help='Memory to reserve, such as "64GiB"; "auto" takes half of what the folder has free.',
)
@json_option
@answering
@example(
    "kvext pool create --size 64GiB",
    "kvext pool create tests --size 512MiB --folder /tmp --json",
)
def create(name: str, folder: str, size: str, *, as_json: bool) -> None:
    """Reserve the memory of pool NAME now, with progress.

    Engines make a missing pool themselves; do it beforehand where the memory must not be charged
    to an engine's container, or where an engine should not wait for it.
    """
    config = pool_config(folder, name, size)
    path = pool_path(config)
    if not path.parent.is_dir():
        raise PoolFolderMissing(str(path))
    num_bytes = config.pool_bytes or automatic_pool_bytes(path.parent)
    with reserving_memory(shown=not as_json) as on_progress:
        create_pool(path.parent, name, num_bytes, on_progress=on_progress)
    if as_json:
        echo_json({"name": name, "path": path, "region_bytes": num_bytes})
    else:
        click.echo(f"created pool {name!r} of {format_bytes(num_bytes)} at {path}")


@pool.command()
@named
@json_option
@answering
@example(
    "kvext pool stat",
    "kvext pool stat tests --folder /tmp --json",
)
def stat(name: str, folder: str, *, as_json: bool) -> None:
    """Show what pool NAME holds, who is attached and what happened since its creation."""
    with Pool.attach(pool_file(folder, name)) as attached:
        figures, uses = attached.stat(), attached.namespaces()
    if as_json:
        echo_json(_stat_document(name, figures, uses))
    else:
        pool_view.show_stat(name, figures, uses)


def _stat_document(name: str, figures: PoolStat, uses: list[NamespaceUse]) -> dict[str, Any]:
    return {
        "name": name,
        **asdict(figures),
        "capacity_bytes": figures.capacity_bytes,
        "namespaces": [{**asdict(use), "held_bytes": use.held_bytes} for use in uses],
    }


@pool.command()
@in_folder
@json_option
@answering
@example(
    "kvext pool ls",
    "kvext pool ls --folder /tmp --json",
)
def ls(folder: str, *, as_json: bool) -> None:
    """List the pools in a folder; one that cannot be read is listed with the reason."""
    where = Path(folder).absolute()
    found: list[tuple[str, PoolStat | PoolError]] = []
    for path in find_regions(where):
        name = region_name(path)
        try:
            with Pool.attach(path) as attached:
                found.append((name, attached.stat()))
        except PoolError as error:
            found.append((name, error))
    if as_json:
        echo_json({"folder": where, "pools": [_ls_entry(*entry) for entry in found]})
    else:
        pool_view.show_list(str(where), found)


def _ls_entry(name: str, figures: PoolStat | PoolError) -> dict[str, Any]:
    if isinstance(figures, PoolError):
        return {"name": name, **figures.as_dict()}
    return {
        "name": name,
        "path": figures.path,
        "region_bytes": figures.region_bytes,
        "capacity_bytes": figures.capacity_bytes,
        "num_committed": figures.num_committed,
        "committed_bytes": figures.committed_bytes,
        "num_attached": len(figures.processes),
    }


@pool.command()
@named
@click.option(
    "--namespace",
    metavar="HEX",
    help="Drop only this namespace's blocks; the first digits are enough (see `stat`).",
)
@json_option
@answering
@example(
    "kvext pool clear",
    "kvext pool clear --namespace 3fa9c1",
)
def clear(name: str, folder: str, namespace: str | None, *, as_json: bool) -> None:
    """Drop the blocks of pool NAME; engines go on and compute what they miss.

    Blocks that an engine is using stay until they are evicted.
    """
    with Pool.attach(pool_file(folder, name)) as attached:
        digest = (
            namespace_digest(attached.namespaces(), namespace) if namespace is not None else None
        )
        report = attached.clear(digest)
    if as_json:
        echo_json({"name": name, **asdict(report)})
    else:
        click.echo(f"dropped {report.num_dropped} blocks, kept {report.num_kept} in use")


@pool.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@named
@json_option
@answering
@example(
    "kvext pool bypass on",
    "kvext pool bypass off tests --folder /tmp --json",
)
def bypass(switch: str, name: str, folder: str, *, as_json: bool) -> None:
    """Switch pool NAME off, or on again, under running engines.

    While the bypass is on, every engine computes as if it had no pool, from its next request on.
    The pool keeps its blocks, and they are found again once it is off.
    """
    with Pool.attach(pool_file(folder, name)) as attached:
        attached.set_bypass(switch == "on")
    if as_json:
        echo_json({"name": name, "bypassed": switch == "on"})
    elif switch == "on":
        click.echo(f"pool {name!r} is bypassed: engines neither load from it nor store into it")
    else:
        click.echo(f"pool {name!r} is in use again")


@pool.command()
@named
@click.option("--force", is_flag=True, help="Remove it although processes are attached.")
@json_option
@answering
@example(
    "kvext pool rm",
    "kvext pool rm tests --folder /tmp --force",
)
def rm(name: str, folder: str, *, force: bool, as_json: bool) -> None:
    """Remove pool NAME and give its memory back.

    Refused while engines are attached. With --force they keep the memory until they end, and
    engines that start afterwards share another pool.
    """
    path = pool_file(folder, name)
    if not path.exists():
        raise PoolMissing(str(path))
    num_attached = 0 if force else _num_attached(path)
    if num_attached:
        raise PoolBusy(str(path), num_attached)
    remove_region(path)
    if as_json:
        echo_json({"name": name, "path": path, "removed": True})
    else:
        click.echo(f"removed pool {name!r} at {path}")


def _num_attached(path: Path) -> int:
    """Engines attached; none where the region is no pool that this kvext could have attached.

    An agent lets go of a pool that is removed, and does not count.
    """
    try:
        with Pool.attach(path) as attached:
            return num_engines(attached.stat())
    except (PoolDamaged, PoolVersionMismatch):
        return 0
