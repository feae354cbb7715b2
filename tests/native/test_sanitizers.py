"""Builds the core with sanitizers and runs its own test; any report is a failure."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
INSTRUCTION_SETS = {
    "bytes_avx2.cpp": ["-mavx2"],
    "bytes_avx512.cpp": ["-mavx512f", "-mavx512vl", "-mavx512bw"],
}
PYTHON_ONLY = ("module.cpp", "bind_administration.cpp")
COMPILE = ["g++", "-std=c++20", "-O1", "-g", "-fno-omit-frame-pointer", f"-I{NATIVE}", "-c"]


def build(folder: Path, sanitizers: str) -> Path:
    """Compile everything but the Python module, two files at a time."""
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    sources = [source for source in NATIVE.glob("*.cpp") if source.name not in PYTHON_ONLY]
    sources.append(Path(__file__).with_name("core_test.cpp"))

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        own = INSTRUCTION_SETS.get(source.name, [])
        subprocess.run([*COMPILE, *flags, *own, str(source), "-o", str(target)], check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, sources))
    program = folder / "core_test"
    subprocess.run(["g++", *flags, *map(str, objects), "-pthread", "-o", str(program)], check=True)
    return program


@pytest.mark.native
@pytest.mark.timeout(600)
def test_core_is_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    program = build(tmp_path, "address,undefined")
    region = tmp_path / "kvext-native.pool"
    region.write_bytes(b"")
    os.truncate(region, 1 << 20)
    run = subprocess.run(
        [str(program), str(region)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.returncode, run.stdout) == (0, "ok\n"), run.stderr
