"""The admin port over real sockets."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvext.agent import AgentSettings
from kvext.agent.admin import server
from kvext.agent.admin.metrics import METRICS
from kvext.pool import Pool
from tests.agent.admin.conftest import TOKEN, Port
from tests.pool.engine_memory import NAMESPACE, SHAPE, EngineMemory, key_of

_ADMIN = {"Authorization": f"Bearer {TOKEN}"}
_WAIT_S = 20


def _ask(
    port: Port,
    path: str,
    method: str = "GET",
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=_WAIT_S)
    sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, sent, dict(headers or {}))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    is_json = answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(text) if is_json and text else text


def _order(port: Port, pool: Pool, path: str, body: object = None) -> tuple[int, Any]:
    """An order of the admin, with somebody in the loop's place."""
    done = threading.Event()

    def serve() -> None:
        while not done.wait(0.01):
            port.commands.serve(port.attachment.pool or pool)

    loop = threading.Thread(target=serve)
    loop.start()
    try:
        return _ask(port, path, "POST", body, _ADMIN)
    finally:
        done.set()
        loop.join(_WAIT_S)


def _store(pool: Pool, count: int) -> None:
    keys = b"".join(key_of(number) for number in range(count))
    pool.store(keys, SHAPE, NAMESPACE, EngineMemory().pages, [0] * count)


def test_healthy_agent_answers_200_and_an_unhealthy_one_503_with_reasons(port: Port) -> None:
    assert _ask(port, "/health") == (200, {"healthy": True, "role": "idle", "reasons": []})
    port.health.attempt("look", lambda: 1 // 0)
    status, document = _ask(port, "/health")
    assert status == 503
    assert document["reasons"][0]["error"].startswith("ZeroDivisionError")


def test_stat_tells_of_the_agent_and_of_its_pool(port: Port, pool: Pool) -> None:
    _store(pool, 3)
    status, document = _ask(port, "/stat")
    assert status == 200
    assert document["pool"]["num_committed"] == 3
    assert document["agent"]["policy"] == "insured"
    assert document["agent"]["watermarks"] == {"low": 0.02, "high": 0.05}


def test_stat_without_a_pool_still_tells_of_the_agent(port: Port) -> None:
    port.attachment.close()
    status, document = _ask(port, "/stat")
    assert (status, document["pool"]) == (200, None)


def test_metrics_are_prometheus_text_and_each_is_explained(port: Port, pool: Pool) -> None:
    _store(pool, 2)
    port.health.attempt('a "step"\n', lambda: 1 // 0)
    status, text = _ask(port, "/metrics")
    assert status == 200
    line = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{\w+="([^"\\\n]|\\.)*"\})? -?\d+(\.\d+)?)')
    assert [row for row in text.splitlines() if not line.fullmatch(row)] == []
    assert {name for name in METRICS if f"\n{name}" in f"\n{text}"} == set(METRICS)
    assert 'kvext_pool_events_total{event="stores"} 2' in text
    assert 'kvext_agent_failures_total{step="a \\"step\\"\\n"} 1' in text


def test_orders_without_the_token_are_refused(port: Port, pool: Pool) -> None:
    _store(pool, 2)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        assert _ask(port, "/reclaim", "POST", {"num_records": 2}, headers)[0] == 401
    assert pool.stat().num_committed == 2


def test_agent_without_a_token_file_takes_no_orders(settings: AgentSettings, region: Path) -> None:
    port = Port(replace(settings, token_file=None), region)
    assert _ask(port, "/reap", "POST", {}, _ADMIN)[0] == 403
    port.server.close()


def test_admin_reclaims_reaps_and_switches_off(port: Port, pool: Pool) -> None:
    _store(pool, 5)
    assert _order(port, pool, "/reclaim", {"num_records": 2})[1]["num_reclaimed"] == 2
    assert pool.stat().num_committed == 3
    assert _order(port, pool, "/reclaim")[1]["num_reclaimed"] == 0
    assert _order(port, pool, "/reap")[1] == {"num_dead": 0, "num_hung": 0, "num_freed": 0}
    assert _order(port, pool, "/bypass", {"on": True}) == (200, {"bypassed": True})
    assert pool.bypassed


def test_admin_fences_a_model(port: Port, pool: Pool) -> None:
    model = b"\x0a" * 32
    pool.name_namespace(NAMESPACE, "m", model)
    _store(pool, 4)
    assert _order(port, pool, "/fence", {"all_but": model.hex()})[1]["num_records"] == 0
    assert _order(port, pool, "/fence", {"model": model.hex()})[1]["num_records"] == 4
    assert pool.lookup(key_of(1), SHAPE) == b"\0"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/reclaim", {"num_records": 0}),
        ("/reclaim", {"num_records": "all"}),
        ("/reclaim", {"num_record": 3}),
        ("/reclaim", b"\xff{"),
        ("/reap", [1]),
        ("/bypass", {}),
        ("/fence", {}),
        ("/fence", {"model": "ABC"}),
        ("/fence", {"model": "0a" * 32, "all_but": "0a" * 32}),
    ],
)
def test_bodies_that_mean_nothing_change_nothing(
    port: Port, pool: Pool, path: str, body: object
) -> None:
    _store(pool, 3)
    status, document = _order(port, pool, path, body)
    assert (status, document["error"]) == (400, "InvalidOption")
    assert pool.stat().num_committed == 3


