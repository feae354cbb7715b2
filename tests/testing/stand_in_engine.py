"""A server with the endpoints that `ServedEngine` uses, and processes and leaks like an engine's.

usage: stand_in_engine.py [--refuse] [--cut-off] [--shared-memory NAME] --host HOST --port PORT
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.shared_memory import SharedMemory
from typing import Any

METRICS = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:prompt_tokens_total{engine="0",model_name="a {b} c"} 7.0
vllm:prompt_tokens_total{engine="1",model_name="a {b} c"} 5.0
vllm:external_prefix_cache_hits_total{engine="0"} 1.28e+02
kvext:store_seconds_total{engine="0"} 0.25
"""
USAGE = {"prompt_tokens": 12}
STREAM: list[dict[str, Any]] = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "two"}, "token_ids": [7]}]},
    {"choices": [{"delta": {"content": " words"}, "token_ids": [8, 9]}]},
    {"choices": [], "usage": USAGE},
]
WHOLE = {
    "choices": [{"message": {"content": "two words"}, "token_ids": [7, 8, 9]}],
    "usage": USAGE,
    "kv_transfer_params": {"kvext": {"pool_tokens": 96}},
}


class Endpoints(BaseHTTPRequestHandler):
    cut_off = False

    def do_GET(self) -> None:
        self.answer(METRICS if self.path == "/metrics" else "")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        request = json.loads(body or b"{}")
        if request.get("max_tokens") == 0:
            self.answer("max_tokens must be at least 1", status=400)
        elif request.get("stream"):
            end = "" if self.cut_off else "data: [DONE]\n\n"
            self.answer("".join(f"data: {json.dumps(event)}\n\n" for event in STREAM) + end)
        else:
            self.answer(json.dumps(WHOLE))

    def answer(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--cut-off", action="store_true")
    parser.add_argument("--shared-memory")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.refuse:
        sys.exit("unknown option 'pool_sise'; did you mean 'pool_size'?")
    Endpoints.cut_off = options.cut_off
    if options.shared_memory:
        # Removed by nobody but Python's resource tracker if this process is killed.
        SharedMemory(options.shared_memory, create=True, size=4096)
    worker = multiprocessing.get_context("fork").Process(target=signal.pause)
    worker.start()

    def end(*_: object) -> None:
        worker.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    HTTPServer((options.host, options.port), Endpoints).serve_forever()


if __name__ == "__main__":
    main()
