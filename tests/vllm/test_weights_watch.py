"""Every way in which vLLM changes weights at run time is heard of before it happens."""

import asyncio
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kvext.connector.edge import Edge
from kvext.vllm.compat import vllm_release
from kvext.vllm.weights_watch import HARMLESS_CALLS, Reload, WeightsWatch

pytest.importorskip("vllm", reason="needs the engine's package")

_CHANGES = (
    "apply_model",
    "finish_weight_update",
    "init_weight_transfer_engine",
    "load_model",
    "reload_weights",
    "reset_weights",
    "start_draft_weight_update",
    "start_weight_update",
    "update_config",
    "update_weights",
    "a_method_of_a_worker_extension",
)


class Executor:
    """Notes what reaches vLLM's workers, in one list with what the watch tells."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_sleeping = False

    def collective_rpc(self, method: Any, *_: Any) -> list[None]:
        self.seen.append(f"call {getattr(method, '__name__', method)}")
        return [None]

    def sleep(self, level: int) -> None:
        self.seen.append(f"sleep {level}")

    def wake_up(self, tags: list[str] | None) -> None:
        self.seen.append(f"wake_up {tags}")


class Engine:
    """vLLM's own `EngineCore` with only an executor in it."""

    def __init__(self) -> None:
        from vllm.v1.engine.core import EngineCore  # noqa: PLC0415 - takes seconds

        self.executor = Executor()
        self.core: Any = EngineCore.__new__(EngineCore)
        self.core.model_executor = self.executor
        self.core.pause_scheduler = lambda **_: None
        self.core.resume_scheduler = lambda: None
        self.watch = WeightsWatch(Edge(), self._before, self._reloaded)

    def _before(self, what: str, can_return: bool) -> None:  # noqa: FBT001 - as the watch calls it
        self.executor.seen.append(f"{what} may come back" if can_return else f"{what} is lost")

    def _reloaded(self, reload: Reload) -> None:
        self.executor.seen.append(f"reloaded {reload.path}")


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    assert made.watch.open()
    yield made
    made.watch.close()


@pytest.mark.parametrize("method", _CHANGES)
def test_a_call_that_may_change_weights_is_told_before_it_reaches_a_worker(
    engine: Engine, method: str
) -> None:
    engine.core.collective_rpc(method)
    told, called = engine.executor.seen[:2]
    assert told.startswith(method)
    assert called == f"call {method}"


def test_a_function_of_the_caller_may_do_anything(engine: Engine) -> None:
    engine.core.collective_rpc(lambda worker: worker)
    assert engine.executor.seen[0] == "a function of its caller is lost"


SINCE_0_32 = {"compute_weight_checksums", "release_late_interaction_query_cache"}


@pytest.mark.parametrize("method", sorted(HARMLESS_CALLS))
def test_harmless_calls_are_not_told_and_vllm_has_them(engine: Engine, method: str) -> None:
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 - takes seconds

    engine.core.collective_rpc(method)
    assert engine.executor.seen == [f"call {method}"]
    is_known = method not in SINCE_0_32 or vllm_release() != "0.31"
    assert hasattr(Worker, method) is is_known, "a name that nobody can call"


def test_only_a_reload_from_files_of_all_weights_brings_an_identity_back(engine: Engine) -> None:
    call = engine.core.collective_rpc
    call("reload_weights")
    call("reload_weights", kwargs={"weights_path": "/new"})
    call("reload_weights", kwargs={"weights_iterator": iter(())})
    call("reload_weights", args=("positional",))
    told = [line for line in engine.executor.seen if line.startswith("reloaded")]
    assert told == ["reloaded None", "reloaded /new"]


def test_sleep_that_drops_the_weights_is_told_and_lighter_sleep_is_not(engine: Engine) -> None:
    engine.core.sleep(0)
    engine.core.sleep(1)
    engine.core.wake_up()
    assert engine.executor.seen == ["sleep 1", "wake_up None"]
    engine.executor.seen.clear()
    engine.core.sleep(2)
    engine.core.wake_up(["weights"])
    assert engine.executor.seen == ["sleep may come back", "sleep 2", "wake_up ['weights']"]


class Front:
    """In place of vLLM's front end: its calls end in the engine of a test."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def collective_rpc(self, method: str, **rest: Any) -> Any:
        return self.engine.core.collective_rpc(method, **rest)


@pytest.mark.parametrize(
    "name",
    ["start_weight_update", "start_draft_weight_update", "update_weights", "finish_weight_update"],
)
def test_weight_transfers_of_the_front_end_pass_the_watch(engine: Engine, name: str) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - takes seconds

    function, front = getattr(AsyncLLM, name), Front(engine)
    takes_request = "request" in inspect.signature(function).parameters
    request = SimpleNamespace(update_info={})
    asyncio.run(function(front, request) if takes_request else function(front))
    assert engine.executor.seen == [f"{name} is lost", f"call {name}"]


def test_every_worker_method_about_weights_is_known_to_change_them_or_not() -> None:
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 - takes seconds

    public = {name for name in dir(Worker) if not name.startswith("_")}
    about = {name for name in public if "weight" in name or name in ("load_model", "update_config")}
    about -= {"weight_transfer_engine"}
    assert about <= HARMLESS_CALLS | set(_CHANGES) | {"shutdown_weight_transfer_engine"}
