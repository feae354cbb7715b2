"""What findings come to together, and what else must agree with them."""

import ast
import tomllib
from dataclasses import replace
from pathlib import Path

from kvext.doctor import Status, diagnose
from kvext.doctor.checks.software import MINIMUM_ENGINE, MINIMUM_PYTHON, TESTED_ENGINE
from kvext.doctor.snapshot import Memory
from tests.doctor.hosts import GIB, HEALTHY, MIB, files, finding, shared_file

_ROOT = Path(__file__).parents[2]


def test_mend_of_many_leftovers_stays_readable_and_details_name_them_all() -> None:
    found = finding(files(*(f"psm_{n}" for n in range(40))), "engine-leftovers")
    assert "and 35 more" in found.mend
    assert len(found.details) == 40


def test_exit_code_is_1_on_errors_and_under_strict_on_warnings() -> None:
    codes = {
        status: [diagnose(host).exit_code(strict=strict) for strict in (False, True)]
        for status, host in {
            Status.OK: HEALTHY,
            Status.NOTE: replace(HEALTHY, memory=Memory(100 * GIB, 8 * MIB, "never")),
            Status.WARNING: replace(HEALTHY, files=(shared_file("psm_1"),)),
            Status.ERROR: replace(HEALTHY, folder=replace(HEALTHY.folder, exists=False)),
        }.items()
    }
    assert codes == {
        Status.OK: [0, 0],
        Status.NOTE: [0, 0],
        Status.WARNING: [0, 1],
        Status.ERROR: [1, 1],
    }


def test_oldest_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, MINIMUM_PYTHON))}"
    (engine,) = project["optional-dependencies"]["vllm"]
    assert engine == f"vllm>={'.'.join(map(str, MINIMUM_ENGINE))}"


def test_known_releases_of_vllm_are_those_that_the_adapter_names() -> None:
    # Read, not imported: the adapter imports vLLM.
    tree = ast.parse((_ROOT / "kvext/vllm/compat.py").read_text(encoding="utf-8"))
    (releases,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TESTED_RELEASES"
    ]
    assert releases[0] == ".".join(map(str, MINIMUM_ENGINE))
    assert releases[-1] == ".".join(map(str, TESTED_ENGINE))


def test_documentation_explains_every_finding() -> None:
    lines = (_ROOT / "docs" / "doctor.md").read_text(encoding="utf-8").splitlines()
    explained = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
    assert explained == [found.name for found in diagnose(HEALTHY).findings]
