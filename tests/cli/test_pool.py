"""`kvext pool` against real pools: what people and scripts see, and what is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext
from kvext.cxl import region_path
from kvext.pool import Pages, Pool
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome

_BLOCK_BYTES = 64 << 10
_SHAPE = RecordShape(block_tokens=16)
_MODEL, _OTHER_MODEL = b"\xab" * KEY_BYTES, b"\xcd" * KEY_BYTES

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Calls `kvext pool COMMAND ...` on pools of this test's own folder."""

    def invoke(*arguments: str) -> Result:
        folder = ("--folder", str(tmp_path))
        return CliRunner().invoke(kvext, ["pool", *arguments, *folder], catch_exceptions=False)

    return invoke


@pytest.fixture
def engine(call: Call, tmp_path: Path) -> Iterator[Pool]:
    """A pool called "default" and an engine that is attached to it."""
    assert call("create", "--size", "4MiB").exit_code == 0
    path = region_path(tmp_path, "default")
    with Pool.attach(path, extent_bytes=_BLOCK_BYTES, label="engine of the test") as attached:
        yield attached


def _store(pool: Pool, namespace: bytes, label: str, num_blocks: int) -> None:
    kv = np.ones(num_blocks * _BLOCK_BYTES, dtype=np.uint8)
    pages = Pages([kv.ctypes.data], [_BLOCK_BYTES], num_blocks)
    keys = b"".join(namespace[:31] + bytes([block]) for block in range(num_blocks))
    outcomes = pool.store(keys, _SHAPE, namespace, pages, list(range(num_blocks)))
    assert set(outcomes) == {StoreOutcome.STORED}
    pool.name_namespace(namespace, label)


def _document(result: Result) -> Any:
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_created_pool_is_listed_with_its_size(call: Call) -> None:
    created = call("create", "tests", "--size", "4MiB")
    assert created.stdout.startswith("created pool 'tests' of 4 MiB at ")
    listed = call("ls")
    assert listed.exit_code == 0
    assert "tests" in listed.stdout
    assert "4 MiB" in listed.stdout


def test_creating_as_json_tells_path_and_size(call: Call, tmp_path: Path) -> None:
    created = _document(call("create", "--size", "4MiB", "--json"))
    path = region_path(tmp_path, "default")
    assert created == {"name": "default", "path": str(path), "region_bytes": 4 << 20}
    assert path.stat().st_size == 4 << 20


