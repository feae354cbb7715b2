"""Chat requests to an OpenAI-compatible server, with the time to the first token.

Greedy, so that answers can be compared. Every read has a deadline.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvext.errors import KvextError

__all__ = ["Answer", "ChatClient", "EngineLost", "RequestRefused", "StreamedAnswer"]

_DATA = b"data: "
_DONE = b"[DONE]"
_OK = 200


@dataclass(eq=False)
class EngineLost(KvextError):
    """The connection broke before the answer was complete."""

    reason: str

    _says = "the engine went away before its answer was complete ({self.reason}); ask again"


@dataclass(eq=False)
class RequestRefused(KvextError):
    """The server answered with an error."""

    status: int
    body: str

    _says = "the server refused the request with status {self.status}: {self.body}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Attributes:
        text: What the model said.
        token_ids: The same as the engine sampled it.
        prompt_tokens: Length of the prompt, chat template included.
        kvext: The request's counts from `kv_transfer_params`, as JSON; empty without kvext.
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    kvext: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer that came token by token (vLLM sends no `kv_transfer_params` with those).

    Attributes:
        text: What the model said.
        token_ids: The same as the engine sampled it.
        prompt_tokens: Length of the prompt, chat template included.
        ttft_s: From just before the request was sent until the first token arrived.
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    ttft_s: float


class ChatClient:
    """Talks to one server on this machine; a connection for each request."""

    def __init__(self, port: int, *, read_deadline_s: float = 180.0) -> None:
        """Keep the address."""
        self._port = port
        self._read_deadline_s = read_deadline_s

    @property
    def port(self) -> int:
        """The engine's port."""
        return self._port

    def stream(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        *,
        ignore_eos: bool = False,
    ) -> StreamedAnswer:
        """Ask, and measure the time to the first token.

        Args:
            messages: The chat so far.
            max_tokens: The answer's length at most.
            ignore_eos: Whether the answer goes on to `max_tokens` in any case.

        Raises:
            EngineLost: The server died meanwhile.
            RequestRefused: The server answered with an error.
        """
        body = _chat_body(messages, max_tokens, ignore_eos=ignore_eos, is_streamed=True)
        begun_s = time.perf_counter()
        with _Exchange(self._port, "POST", "/v1/chat/completions", body, self._read_deadline_s) as (
            response
        ):
            return _read_stream(response, lambda: time.perf_counter() - begun_s)

    def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        *,
        ignore_eos: bool = False,
    ) -> Answer:
        """Ask for the whole answer at once, with kvext's counts; arguments as for `stream`.

        Raises:
            EngineLost: The server died meanwhile.
            RequestRefused: The server answered with an error.
        """
        body = _chat_body(messages, max_tokens, ignore_eos=ignore_eos, is_streamed=False)
        document = json.loads(self.fetch("POST", "/v1/chat/completions", body))
        choice = document["choices"][0]
        return Answer(
            choice["message"]["content"] or "",
            tuple(choice["token_ids"] or ()),
            document["usage"]["prompt_tokens"],
            (document.get("kv_transfer_params") or {}).get("kvext") or {},
        )

    def fetch(self, method: str, path: str, body: bytes = b"") -> str:
        """Any other exchange; returns the response's text.

        Raises:
            EngineLost: Nobody answered, or not to the end.
            RequestRefused: The server answered with an error.
        """
        with _Exchange(self._port, method, path, body, self._read_deadline_s) as response:
            return response.read().decode()


class _Exchange:
    """One request and its response; the faults of the connection leave as ours."""

    def __init__(
        self, port: int, method: str, path: str, body: bytes, read_deadline_s: float
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=read_deadline_s)
        self._request = (method, path, body)

    def __enter__(self) -> http.client.HTTPResponse:
        try:
            return self._open()
        except BaseException as error:
            self._close(error)
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._close(error)

    def _open(self) -> http.client.HTTPResponse:
        method, path, body = self._request
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        if response.status != _OK:
            raise RequestRefused(response.status, response.read().decode(errors="replace"))
        return response

    def _close(self, error: BaseException | None) -> None:
        self._connection.close()
        if isinstance(error, OSError | http.client.HTTPException):
            raise EngineLost(f"{type(error).__name__}: {error}") from error


def _chat_body(
    messages: Sequence[Mapping[str, str]], max_tokens: int, *, ignore_eos: bool, is_streamed: bool
) -> bytes:
    options = {"stream_options": {"include_usage": True}} if is_streamed else {}
    document = {
        "messages": [dict(message) for message in messages],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": ignore_eos,
        "return_token_ids": True,
        "stream": is_streamed,
        **options,
    }
    return json.dumps(document).encode()


def _read_stream(lines: Iterable[bytes], elapsed_s: Callable[[], float]) -> StreamedAnswer:
    text: list[str] = []
    token_ids: list[int] = []
    prompt_tokens = 0
    ttft_s = 0.0
    for event in _events(lines):
        for choice in event["choices"]:
            if choice.get("token_ids") and not token_ids:
                ttft_s = elapsed_s()
            token_ids += choice.get("token_ids") or ()
            text.append(choice["delta"].get("content") or "")
        prompt_tokens = (event.get("usage") or {}).get("prompt_tokens", prompt_tokens)
    return StreamedAnswer("".join(text), tuple(token_ids), prompt_tokens, ttft_s)


def _events(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The JSON documents of a stream of server-sent events; one without an end was cut off."""
    for line in lines:
        if not line.startswith(_DATA):
            continue
        payload = line.removeprefix(_DATA).strip()
        if payload == _DONE:
            return
        event: dict[str, Any] = json.loads(payload)
        if "error" in event:
            raise RequestRefused(_OK, json.dumps(event["error"]))
        yield event
    raise EngineLost("the stream ended early")
