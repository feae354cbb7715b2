"""`kvext doctor`: what on this host keeps engines from sharing a pool, or slows them down."""

from pathlib import Path

import click

from kvext.cli import doctor_view
from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.config import Config, load_config
from kvext.doctor import diagnose, read_host

__all__ = ["doctor"]


@click.command()
@click.option(
    "--pool-folder",
    default=Config().pool_folder,
    show_default=True,
    help="Folder of the pool's region.",
)
@click.option(
    "--pool-name", default=Config().pool_name, show_default=True, help="Name of the pool."
)
@click.option(
    "--pool-size",
    default=Config().pool_size,
    show_default=True,
    metavar="SIZE",
    help='Size that a pool still to be made shall have, such as "64GiB".',
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@json_option
@answering
@example(
    "kvext doctor",
    "kvext doctor --pool-size 64GiB",
    "kvext doctor --strict --json",
)
def doctor(
    pool_folder: str, pool_name: str, pool_size: str, *, strict: bool, as_json: bool
) -> None:
    """Examine this host and say what to mend, finding by finding.

    Looks at the software, the folder of shared memory and what is left over in it, memory and its
    limits, namespaces, cores and running engines. Changes nothing. Exits with 1 if there is an
    error: something that keeps engines from using the pool.
    """
    absolute = str(Path(pool_folder).absolute())
    options = {"pool_name": pool_name, "pool_folder": absolute, "pool_size": pool_size}
    config = load_config(options)
    host = read_host(Path(config.pool_folder), config.pool_name, config.pool_bytes)
    report = diagnose(host)
    if as_json:
        echo_json(report.as_dict())
    else:
        doctor_view.show_report(report)
    click.get_current_context().exit(report.exit_code(strict=strict))
