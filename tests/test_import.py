"""Importing kvext is cheap and pulls in no engine."""

import json
import subprocess
import sys

_MEASURE = """
import json, sys, time
begun_s = time.perf_counter()
import kvext
took_s = time.perf_counter() - begun_s
import kvext.errors, kvext.protocol.key, kvext.protocol.digest, kvext.config, kvext.cli
print(json.dumps({"took_s": took_s, "loaded": sorted(sys.modules)}))
"""


def test_import_is_fast_and_loads_neither_torch_nor_an_engine() -> None:
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", _MEASURE])) for _ in range(3)]
    assert min(run["took_s"] for run in runs) < 0.1
    assert not {"torch", "vllm", "triton", "sglang", "transformers"} & set(runs[0]["loaded"])
