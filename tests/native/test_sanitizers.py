"""Builds the core with sanitizers and runs its own tests; any report is a failure."""

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
PYTHON_ONLY = ("module.cpp", "bind_administration.cpp", "bind_layered.cpp")
COMPILE = ["g++", "-std=c++20", "-O1", "-g", "-fno-omit-frame-pointer", f"-I{NATIVE}", "-c"]


def build(folder: Path, sanitizers: str, *programs: str) -> list[Path]:
    """Compile everything but the Python module, two files at a time; one program a test."""
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    if sanitizers == "thread":
        # It does not model fences: what relies on them is left out of threads_test.cpp.
        flags += ["-Wno-tsan", "-include", str(Path(__file__).with_name("tsan.hpp"))]
    core = [source for source in NATIVE.glob("*.cpp") if source.name not in PYTHON_ONLY]
    tests = [Path(__file__).with_name(f"{program}.cpp") for program in programs]

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        own = INSTRUCTION_SETS.get(source.name, [])
        subprocess.run([*COMPILE, *flags, *own, str(source), "-o", str(target)], check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [*core, *tests]))
    shared = [str(target) for target in objects if target.stem not in programs]
    for program in programs:
        link = ["g++", *flags, *shared, str(folder / f"{program}.o"), "-pthread"]
        subprocess.run([*link, "-o", str(folder / program)], check=True)
    return [folder / program for program in programs]


def run(program: Path) -> None:
    """Run a test on a region of its own."""
    region = program.with_name(f"kvext-{program.name}.pool")
    region.write_bytes(b"")
    os.truncate(region, 1 << 20)
    done = subprocess.run(
        [str(program), str(region)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.native
@pytest.mark.timeout(600)
def test_core_is_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    for program in build(tmp_path, "address,undefined", "core_test", "threads_test"):
        run(program)


@pytest.mark.native
@pytest.mark.timeout(600)
def test_threads_of_the_core_are_clean_under_the_thread_sanitizer(tmp_path: Path) -> None:
    for program in build(tmp_path, "thread", "threads_test"):
        run(program)