def test_creating_a_pool_twice_is_refused_and_keeps_the_first(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "model", 1)
    again = call("create", "--size", "8MiB")
    assert again.exit_code == 1
    assert again.stderr.startswith("error: a pool exists at ")
    assert engine.stat().num_committed == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--size", "plenty"), "option 'pool_size' cannot be 'plenty'"),
        (("--size", "8"), "a number alone means bytes"),
        (("../up", "--size", "4MiB"), "option 'pool_name' cannot be '../up'"),
        (("--size", "900000TiB"), "needs 921,600,000.0 GiB but its folder has"),
    ],
)
def test_impossible_pool_is_refused_in_one_line_and_leaves_nothing(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = call("create", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "missing")
    result = CliRunner().invoke(kvext, ["pool", "create", "--size", "4MiB", "--folder", folder])
    assert result.exit_code == 1
    assert "make the folder" in result.stderr


def test_stat_of_a_fresh_pool_says_that_its_geometry_is_open(call: Call) -> None:
    call("create", "--size", "4MiB")
    assert "the first engine fixes their size" in call("stat").stdout


def test_stat_shows_occupancy_namespaces_and_attached_engines(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "llama bf16", 3)
    shown = call("stat").stdout
    assert "3 committed (192 KiB)" in shown
    assert "abababababab" in shown
    assert "llama bf16" in shown
    assert "engine of the test" in shown
    assert "stores 3" in shown


def test_stat_as_json_has_the_same_facts_as_the_pool(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "llama bf16", 3)
    document = _document(call("stat", "--json"))
    assert document["name"] == "default"
    assert document["num_committed"] == 3
    assert document["committed_bytes"] == 3 * _BLOCK_BYTES
    assert document["capacity_bytes"] == engine.capacity_bytes
    assert [process["label"] for process in document["processes"]] == ["engine of the test"]
    assert document["namespaces"] == [
        {
            "digest": _MODEL.hex(),
            "label": "llama bf16",
            "num_blocks": 3,
            "model": "00" * KEY_BYTES,
            "state": "live",
            "extent_bytes": engine.extent_bytes,
            "held_bytes": 3 * engine.extent_bytes,
        }
    ]


def test_looking_at_a_pool_takes_no_place_in_its_process_table(call: Call) -> None:
    call("create", "--size", "4MiB")
    assert _document(call("stat", "--json"))["processes"] == []


@pytest.mark.parametrize("command", ["stat", "clear", "rm"])
def test_missing_pool_is_an_error_with_its_remedy(call: Call, command: str) -> None:
    result = call(command, "nowhere")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no pool at ")
    assert "kvext pool create" in result.stderr


@pytest.mark.parametrize("command", ["stat", "clear", "rm"])
def test_error_as_json_has_its_name_and_fields(call: Call, command: str, tmp_path: Path) -> None:
    result = call(command, "nowhere", "--json")
    assert result.exit_code == 1
    document = _document(result)
    assert document["error"] == "PoolMissing"
    assert document["path"] == str(region_path(tmp_path, "nowhere"))
    assert document["message"].startswith("no pool at")


def test_list_of_no_pools_says_how_to_make_one(call: Call) -> None:
    assert "kvext pool create" in call("ls").stdout
    assert _document(call("ls", "--json"))["pools"] == []


@pytest.mark.parametrize("length", range(1, 80, 6))
def test_what_is_to_be_copied_stays_on_one_line_however_long_the_folder(
    tmp_path: Path, length: int
) -> None:
    folder = tmp_path / ("f" * length)
    folder.mkdir()
    said = CliRunner().invoke(kvext, ["pool", "ls", "--folder", str(folder)]).stdout
    assert "kvext pool create --size 8GiB" in said


def test_pool_that_cannot_be_read_is_listed_beside_the_others(call: Call, tmp_path: Path) -> None:
    call("create", "good", "--size", "4MiB")
    (region_path(tmp_path, "bad")).write_bytes(b"no pool")
    listed = call("ls")
    assert listed.exit_code == 0
    assert "PoolDamaged" in listed.stdout
    bad, good = _document(call("ls", "--json"))["pools"]
    assert (bad["name"], bad["error"]) == ("bad", "PoolDamaged")
    assert (good["name"], good["num_attached"]) == ("good", 0)


def test_bypass_is_obeyed_by_an_attached_engine_at_once(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "model", 1)
    key = _MODEL[:31] + b"\0"
    assert call("bypass", "on").stdout.startswith("pool 'default' is bypassed")
    assert engine.match(key, _SHAPE).num_blocks == 0
    assert "engines neither load nor store" in call("stat").stdout
    assert _document(call("stat", "--json"))["bypassed"] is True
    assert _document(call("bypass", "off", "--json")) == {"name": "default", "bypassed": False}
    lease = engine.match(key, _SHAPE)
    assert lease.num_blocks == 1
    lease.release()
    assert "engines neither load nor store" not in call("stat").stdout


def test_bypass_of_a_pool_that_no_engine_has_used_yet_awaits_the_first(
    call: Call, tmp_path: Path
) -> None:
    call("create", "--size", "4MiB")
    assert call("bypass", "on").exit_code == 0
    with Pool.attach(region_path(tmp_path, "default"), extent_bytes=_BLOCK_BYTES) as attached:
        assert attached.bypassed


def test_clear_drops_all_blocks_but_those_in_use(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "model", 3)
    lease = engine.match(_MODEL[:31] + b"\0", _SHAPE)
    assert lease.num_blocks == 1
    assert call("clear").stdout == "dropped 2 blocks, kept 1 in use\n"
    lease.release()
    assert _document(call("clear", "--json")) == {
        "name": "default",
        "num_dropped": 1,
        "num_kept": 0,
    }


def test_clear_of_one_namespace_leaves_the_others(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "model", 2)
    _store(engine, _OTHER_MODEL, "other model", 1)
    assert _document(call("clear", "--namespace", "ABAB", "--json"))["num_dropped"] == 2
    assert {use.label: use.num_blocks for use in engine.namespaces()}["other model"] == 1


def test_namespace_that_is_not_there_or_not_unique_clears_nothing(call: Call, engine: Pool) -> None:
    _store(engine, _MODEL, "model", 1)
    _store(engine, b"\xac" * KEY_BYTES, "other model", 1)
    assert "no namespace of the pool begins so" in call("clear", "--namespace", "99").stderr
    assert "no namespace of the pool begins so" in call("clear", "--namespace", "").stderr
    assert "more digits are needed" in call("clear", "--namespace", "a").stderr
    assert engine.stat().num_committed == 2


def test_pool_in_use_is_removed_only_by_force(call: Call, engine: Pool, tmp_path: Path) -> None:
    refused = call("rm")
    assert refused.exit_code == 1
    assert "1 attached process" in refused.stderr
    assert (region_path(tmp_path, "default")).exists()
    assert _document(call("rm", "--force", "--json"))["removed"] is True
    assert not (region_path(tmp_path, "default")).exists()
    # The engine keeps its mapping and works on.
    _store(engine, _MODEL, "model", 1)


def test_pool_without_engines_is_removed(call: Call, tmp_path: Path) -> None:
    call("create", "--size", "4MiB")
    assert call("rm").stdout.startswith("removed pool 'default' at ")
    assert list(tmp_path.iterdir()) == []


def test_damaged_pool_can_be_removed(call: Call, tmp_path: Path) -> None:
    region_path(tmp_path, "default").write_bytes(b"no pool")
    assert call("rm").exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["create", "stat", "ls", "clear", "bypass", "rm"])
def test_help_teaches_by_an_example(command: str) -> None:
    shown = CliRunner().invoke(kvext, ["pool", command, "--help"]).stdout
    assert f"\n    kvext pool {command}" in shown
