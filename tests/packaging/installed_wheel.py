"""Run by `bare_root.sh` with the installed wheel: the commands work, blocks come back whole."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kvext.cxl import region_path
from kvext.pool import Pages, Pool
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

COMPILERS = ("c++", "g++", "gcc", "cc", "clang", "clang++", "cmake", "ninja", "make", "ld", "as")
BIN = Path(sys.executable).parent
SHAPE = RecordShape(block_tokens=32)


def assert_nothing_can_be_compiled(*, whole_root: bool) -> None:
    folders = f"{BIN}:/bin:/usr/bin:/usr/local/bin" if whole_root else os.environ["PATH"]
    found = [name for name in COMPILERS if shutil.which(name, path=folders)]
    assert not found, f"compilers are in reach: {found}"
    assert not (whole_root and Path("/usr/include").exists()), "headers are in reach"


def kvext(*arguments: str) -> str:
    return subprocess.run(
        [str(BIN / "kvext"), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def pool_command(folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        kvext("pool", name, *arguments, "--folder", str(folder), "--json")
    )
    return answer


def assert_blocks_come_back(folder: Path) -> None:
    layers = [np.zeros((8, 4096), np.uint8) for _ in range(2)]
    for layer in layers:
        layer[:4] = np.random.default_rng(1).integers(0, 256, (4, 4096), np.uint8)
    pages = Pages([layer.ctypes.data for layer in layers], [4096, 4096], 8)
    keys = b"".join(number.to_bytes(32, "big") for number in range(4))
    with Pool.attach(region_path(folder, "default"), extent_bytes=8192) as pool:
        stored = pool.store(keys, SHAPE, b"n" * 32, pages, range(4))
        assert set(stored) == {StoreOutcome.STORED}
        lease = pool.match(keys, SHAPE)
        assert set(pool.load(lease.refs, pages, range(4, 8))) == {LoadOutcome.LOADED}
        lease.release()
    assert all((layer[:4] == layer[4:]).all() for layer in layers)


def assert_policies_decide(folder: Path) -> None:
    trace = folder / "trace.jsonl"
    requests = [
        {
            "timestamp": at,
            "input_length": 1024,
            "output_length": 1,
            "hash_ids": [at % 3, at % 3 + 9],
        }
        for at in range(30)
    ]
    trace.write_text("".join(json.dumps(request) + "\n" for request in requests))
    answer = json.loads(kvext("simulate", "--trace", str(trace), "--blocks", "4", "--json"))
    trace.unlink()
    assert 0 < answer["hit_ratio"] <= answer["optimal_hit_ratio"] < 1


def assert_wheel_is_whole() -> None:
    names = [str(path) for path in files("kvext") or ()]
    assert any(name.endswith("licenses/LICENSE") for name in names), names
    assert "kvext/py.typed" in names
    assert not any(name.endswith((".cpp", ".hpp", "xxhash.h")) for name in names)


def main(bare: str) -> None:
    """Try everything; `bare` is "root" if the whole file system is, "path" if only PATH."""
    assert_nothing_can_be_compiled(whole_root=bare == "root")
    assert_wheel_is_whole()
    version = kvext("--version").strip()
    with TemporaryDirectory() as name:
        folder = Path(name)
        pool_command(folder, "create", "--size", "16MiB")
        assert_blocks_come_back(folder)
        assert pool_command(folder, "stat")["num_committed"] == 4
        pool_command(folder, "rm")
        assert_policies_decide(folder)
        assert not list(folder.iterdir())
    sys.stdout.write(
        f"{version}: installed, stored, loaded and simulated with no compiler in its {bare}\n"
    )


if __name__ == "__main__":
    main(sys.argv[2])
