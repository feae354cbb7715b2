"""The installed vLLM has every hook that kvext uses; a failure says which one changed, and how."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

import kvext.vllm
from kvext.vllm.compat import DIFFERENCES, Difference, host_hit_source, vllm_release
from kvext.vllm.connector import KvextConnector
from kvext.vllm.contract import Call, Read, changed_overrides, resolve, vllm_has
from kvext.vllm.hooks import CALLED, READ, WRAPPED, changed_hooks
from kvext.vllm.messages import KvextReport
from kvext.vllm.stats import KvextMetrics, KvextStats

pytestmark = pytest.mark.engine

CONTRACT = "kvext.vllm.contract:Call"
CLASSES = {
    "request": "vllm.v1.request:Request",
    "lora": "vllm.lora.request:LoRARequest",
    "lora_request": "vllm.lora.request:LoRARequest",
    "output": "vllm.v1.core.sched.output:SchedulerOutput",
    "spec": "vllm.v1.kv_cache_interface:AttentionSpec",
    "transfer": "vllm.config:KVTransferConfig",
    "vllm_config": "vllm.config:VllmConfig",
    "cache_config": "vllm.config:CacheConfig",
    "compilation_config": "vllm.config:CompilationConfig",
    "load_config": "vllm.config:LoadConfig",
    "lora_config": "vllm.config:LoRAConfig",
    "model_config": "vllm.config:ModelConfig",
    "scheduler_config": "vllm.config:SchedulerConfig",
    "kv_cache_config": "vllm.v1.kv_cache_interface:KVCacheConfig",
}
"""Which class of vLLM the code means by a name."""

SOURCES = sorted(Path(kvext.vllm.__path__[0]).glob("*.py"))


def imports_of_vllm() -> Iterator[tuple[str, str, str]]:
    """File, module and name of every import from vLLM, also those for annotations only."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                for alias in node.names:
                    yield source.name, str(node.module), alias.name


def wrapped_functions() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and parameters in every `Wrap(owner, name, parameters)` of the code."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Wrap":
                yield ast.literal_eval(node.args[1]), ast.literal_eval(node.args[2])


def members_read() -> set[tuple[str, str]]:
    """Class and member of every `request.member` and the like in the code."""
    found = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                name = ast.unparse(node.value).split(".")[-1].removeprefix("_")
                if name in CLASSES:
                    found.add((CLASSES[name], node.attr))
    return found


@pytest.mark.parametrize(
    "hook", [*CALLED, *WRAPPED], ids=lambda hook: f"{hook.owner.split('.')[-1]}.{hook.name}"
)
def test_vllm_takes_the_arguments_that_kvext_passes(hook: Call) -> None:
    assert not hook.change()


@pytest.mark.parametrize("hook", READ, ids=lambda hook: hook.owner.split(":")[-1])
def test_vllm_has_the_members_that_kvext_reads(hook: Read) -> None:
    assert not hook.change()


@pytest.mark.parametrize("ours", [KvextConnector, KvextReport, KvextStats, KvextMetrics])
def test_vllm_calls_our_methods_with_the_parameters_that_they_take(ours: type) -> None:
    assert list(changed_overrides(ours)) == []


@pytest.mark.parametrize(("file", "module", "name"), sorted(set(imports_of_vllm())))
def test_vllm_has_what_kvext_imports(file: str, module: str, name: str) -> None:
    assert hasattr(import_module(module), name), f"{file} imports {module}.{name}"


def test_every_member_that_is_read_has_a_contract() -> None:
    # What is read as the base is told by the kind that has it.
    known = {
        (owner, name)
        for hook in READ
        for name in hook.names
        for owner in set(CLASSES.values())
        if issubclass(resolve(hook.owner), resolve(owner))
    }
    assert members_read() - known == set()


def test_every_wrapped_function_has_a_contract() -> None:
    known = {hook.name: hook.parameters for hook in WRAPPED}
    assert dict(wrapped_functions()) == known


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda it: f"{it.release}-{it.member}")
def test_releases_differ_as_compat_says(difference: Difference) -> None:
    installed = tuple(map(int, vllm_release().split(".")))
    has_come = installed >= tuple(map(int, difference.release.split(".")))
    present = vllm_has(resolve(difference.owner), difference.member)
    assert present is (has_come is not difference.is_removal)


def test_hits_are_labelled_with_the_hosts_memory_where_vllm_has_labels() -> None:
    label = host_hit_source()
    if hasattr(KVConnectorBase_V1, "_cache_hit_source"):
        assert label.value == "host"
    else:
        assert label is None


def test_no_hook_is_changed() -> None:
    assert list(changed_hooks()) == []


class TestChangedVllm:
    """The contracts can fail: each kind of change is noticed and named."""

    def test_missing_function_and_missing_module_are_gone(self) -> None:
        assert Call("vllm.v1.request:Request", "vanish", ()).change().endswith("vanish is gone")
        assert Call("vllm.no_such_module:Thing", "name", ()).change().endswith("name is gone")
        assert Read("vllm.v1.request:NoSuchClass", ("a",)).change().endswith("is gone")

    def test_missing_member_is_named(self) -> None:
        change = Read("vllm.v1.request:Request", ("cache_salt", "flavour")).change()
        assert change == "vllm.v1.request:Request has no flavour"

    def test_renamed_parameter_is_told_with_both_names(self) -> None:
        change = Call(CONTRACT, "__init__", ("self", "owner", "title", "parameters")).change()
        assert "'name'" in change
        assert "'title'" in change

    def test_new_parameter_counts_only_if_it_must_be_given(self) -> None:
        assert "'parameters'" in Call(CONTRACT, "__init__", ("self", "owner")).change()
        assert not Call("kvext.vllm.compat", "vllm_release", ()).change()

    def test_override_whose_parameters_changed_is_named(self) -> None:
        def on_new_request(self: object, request: object, priority: int) -> None:
            """As a later vLLM might call it."""

        newer = type("Newer", (KVConnectorBase_V1,), {"on_new_request": on_new_request})
        ours = {
            "on_new_request": KvextConnector.on_new_request,
            "reset_cache": KvextConnector.reset_cache,
            "begin_request": KvextConnector.build_connector_meta,
        }
        changes = list(changed_overrides(type("Ours", (newer,), ours)))
        assert "Newer has a new abstract method start_load_kv" in changes
        assert any("Newer.on_new_request takes" in change for change in changes)
        assert "Newer has no begin_request" in changes
        assert not any("reset_cache" in change for change in changes)
