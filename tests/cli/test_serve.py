"""`kvext serve`: the command that it prints, and the process that it becomes."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext

# A program in vLLM's place that tells how it was called.
_PROGRAM = f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([os.getpid(), sys.argv]))\n"
# The engine's program is looked for beside the Python that runs, too: play one that is elsewhere.
_MAIN = "import sys; sys.executable = {python!r}; from kvext.cli import main; main()"
_CALL_KVEXT = (sys.executable, "-c", _MAIN.format(python="/nowhere/python"), "serve")


def _serve(*arguments: str) -> Result:
    return CliRunner().invoke(kvext, ["serve", *arguments], catch_exceptions=False)


def _argv(*arguments: str) -> list[str]:
    result = _serve(*arguments, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return [str(argument) for argument in json.loads(result.stdout)["argv"]]


def _extra(*arguments: str) -> Any:
    return json.loads(_argv(*arguments)[-1]).get("kv_connector_extra_config")


def _run(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
    return subprocess.run(
        [*_CALL_KVEXT, *arguments],
        env={**inherited, "PATH": str(path), **environment},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vllm").write_text(_PROGRAM)
    (folder / "vllm").chmod(0o755)
    return folder


def test_defaults_need_no_options_of_the_connector() -> None:
    *command, transfer = _argv("model")
    assert command == ["vllm", "serve", "model", "--kv-transfer-config"]
    assert json.loads(transfer) == {
        "kv_connector": "KvextConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--pool", "8GiB"), {"pool_size": "8GiB"}),
        (("--pool-size=8GiB",), {"pool_size": "8GiB"}),
        (("--no-store", "--load", "async"), {"store": False, "load": "async"}),
        (("--lease-s", "5", "--pool-name", "blue"), {"lease_s": 5.0, "pool_name": "blue"}),
        (("--store", "--pool", "auto", "--pool-name", "default"), None),
    ],
)
def test_options_that_differ_from_their_defaults_reach_the_connector(
    arguments: tuple[str, ...], expected: Mapping[str, object] | None
) -> None:
    assert _extra("model", *arguments) == expected
    assert _extra(*arguments, "model") == expected


def test_relative_folder_is_written_down_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _extra("model", "--pool-folder", "pools") == {"pool_folder": str(tmp_path / "pools")}


def test_options_file_is_named_and_given_options_stay_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "kvext.toml"
    file.write_text('pool_size = "8GiB"\n')
    extra = _extra("model", "--kvext-config", str(file), "--pool", "auto")
    # "auto" is the default, but here it overrides the file.
    assert extra == {"config": str(file), "pool_size": "auto"}


def test_options_of_vllm_pass_in_order_and_untouched() -> None:
    theirs = ["--port", "8000", "-tp", "2", "--chat-template=a b", "--lora-modules", "x=/a", "y=/b"]
    assert _argv("model", *theirs, "--pool", "8GiB")[2:-2] == ["model", *theirs]


def test_everything_after_two_dashes_passes_even_if_kvext_knows_the_name() -> None:
    argv = json.loads(_serve("model", "--dry-run", "--json", "--", "--load", "x").stdout)["argv"]
    assert argv[2:-2] == ["model", "--load", "x"]


def test_printed_command_can_be_pasted_into_a_shell() -> None:
    printed = _serve("my model", "--pool", "8GiB", "--dry-run").stdout
    assert shlex.split(printed) == _argv("my model", "--pool", "8GiB")


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--kv-transfer-config", "--kv-transfer-config"),
        ("--kv-transfer-config={}", "--kv-transfer-config"),
        ("--kv_transfer_config", "--kv-transfer-config"),
        ("--kv-transfer-config.kv_role", "--kv-transfer-config"),
        ("--kv-trans", "--kv-transfer-config"),
        ("--kv-offloading-size", "--kv-offloading-size"),
    ],
)
def test_connector_of_the_users_own_is_refused(option: str, named: str) -> None:
    result = _serve("model", option, "{}", "--dry-run")
    assert result.exit_code == 1
    assert f"error: option {named!r} cannot be used here" in result.stderr


def test_other_kv_options_of_vllm_pass() -> None:
    assert "--kv-cache-dtype" in _argv("model", "--kv-cache-dtype", "auto")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pool", "potatoes"), "option 'pool_size' cannot be 'potatoes'"),
        (("--pool", "8"), "a number alone means bytes"),
        (("--load", "later"), 'give "async" or "blocking" or "sync"'),
        (("--kvext-config", "/nowhere.toml"), "options file '/nowhere.toml' cannot be used"),
    ],
)
def test_impossible_option_is_refused_before_anything_runs(
    programs: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = _run(programs, "model", *arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert result.stdout == ""


def test_error_as_json_is_one_document() -> None:
    result = _serve("model", "--pool", "potatoes", "--dry-run", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "InvalidOption"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "8000", "model"), "name the model before vLLM's options"),
        (("model", "--json"), "needs --dry-run"),
        ((), "Missing argument 'MODEL'"),
    ],
)
def test_wrong_call_is_explained(arguments: tuple[str, ...], message: str) -> None:
    result = _serve(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_serve_prints_the_command_and_becomes_it(programs: Path) -> None:
    arguments = ("model", "--pool", "8GiB", "--port", "8000")
    with subprocess.Popen(
        [*_CALL_KVEXT, *arguments],
        env={**os.environ, "PATH": str(programs), "VLLM_PLUGINS": "other,kvext"},
        text=True,
        stdout=subprocess.PIPE,
    ) as process:
        printed, answer = process.communicate()[0].splitlines()
    pid, argv = json.loads(answer)
    assert pid == process.pid
    assert ["vllm", *argv[1:]] == shlex.split(printed) == _argv(*arguments)


def test_engine_beside_python_is_found_without_an_activated_environment(programs: Path) -> None:
    main = _MAIN.format(python=str(programs / "python"))
    run = subprocess.run(
        [sys.executable, "-c", main, "serve", "model"],
        env={**os.environ, "PATH": "/nowhere", "VLLM_PLUGINS": "kvext"},
        text=True,
        capture_output=True,
        check=True,
    )
    assert json.loads(run.stdout.splitlines()[-1])[1][1:3] == ["serve", "model"]


def test_missing_engine_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    result = _run(tmp_path, "model")
    assert result.returncode == 1
    assert "error: the command 'vllm' is not on the PATH; pip install" in result.stderr
    assert "Traceback" not in result.stderr


def test_plugin_list_without_kvext_is_refused(programs: Path) -> None:
    result = _run(programs, "model", VLLM_PLUGINS="other")
    assert result.returncode == 1
    assert "option 'VLLM_PLUGINS' cannot be 'other'; add kvext to it" in result.stderr
