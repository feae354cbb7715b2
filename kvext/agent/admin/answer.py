"""One request in, one answer out: everything about HTTP that needs no socket."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kvext.agent.admin.guard import host_is_trusted, is_admin, read_token
from kvext.agent.admin.metrics import metrics_text
from kvext.agent.admin.orders import ORDERS, command_of
from kvext.agent.commands import Commands
from kvext.agent.duties import Duties
from kvext.agent.view import View
from kvext.errors import AgentBusy, InvalidOption, KvextError, PoolMissing

__all__ = ["MOST_BODY_BYTES", "Answer", "Request", "Router"]

MOST_BODY_BYTES = 4096
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, as it came; `headers` by their names in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send."""

    status: HTTPStatus
    body: bytes
    content_type: str = _JSON

    @classmethod
    def of(cls, document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> "Answer":
        """A JSON document."""
        return cls(status, json.dumps(document, default=str).encode() + b"\n")

    @classmethod
    def refusal(cls, status: HTTPStatus, message: str) -> "Answer":
        """Why not."""
        return cls.of({"error": status.phrase, "message": message}, status)


class Router:
    """Answers requests about one agent."""

    def __init__(
        self, view: View, commands: Commands, duties: Duties, token_file: Path | None
    ) -> None:
        """Take what answers need."""
        self._commands = commands
        self._duties = duties
        self._token_file = token_file
        self._view = view
        self._pages: dict[str, Callable[[], Answer]] = {
            "/": self._index,
            "/health": self._health,
            "/stat": lambda: Answer.of(view.stat()),
            "/metrics": self._metrics,
        }

    def answer(self, request: Request) -> Answer:
        """The answer to any request; never raises one of kvext's errors."""
        if not host_is_trusted(request.headers.get("host")):
            message = "ask by an IP address or as localhost: another name may be a trap"
            return Answer.refusal(HTTPStatus.MISDIRECTED_REQUEST, message)
        path = request.path.partition("?")[0]
        if request.method in ("GET", "HEAD") and path in self._pages:
            return self._pages[path]()
        if request.method == "POST" and path in ORDERS:
            return self._refusal(request) or self._obey(path, request.body)
        if path in self._pages or path in ORDERS:
            method = "GET" if path in self._pages else "POST"
            return Answer.refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"use {method}")
        return Answer.refusal(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._known())}")

    def _known(self) -> list[str]:
        return [*(f"GET {path}" for path in self._pages), *(f"POST {path}" for path in ORDERS)]

    def _index(self) -> Answer:
        return Answer.of({"what": "the agent of a kvext pool", "paths": self._known()})

    def _health(self) -> Answer:
        document = self._view.health()
        healthy = document["healthy"]
        return Answer.of(document, HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)

    def _metrics(self) -> Answer:
        text = metrics_text(self._view.agent(), self._view.pool())
        return Answer(HTTPStatus.OK, text.encode(), _PROMETHEUS)

    def _refusal(self, request: Request) -> Answer | None:
        """Why the request may not change anything; None if it may."""
        if self._token_file is None:
            message = "this agent takes no orders: start it with --token-file"
            return Answer.refusal(HTTPStatus.FORBIDDEN, message)
        try:
            token = read_token(self._token_file)
        except InvalidOption:
            message = "the agent's token file cannot be used; see its log"
            return Answer.refusal(HTTPStatus.FORBIDDEN, message)
        if is_admin(request.headers.get("authorization"), token):
            return None
        return Answer.refusal(HTTPStatus.UNAUTHORIZED, "send Authorization: Bearer TOKEN")

    def _obey(self, path: str, body: bytes) -> Answer:
        try:
            command = command_of(path, body, self._duties)
            return Answer.of(self._commands.ask(command))
        except InvalidOption as error:
            status = HTTPStatus.BAD_REQUEST
            return Answer.of(error.as_dict(), status)
        except (AgentBusy, PoolMissing) as error:
            return Answer.of(error.as_dict(), HTTPStatus.SERVICE_UNAVAILABLE)
        except KvextError as error:
            return Answer.of(error.as_dict(), HTTPStatus.CONFLICT)
