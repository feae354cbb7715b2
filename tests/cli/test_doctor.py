"""`kvext doctor` on the machine that runs the tests."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext
from kvext.cxl import create_region, region_path
from kvext.pool import Pool

_WITHOUT_CORE = """
import sys
sys.modules["kvext.pool._core"] = None  # as if the file were not there
from kvext.cli import main
main()
"""


def _doctor(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(
        kvext, ["doctor", *arguments], env=environment, catch_exceptions=False
    )


def _findings(result: Result) -> Mapping[str, Any]:
    assert result.stderr == ""
    return {found["name"]: found for found in json.loads(result.stdout)["findings"]}


def test_real_run_finds_what_is_installed_and_no_error() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from kvext.cli import main; main()", "doctor", "--json"],
        check=False,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"},
    )
    assert ended.stderr == ""
    document = json.loads(ended.stdout)
    found = {entry["name"]: entry for entry in document["findings"]}
    for name in ("python", "plugin", "plugin-allowed", "native-core", "kernel", "pool-folder"):
        assert found[name]["status"] == "ok", found[name]
    counts = {status: document["summary"][status] for status in ("ok", "note", "warning", "error")}
    assert sum(counts.values()) == len(document["findings"])
    assert ended.returncode == int(counts["error"] > 0)
    assert {entry["docs"] for entry in found.values()} == {f"doctor.md#{name}" for name in found}


def test_text_shows_each_finding_with_its_status_and_the_mend_below(tmp_path: Path) -> None:
    (tmp_path / "psm_left").write_bytes(b"1" * (2 << 20))
    shown = _doctor("--pool-folder", str(tmp_path), COLUMNS="400").stdout
    assert f"/{tmp_path.name}/psm_left, 2 MiB, changed 0 s ago" in shown
    lines = [line.split(maxsplit=2) for line in shown.splitlines()]
    (at,) = [n for n, words in enumerate(lines) if words[1:2] == ["engine-leftovers"]]
    assert lines[at][0] == "warning"
    assert lines[at + 2][:2] == ["->", "rm"]


def test_leftovers_in_the_pool_folder_are_warnings_that_strict_refuses(tmp_path: Path) -> None:
    (tmp_path / "vllm_offload_0.mmap").write_bytes(b"1" * (2 << 20))
    (tmp_path / "kvext-a.pool.new").write_bytes(b"1" * (2 << 20))
    lenient = _doctor("--pool-folder", str(tmp_path), "--json")
    found = _findings(lenient)
    assert found["engine-leftovers"]["status"] == "warning"
    assert found["unfinished-pools"]["details"][0].startswith(f"{tmp_path}/kvext-a.pool.new, 2 MiB")
    strict = _doctor("--pool-folder", str(tmp_path), "--json", "--strict")
    assert strict.exit_code == 1


def test_pool_that_is_asked_for_is_told_apart_from_idle_neighbours(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        create_region(region_path(tmp_path, name), 1 << 20, Pool.initialise)
    result = _doctor("--pool-folder", str(tmp_path), "--pool-name", "mine", "--json")
    found = _findings(result)
    assert "kvext-mine.v2.pool, 1 MiB" in found["pool"]["fact"]
    assert found["idle-pools"]["mend"].endswith(f"kvext pool rm other --folder {tmp_path}")


def test_pool_still_to_be_made_is_judged_by_the_size_that_it_shall_have(tmp_path: Path) -> None:
    asked = ("--pool-folder", str(tmp_path), "--pool-size", "4000TiB", "--json")
    found = _findings(_doctor(*asked))
    assert "less than a pool of 4000 TiB" in found["folder-free"]["fact"]
    create_region(region_path(tmp_path, "default"), 1 << 20, Pool.initialise)
    assert _findings(_doctor(*asked))["folder-free"]["status"] == "ok"


def test_damaged_pool_is_an_error_and_the_exit_code_says_so(tmp_path: Path) -> None:
    region_path(tmp_path, "default").write_bytes(b"no pool")
    result = _doctor("--pool-folder", str(tmp_path), "--json")
    assert _findings(result)["pool"]["status"] == "error"
    assert result.exit_code == 1


def test_plugin_that_is_kept_out_is_an_error() -> None:
    result = _doctor("--json", VLLM_PLUGINS="lora_filesystem_resolver")
    found = _findings(result)["plugin-allowed"]
    assert found["mend"].startswith("export VLLM_PLUGINS=lora_filesystem_resolver,kvext")
    assert result.exit_code == 1


def test_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = _findings(_doctor("--json", XDG_CACHE_HOME=str(tmp_path / "file")))
    assert found["digest-cache"]["status"] == "warning"
    found = _findings(_doctor("--json", XDG_CACHE_HOME=str(tmp_path / "not there yet")))
    assert found["digest-cache"]["status"] == "ok"
    assert not (tmp_path / "not there yet").exists()


def test_impossible_pool_name_is_an_error_of_the_call() -> None:
    result = _doctor("--pool-name", "../up")
    assert result.exit_code == 1
    assert "option 'pool_name' cannot be '../up'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["doctor", "--json"], 1, '"name": "native-core",\n      "status": "error"'),
        (["pool", "stat", "--json"], 1, "run `kvext doctor`"),
        (["--help"], 0, "the native core does not load"),
    ],
)
def test_doctor_runs_where_the_native_core_does_not_load(
    arguments: list[str], code: int, expected: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_CORE, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert ended.returncode == code, ended.stderr
    assert expected in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
