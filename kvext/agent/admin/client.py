"""Asks an agent how it is, over its admin port."""

import http.client
import json
import re
from pathlib import Path
from typing import Any

from kvext.agent.settings import DEFAULT_PORT
from kvext.errors import AgentUnreachable
from kvext.pool import Pool

__all__ = ["LABEL", "fetch_stat"]

LABEL = re.compile(r"agent (\[[0-9a-fA-F:.]+\]|[0-9.]+):(\d{1,5})")
"""How an agent signs in the pool: where it answers."""

_DEADLINE_S = 5.0
_MOST_BYTES = 1 << 20
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to


def fetch_stat(path: Path, port: int | None) -> dict[str, Any]:
    """What `/stat` of the pool's agent says.

    Args:
        path: The pool's region.
        port: On loopback; None: where the agent says in the pool that it answers.

    Raises:
        PoolError: The pool cannot be read.
        AgentUnreachable: Nobody answers there, or something else does.
    """
    host, port = ("127.0.0.1", port) if port is not None else _signed(path)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=_DEADLINE_S)
    try:
        connection.request("GET", "/stat")
        document = json.loads(connection.getresponse().read(_MOST_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AgentUnreachable(url, str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if not isinstance(document, dict) or not isinstance(document.get("agent"), dict):
        raise AgentUnreachable(url, "what answers there is no agent")
    found = document["agent"].get("pool_path")
    if found != str(path):
        raise AgentUnreachable(url, f"the agent there looks after {found}")
    return document


def _signed(path: Path) -> tuple[str, int]:
    with Pool.attach(path) as pool:
        label = pool.stat().agent_label
    match = LABEL.fullmatch(label)
    if match is None:
        return "127.0.0.1", DEFAULT_PORT
    host = match[1].strip("[]")
    return _ANY.get(host, host), int(match[2])
