"""The example of the pool's documentation runs as it is printed there."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "pool_by_hand.py"


def test_one_process_stores_and_another_reads() -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.splitlines() == [
        "writer: STORED",
        "reader: 1 block, 4096 bytes, b'kvkv'",
        "sound: True",
    ]
