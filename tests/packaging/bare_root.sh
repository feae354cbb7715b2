#!/usr/bin/env bash
# Try the wheel where nothing can be compiled: `bare_root.sh PYTHON FOLDER`, FOLDER holding kvext's wheel
# and those of its dependencies. The root made here has the system's libraries and one Python: no
# shell, no compiler, no header, no network needed. Whoever is not root gets it in a user namespace;
# where the system allows neither, only the search path is bare, and the last line says so.
set -euo pipefail
python=$("${1:?usage: bare_root.sh PYTHON FOLDER}" -c 'import os, sys; print(os.path.realpath(sys.executable))')
wheels=$(readlink -f "${2:?usage: bare_root.sh PYTHON FOLDER}")
here=$(cd "$(dirname "$0")" && pwd)

bare=(env -i HOME=/tmp CC=/bin/false CXX=/bin/false LC_ALL=C.UTF-8)
install=(-m pip install --quiet --no-index --no-cache-dir --only-binary :all: kvext --find-links)

if [ -z "${KVEXT_BARE_ROOT:-}" ]; then
    enter=(unshare --mount --propagation private)
    [ "$(id -u)" -eq 0 ] || enter+=(--user --map-root-user)
    if "${enter[@]}" true 2>/dev/null; then
        root=$(mktemp -d)
        trap 'rmdir "$root"' EXIT # what is mounted there ends with its namespace
        KVEXT_BARE_ROOT=$root "${enter[@]}" "$0" "$python" "$wheels"
        exit
    fi
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    "$python" -m venv "$venv"
    "${bare[@]}" PATH="$venv/bin" "$venv/bin/python" "${install[@]}" "$wheels"
    "${bare[@]}" PATH="$venv/bin" "$venv/bin/python" "$here/installed_wheel.py" --bare path
    exit
fi

root=$KVEXT_BARE_ROOT
mount -t tmpfs tmpfs "$root"

show() { # at the same place, read-only
    [ -e "$1" ] || return 0
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root$(dirname "$1")" && touch "$root$1"; fi
    mount --rbind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1" 2>/dev/null || true
}

prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
show /usr/lib
show /usr/lib64
for folder in lib lib64; do
    if [ -L "/$folder" ]; then ln -s "usr/$folder" "$root/$folder"; else show "/$folder"; fi
done
for compiler in "$root"/usr/lib/gcc* "$root"/usr/lib/llvm*; do # g++ keeps its passes there
    [ ! -d "$compiler" ] || mount -t tmpfs tmpfs "$compiler"
done
[ "$prefix" = /usr ] || show "$prefix/lib"
show "$python"
show /usr/share/python-wheels # where Debian's venv keeps pip
show /dev
show /proc
mkdir -p "$root/tmp" "$root/trial"
cp "$here/installed_wheel.py" "$root/trial/"
cp -r "$wheels" "$root/trial/wheels"

chroot=$(command -v chroot || echo /usr/sbin/chroot)
run() { "${bare[@]}" PATH=/trial/venv/bin "$chroot" "$root" "$@"; }
run "$python" -m venv /trial/venv
run /trial/venv/bin/python "${install[@]}" /trial/wheels
run /trial/venv/bin/python /trial/installed_wheel.py --bare root
