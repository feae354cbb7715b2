"""A router that follows vLLM's KV events sees what came to the pool and what left it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.engines import BLOCK_TOKENS, Engine, Engines, prompt
from tests.engine.pools import attached


class Router:
    """Subscribes to one engine's publisher."""

    def __init__(self, endpoint: str) -> None:
        import zmq  # noqa: PLC0415 - comes with the engine
        from vllm.distributed.kv_events import KVEventBatch  # noqa: PLC0415

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(endpoint)
        self._decoder = msgspec.msgpack.Decoder(KVEventBatch)

    def events(self, wait_s: float = 0.3) -> Iterator[Any]:
        """Those that have come, until none comes for a while."""
        while self._socket.poll(int(wait_s * 1000)):
            _, _, payload = self._socket.recv_multipart()
            yield from self._decoder.decode(payload).events

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


@pytest.fixture
def engine(
    engines: Engines, model: Path, pool_options: dict[str, Any], endpoint: str
) -> Iterator[Engine]:
    from vllm.config import KVEventsConfig  # noqa: PLC0415

    engines.close()
    config = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=endpoint)
    engine = Engine(model, pool_options, kv_events_config=config)
    yield engine
    engine.close()


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/events"


@pytest.fixture
def router(engine: Engine, endpoint: str) -> Iterator[Router]:
    """A subscriber that is known to be connected."""
    router = Router(endpoint)
    for seed in range(700, 800):
        engine.ask(prompt(seed, 40))
        if list(router.events()):
            break
    yield router
    router.close()


def of_pool(events: list[Any], kind: str) -> list[Any]:
    return [
        event for event in events if type(event).__name__ == kind and event.ownership == "kvext"
    ]


def removed_after(engine: Engine, router: Router, expected: set[Any]) -> set[Any]:
    """Removals are found within a bounded number of steps, so make some."""
    gone: set[Any] = set()
    deadline_s = time.monotonic() + 30
    while not expected <= gone and time.monotonic() < deadline_s:
        engine.ask(prompt(800, 20))
        for event in of_pool(list(router.events(0.05)), "BlockRemoved"):
            gone.update(event.block_hashes)
    return gone


def test_router_sees_blocks_that_the_pool_stored_and_that_it_dropped(
    engine: Engine, router: Router, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(790, 200)
    engine.ask(tokens)
    events = list(router.events())
    stored = of_pool(events, "BlockStored")
    hashes = [value for event in stored for value in event.block_hashes]
    assert [token for event in stored for token in event.token_ids] == tokens[:192]
    assert {(event.medium, event.block_size) for event in stored} == {("CPU", BLOCK_TOKENS)}
    assert stored[0].parent_block_hash is None
    own = [event for event in events if type(event).__name__ == "BlockStored"]
    own_hashes = [value for event in own if event.ownership is None for value in event.block_hashes]
    assert set(hashes) <= set(own_hashes), "routers match them with the prefix cache's"
    engine.forget_local()
    engine.ask(tokens)
    assert not of_pool(list(router.events()), "BlockStored"), "each block is announced once"
    with attached(pool_options) as pool:
        assert pool.clear().num_dropped >= len(hashes)
    assert set(hashes) <= removed_after(engine, router, set(hashes))


def test_blocks_that_cannot_be_named_in_events_are_stored_all_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvext.vllm.kv_events import PoolEvents  # noqa: PLC0415 - needs the engine

    def fail(*_: object) -> None:
        raise TypeError

    monkeypatch.setattr(PoolEvents, "offer", fail)
    tokens = prompt(791, 200)
    engine.ask(tokens)
    engine.forget_local()
    assert engine.ask(tokens).kvext["pool_tokens"] == 192
