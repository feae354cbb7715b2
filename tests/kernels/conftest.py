"""Which of these tests can run here: they need torch, some of them Triton.

A process decides once and for all whether Triton interprets, so what needs that has a process of
its own, which `test_interpreter.py` starts.
"""

import importlib.util
import os

collect_ignore_glob: list[str] = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("*")
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob += ["test_compile.py", "test_interpreter.py", "test_launch.py"]
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob.append("interpreted/*")
