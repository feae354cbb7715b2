"""`kvext pool fsck | fence`: is it sound, and what of it may still be read?"""

from collections import Counter
from dataclasses import asdict

import click
from rich.markup import escape
from rich.table import Table

from kvext.cli import pool_view
from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.cli.pool_options import model_digest, named, pool_file
from kvext.errors import InvalidOption
from kvext.pool import FsckReport, Pool

__all__ = ["fence", "fsck"]

_MOST_SHOWN = 20


@click.command()
@named
@click.option("--repair", is_flag=True, help="Mend what is wrong; what cannot be trusted goes.")
@click.option(
    "--verify-data",
    is_flag=True,
    help="Also compare every block with its checksum; takes as long as reading the pool.",
)
@json_option
@answering
@example(
    "kvext pool fsck",
    "kvext pool fsck --verify-data --repair",
)
def fsck(name: str, folder: str, *, repair: bool, verify_data: bool, as_json: bool) -> None:
    """Check every invariant of pool NAME, under running engines or without any.

    Exits with 1 if anything is wrong that was not mended. What a process leaves that was killed is
    put in order first, as any process would do, and is not wrong.
    """
    with Pool.attach(pool_file(folder, name)) as attached:
        report = attached.fsck(repair=repair, verify_data=verify_data)
    is_sound = report.num_repaired == len(report.problems)
    if as_json:
        echo_json({"name": name, "is_sound": is_sound, **asdict(report)})
    else:
        _show(name, report)
    if not is_sound:
        click.get_current_context().exit(1)


def _show(name: str, report: FsckReport) -> None:
    if report.is_clean:
        click.echo(f"pool {name!r} is sound: {report.num_records:,} blocks checked")
        return
    table = Table(box=None)
    for column in ("problem", "where", "what"):
        table.add_column(column)
    for problem in report.problems[:_MOST_SHOWN]:
        table.add_row(problem.kind.value, escape(problem.place), escape(problem.detail))
    pool_view.stdout().print(table)
    tally = Counter(problem.kind.value for problem in report.problems)
    counted = ", ".join(f"{kind} {count:,}" for kind, count in tally.items())
    click.echo(f"{len(report.problems):,} problems ({counted}), {report.num_repaired:,} mended")
    if report.num_repaired < len(report.problems):
        click.echo(f"mend them with: kvext pool fsck {name} --repair")


@click.command()
@named
@click.option("--model", metavar="HEX", help="Fence what is stored under this model.")
@click.option("--all-but", metavar="HEX", help="Fence what is stored under any other model.")
@json_option
@answering
@example(
    "kvext pool fence --model 3fa9c1",
    "kvext pool fence --all-but 77ab02",
)
def fence(name: str, folder: str, *, model: str | None, all_but: str | None, as_json: bool) -> None:
    """Make what pool NAME holds of a model unreachable, at once and for every engine.

    HEX is the digest of the model's weights, or its first digits; `kvext pool stat` shows it. The
    space is taken back as it is needed. An engine that still runs the model begins anew.
    """
    if (model is None) == (all_but is None):
        raise InvalidOption("--model", model or "", "give either --model or --all-but")
    option = "--model" if all_but is None else "--all-but"
    with Pool.attach(pool_file(folder, name)) as attached:
        digest = model_digest(option, attached.namespaces(), all_but or model or "")
        report = attached.fence(digest) if all_but is None else attached.fence_all_but(digest)
    if as_json:
        echo_json({"name": name, **asdict(report)})
    else:
        click.echo(f"fenced {report.num_records:,} blocks of {report.num_namespaces:,} namespaces")
