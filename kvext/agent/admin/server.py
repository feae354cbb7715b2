"""The admin port's sockets: few connections, small requests, a deadline for each.

Built on the standard library's server, whose requests are bounded (lines of 64 KiB, 100 headers)
but not its time: a client that sends a byte a minute is cut off here.
"""

import contextlib
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from kvext.agent.admin.answer import MOST_BODY_BYTES, Answer, Request, Router
from kvext.agent.admin.guard import read_token
from kvext.agent.commands import Commands
from kvext.agent.duties import Duties
from kvext.agent.settings import AgentSettings
from kvext.agent.view import View

__all__ = ["AdminServer"]

_logger = logging.getLogger(__name__)

CONNECTION_DEADLINE_S = 15.0
MOST_CONNECTIONS = 16
_POLL_S = 0.1


class AdminServer:
    """The port, from `open` to `close`."""

    def __init__(
        self, settings: AgentSettings, view: View, commands: Commands, duties: Duties
    ) -> None:
        """Describe it."""
        self._settings = settings
        self._router = Router(view, commands, duties, settings.token_file)
        self._server: _Server | None = None

    @property
    def is_open(self) -> bool:
        """Whether it serves."""
        return self._server is not None

    @property
    def address(self) -> str:
        """Host and port that it serves on, or would."""
        port = self._settings.port if self._server is None else self._server.server_address[1]
        host = self._settings.host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"http://{self.address}"

    def open(self) -> None:
        """Take the port and serve on threads of its own.

        Raises:
            OSError: The port is taken, or is not ours to take.
            InvalidOption: The token's file cannot be used.
        """
        if self._settings.token_file is not None:
            read_token(self._settings.token_file)
        server = self._bind()
        threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="admin port", daemon=True
        ).start()
        self._server = server

    def _bind(self) -> "_Server":
        host, port = self._settings.host, self._settings.port
        try:
            return _Server((host, port), self._router)
        except OSError:
            # Nobody has asked for this port: an engine was started, and its pool has an agent.
            if self._settings.engine_pid is None or port == 0:
                raise
            return _Server((host, 0), self._router)

    def close(self) -> None:
        """Stop listening; answers under way may be cut off."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4 * MOST_CONNECTIONS
    # A thread of a slow client must not keep the agent from ending.
    block_on_close = False

    def __init__(self, address: tuple[str, int], router: Router) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.router = router
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # type: ignore[explicit-override]
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # type: ignore[explicit-override]
        cut = threading.Timer(CONNECTION_DEADLINE_S, _cut_off, (request,))
        cut.daemon = True
        cut.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cut.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # type: ignore[explicit-override]
        del request
        _logger.debug("a request of %s to the admin port failed", client_address)


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kvext"
    sys_version = ""
    timeout: ClassVar[float] = CONNECTION_DEADLINE_S

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer()

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        refusal, body = self._read_body(headers)
        if refusal is None:
            refusal = self.server.router.answer(Request(self.command, self.path, headers, body))
        self._send(refusal)

    def _read_body(self, headers: dict[str, str]) -> tuple[Answer | None, bytes]:
        text = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not (text.isascii() and text.isdigit()):
            return Answer.refusal(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length"), b""
        if len(text) > len(str(MOST_BODY_BYTES)) or int(text) > MOST_BODY_BYTES:
            message = f"send at most {MOST_BODY_BYTES} bytes"
            return Answer.refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message), b""
        return None, self.rfile.read(int(text))

    def _send(self, answer: Answer) -> None:
        self.close_connection = True
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override] # noqa: A002 - the base class's name
        _logger.debug("admin port: %s", format % args)
