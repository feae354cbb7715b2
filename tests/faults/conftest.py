import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.faults.nursery import Nursery

NEW_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")


@cache
def refused(*namespace: str) -> str:
    """Why this host lets nobody make such a namespace; empty if it does."""
    tried = subprocess.run(
        [*namespace, "true"], capture_output=True, text=True, timeout=20, check=False
    )
    return tried.stderr.strip() if tried.returncode else ""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as plain:
        yield plain


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nursery, Nursery]]:
    """Two nurseries whose workers have the same process ids, each in its own namespace."""
    if reason := refused(*NEW_PID_NAMESPACE):
        pytest.skip(f"no PID namespaces here: {reason}")
    folder = tmp_path_factory.mktemp("twins")
    with (
        Nursery(folder, through=NEW_PID_NAMESPACE) as one,
        Nursery(folder, through=NEW_PID_NAMESPACE) as other,
    ):
        yield one, other


class Toll:
    """How many processes were killed and stopped, and where."""

    def __init__(self) -> None:
        self.killed: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    def count(self, where: str, number: signal.Signals) -> None:
        (self.stopped if number is signal.SIGSTOP else self.killed)[where] += 1

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"killed": self.killed, "stopped": self.stopped}, indent=1))

    def __str__(self) -> str:
        places = sorted({*self.killed, *self.stopped})
        lines = [
            f"  {place:28} {self.killed[place]:5} killed {self.stopped[place]:5} stopped"
            for place in places
        ]
        total = f"  {'':28} {self.killed.total():5} killed {self.stopped.total():5} stopped"
        return "\n".join([*lines, total])


@pytest.fixture(scope="session")
def toll() -> Toll:
    return Toll()
