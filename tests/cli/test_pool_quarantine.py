"""`kvext pool quarantine` and `kvext pool release` against real pools."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext
from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from kvext.protocol.transfer import StoreOutcome
from tests.pool.engine_memory import RECORD_BYTES, SHAPE, EngineMemory, key_of

_GOOD, _BAD = b"\xab" * 32, b"\xcd" * 32
_KEYS = key_of(1) + key_of(2)

Call = Callable[..., Result]


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = region_path(tmp_path, "default")
    create_region(path, 1 << 20, Pool.initialise)
    return path


@pytest.fixture
def call(region: Path) -> Call:
    def invoke(*arguments: str) -> Result:
        folder = ("--folder", str(region.parent))
        return CliRunner().invoke(kvext, ["pool", *arguments, *folder], catch_exceptions=False)

    return invoke


def store(pool: Pool, number: int, namespace: bytes) -> StoreOutcome:
    outcomes = pool.store(key_of(number), SHAPE, namespace, EngineMemory().pages, [0])
    return StoreOutcome(outcomes[0])


@pytest.fixture
def engine(region: Path) -> Iterator[Pool]:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine") as pool:
        for number, namespace in ((1, _GOOD), (2, _BAD)):
            pool.name_namespace(namespace, "a model")
            assert store(pool, number, namespace) is StoreOutcome.STORED
        yield pool


def test_quarantined_namespace_is_out_of_use_until_it_is_released_and_begins_empty(
    call: Call, engine: Pool
) -> None:
    result = call("quarantine", "--namespace", "cdcd")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"namespace {_BAD.hex()} is in quarantine")
    assert engine.lookup(_KEYS, SHAPE) == b"\1\0"
    assert store(engine, 3, _BAD) is StoreOutcome.FENCED
    assert "(quarantined)" in call("stat").stdout
    assert "was already" in call("quarantine", "--namespace", "cdcd").stdout

    assert "begins anew" in call("release", "--namespace", "cdcd").stdout
    assert engine.lookup(_KEYS, SHAPE) == b"\1\0"
    assert store(engine, 2, _BAD) is StoreOutcome.STORED
    assert engine.lookup(_KEYS, SHAPE) == b"\1\1"
    assert "was not in quarantine" in call("release", "--namespace", "cdcd").stdout
    assert engine.lookup(_KEYS, SHAPE) == b"\1\1"


@pytest.mark.usefixtures("engine")
def test_both_commands_tell_scripts_what_is_so_now_and_whether_that_is_new(call: Call) -> None:
    for command, is_quarantined in (("quarantine", True), ("release", False)):
        documents = [
            json.loads(call(command, "--namespace", "cdcd", "--json").stdout) for _ in range(2)
        ]
        assert [document.pop("changed") for document in documents] == [True, False]
        expected = {"name": "default", "namespace": _BAD.hex(), "quarantined": is_quarantined}
        assert documents == [expected] * 2


@pytest.mark.parametrize("command", ["quarantine", "release"])
@pytest.mark.parametrize("digits", ["77", "", "no hex"])
def test_digits_that_name_no_namespace_are_refused(
    call: Call, engine: Pool, command: str, digits: str
) -> None:
    result = call(command, "--namespace", digits)
    assert result.exit_code == 1
    assert "see `kvext pool stat`" in result.stderr
    assert call(command).exit_code == 2, "and so is a call without any"
    assert engine.lookup(_KEYS, SHAPE) == b"\1\1"