def test_stuck_loop_costs_an_answer(port: Port) -> None:
    status, document = _ask(port, "/reap", "POST", {}, _ADMIN)
    assert (status, document["error"]) == (503, "AgentBusy")


def test_page_that_came_by_another_name_reads_nothing(port: Port) -> None:
    for path in ("/stat", "/health", "/metrics", "/"):
        assert _ask(port, path, headers={"Host": "rebound.example"})[0] == 421
    assert _ask(port, "/reap", "POST", {}, {**_ADMIN, "Host": "rebound.example"})[0] == 421


def test_what_is_not_there_or_asked_for_in_the_wrong_way_says_so(port: Port) -> None:
    status, document = _ask(port, "/nothing")
    assert status == 404
    assert "GET /health" in document["message"]
    assert _ask(port, "/reap")[0] == 405
    assert _ask(port, "/stat", "POST", {}, _ADMIN)[0] == 405
    assert _ask(port, "/health?verbose=1")[0] == 200
    assert _ask(port, "/health", "HEAD") == (200, "")
    assert "GET /stat" in _ask(port, "/")[1]["paths"]


def test_large_bodies_and_bodies_without_a_length_are_not_read(port: Port) -> None:
    assert _ask(port, "/reclaim", "POST", b" " * 5000, _ADMIN)[0] == 413
    lies = {**_ADMIN, "Content-Length": "9" * 400}
    assert _ask(port, "/reclaim", "POST", b"", lies)[0] == 413
    chunked = {**_ADMIN, "Transfer-Encoding": "chunked"}
    assert _ask(port, "/reclaim", "POST", b"0\r\n\r\n", chunked)[0] == 411


def test_client_that_dribbles_is_cut_off_at_the_deadline(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_DEADLINE_S", 0.3)
    slow = socket.create_connection(("127.0.0.1", port.number), timeout=_WAIT_S)
    slow.sendall(b"GET /stat HTTP/1.1\r\n")
    begun_s = time.monotonic()
    assert slow.recv(100) == b""
    assert time.monotonic() - begun_s < 10
    slow.close()


def test_many_connections_get_no_thread_each(port: Port) -> None:
    idle = [
        socket.create_connection(("127.0.0.1", port.number), timeout=_WAIT_S) for _ in range(40)
    ]
    refused = 0
    for one in idle[server.MOST_CONNECTIONS :]:
        refused += one.recv(10) == b""
    assert refused == 40 - server.MOST_CONNECTIONS
    assert threading.active_count() < 2 * server.MOST_CONNECTIONS + 20
    for one in idle:
        one.close()


def test_taken_port_is_an_error_of_opening(port: Port, settings: AgentSettings) -> None:
    with pytest.raises(OSError, match="in use"):
        Port(replace(settings, port=port.number), port.attachment.path)
