"""`kvext pool fsck` and `kvext pool fence` against real pools."""

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
from tests.pool.tables import Tables

_OLD, _NEW = b"\xab" * 32, b"\xcd" * 32

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


@pytest.fixture
def engine(region: Path) -> Iterator[Pool]:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine") as pool:
        memory = EngineMemory()
        for number, model in ((1, _OLD), (2, _OLD), (3, _NEW)):
            pool.name_namespace(model[:31] + b"\1", "a model", model)
            outcome = pool.store(key_of(number), SHAPE, model[:31] + b"\1", memory.pages, [0])
            assert outcome[0] == StoreOutcome.STORED
        yield pool


@pytest.mark.usefixtures("engine")
def test_sound_pool_is_said_to_be_sound(call: Call) -> None:
    result = call("fsck", "--verify-data")
    assert (result.exit_code, result.stdout) == (0, "pool 'default' is sound: 3 blocks checked\n")
    document = json.loads(call("fsck", "--json").stdout)
    assert document == {
        "name": "default",
        "is_sound": True,
        "problems": [],
        "num_records": 3,
        "num_repaired": 0,
    }


@pytest.mark.usefixtures("engine")
def test_damage_is_named_with_the_mend_and_the_exit_code_says_so(call: Call, region: Path) -> None:
    Tables(region).write("slot.length", 2**31, key=key_of(2))
    result = call("fsck")
    assert result.exit_code == 1
    assert "bad_length" in result.stdout
    assert "2147483648 bytes" in result.stdout
    assert "kvext pool fsck default --repair" in result.stdout
    document = json.loads(call("fsck", "--repair", "--json").stdout)
    assert document["is_sound"] is True
    assert {problem["kind"] for problem in document["problems"]} >= {"bad_length"}
    assert call("fsck").exit_code == 0


def test_model_is_fenced_by_the_first_digits_of_its_digest(call: Call, engine: Pool) -> None:
    assert "abababababab" in call("stat").stdout
    document = json.loads(call("fence", "--model", "abab", "--json").stdout)
    assert document == {"name": "default", "num_namespaces": 1, "num_records": 2}
    assert engine.lookup(key_of(1) + key_of(3), SHAPE) == b"\0\1"
    assert "(fenced)" in call("stat").stdout


@pytest.mark.usefixtures("engine")
def test_all_but_one_model_are_fenced(call: Call) -> None:
    assert call("fence", "--all-but", "cdcd").stdout == "fenced 2 blocks of 1 namespaces\n"


@pytest.mark.parametrize(
    "arguments",
    [(), ("--model", "ab", "--all-but", "cd"), ("--model", "77"), ("--model", "")],
    ids=["neither", "both", "unknown", "empty"],
)
def test_fence_that_names_no_model_for_certain_is_refused(
    call: Call, engine: Pool, arguments: tuple[str, ...]
) -> None:
    result = call("fence", *arguments)
    assert result.exit_code == 1
    assert "--model" in result.stderr
    assert engine.lookup(key_of(1) + key_of(3), SHAPE) == b"\1\1"
