"""`kvext agent`: the process a host that makes a pool better, and how it is.

It runs in the foreground until SIGTERM or Ctrl-C; systemd, a DaemonSet or `kvext serve` starts it.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import click

from kvext.agent import (
    AGENT_POLICIES,
    DEFAULT_POLICY,
    DEFAULT_PORT,
    Agent,
    AgentSettings,
    Watermarks,
    populate,
)
from kvext.agent.admin.client import fetch_stat
from kvext.assembly import pool_path
from kvext.cli import agent_view
from kvext.cli.answer import answering, echo_json, example, json_option
from kvext.cli.progress import reserving_memory
from kvext.config import Config, load_config

__all__ = ["agent"]

_LONGEST_END_S = 0.9
_LOG_BYTES = 1 << 20


def _of_pool(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--folder",
            default=Config().pool_folder,
            show_default=True,
            help="Folder of the pool's region.",
        ),
        click.option(
            "--name", default=Config().pool_name, show_default=True, help="Name of the pool."
        ),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_of_pool
@click.option(
    "--size",
    default=Config().pool_size,
    show_default=True,
    help='Memory of the pool if it is missing, such as "64GiB"; "auto" takes half of what the '
    "folder has free.",
)
@click.option(
    "--low-watermark",
    type=float,
    default=Watermarks().low,
    show_default=True,
    metavar="SHARE",
    help="Make room when a smaller share of the pool is free.",
)
@click.option(
    "--high-watermark",
    type=float,
    default=Watermarks().high,
    show_default=True,
    metavar="SHARE",
    help="Make room until this share of the pool is free.",
)
@click.option(
    "--policy",
    default=DEFAULT_POLICY,
    show_default=True,
    metavar="NAME",
    help=f"What chooses the blocks that go: {', '.join(AGENT_POLICIES)}.",
)
@click.option(
    "--interval",
    type=float,
    default=AgentSettings().interval_s,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at which blocks were used; free space is watched all the time.",
)
@click.option(
    "--host", default=AgentSettings().host, show_default=True, help="Address of the admin port."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The admin port; 0 takes any that is free and prints it.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Holds the token that orders over HTTP must bring; without it none are taken.",
)
@click.option("--companion-of", type=int, hidden=True, help="The engine that it was started for.")
@click.option("--log-file", type=click.Path(path_type=Path), hidden=True)
@json_option
@click.pass_context
@answering
@example(
    "kvext agent --size 64GiB",
    "kvext agent --low-watermark 0.01 --high-watermark 0.03 --policy arc",
    "kvext agent --port 0 --token-file admin.token --json",
    "kvext agent status",
)
def agent(context: click.Context, *, as_json: bool, **options: Any) -> None:
    """Look after one pool of this host: keep room in it, and give back what the dead held.

    Makes the pool if it is missing. Engines never wait for the agent and never need it. It keeps
    a share of the pool free, so that a store finds room, and chooses what goes by a policy that
    knows more than an engine may spend time on. Several may run: one does the work, the others
    take over when it dies or hangs. `kvext serve` starts one for you. With --json each event is
    one JSON line.
    """
    if context.invoked_subcommand is not None:
        return
    settings = _settings(options)
    tell = _announcing(as_json=as_json)
    _log_to(options["log_file"])
    if settings.engine_pid is None:
        _populate(settings, tell, shown=not as_json)
    stop = threading.Event()
    _end_on_signals(stop)
    why = Agent(settings, tell).run(stop)
    tell("ended", {"why": why})
    logging.getLogger(__name__).info("the agent has ended: %s", why)


def _settings(options: Mapping[str, Any]) -> AgentSettings:
    config = load_config(
        {
            "pool_name": options["name"],
            "pool_folder": str(Path(options["folder"]).absolute()),
            "pool_size": options["size"],
        }
    )
    settings = AgentSettings(
        config=config,
        watermarks=Watermarks(options["low_watermark"], options["high_watermark"]),
        policy=options["policy"],
        host=options["host"],
        port=options["port"],
        token_file=options["token_file"],
        interval_s=options["interval"],
        engine_pid=options["companion_of"],
    )
    settings.check()
    return settings


def _announcing(*, as_json: bool) -> Callable[[str, Mapping[str, Any]], None]:
    def tell(event: str, facts: Mapping[str, Any]) -> None:
        if as_json:
            line = json.dumps({"event": event, **facts}, default=str)
        else:
            line = agent_view.sentence(event, facts)
        # A reader that has gone must not end the agent.
        try:
            click.echo(line)
            sys.stdout.flush()
        except OSError:
            logging.getLogger(__name__).debug("nobody reads: %s", line)

    return tell


def _log_to(path: Path | None) -> None:
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1)
        except OSError:
            handler = logging.NullHandler()
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(handlers=[handler], level=logging.INFO, format=form)


def _populate(
    settings: AgentSettings, tell: Callable[[str, Mapping[str, Any]], None], *, shown: bool
) -> None:
    # As Ctrl-C does: a creation that is broken off gives its memory back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with reserving_memory(shown=shown) as on_progress:
        num_bytes = populate(settings.config, on_progress)
    if num_bytes:
        path = pool_path(settings.config)
        tell("created", {"path": str(path), "region_bytes": num_bytes})


def _end_on_signals(stop: threading.Event) -> None:
    def end(*_: object) -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()
        # Whatever is under way: all that counts lies in the pool, which outlives us.
        cut = threading.Timer(_LONGEST_END_S, os._exit, (0,))
        cut.daemon = True
        cut.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


@agent.command()
@_of_pool
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The agent's admin port, if the pool does not tell it.",
)
@json_option
@answering
@example(
    "kvext agent status",
    "kvext agent status --name tests --folder /tmp --json",
)
def status(*, name: str, folder: str, port: int | None, as_json: bool) -> None:
    """Show whether an agent looks after the pool, and what it has done.

    Exits with 1 if none answers.
    """
    config = load_config({"pool_name": name, "pool_folder": str(Path(folder).absolute())})
    document = fetch_stat(pool_path(config), port)
    if as_json:
        echo_json(document)
    else:
        agent_view.show_status(name, document)
