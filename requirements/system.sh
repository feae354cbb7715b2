#!/usr/bin/env bash
# Install what pip cannot: usage `system.sh PYTHON`. Each line below is a need, how it is recognised,
# and the Debian/Ubuntu package that meets it. Nothing is installed that is already there.
set -euo pipefail
python=${1:?usage: system.sh PYTHON}

has_header() { echo "#include <$1>" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; }
has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
has_python_header() {
    "$python" -c 'import pathlib, sysconfig as s, sys
sys.exit(not (pathlib.Path(s.get_path("include")) / "Python.h").exists())'
}
has_library() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -F "$1" >/dev/null; }

version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
missing=()
command -v "${CXX:-c++}" >/dev/null || missing+=(g++)
has_venv || missing+=("$version-venv")               # makes the virtual environment
has_python_header || missing+=("$version-dev")       # the native core includes Python.h
has_header xxhash.h || missing+=(libxxhash-dev)      # the native core's checksum
has_library libnuma.so.1 || missing+=(libnuma1)      # vLLM's CPU kernels load it

[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]} with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "setup: this machine lacks ${missing[*]} (Debian's names). Install them, for example:" >&2
    echo "    sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
