#!/usr/bin/env bash
# Makes the environment of the NPU tests: torch_npu on the CPU over the stand-in for CANN.
#   make_venv.sh FOLDER PYTHON CMAKE
# FOLDER is a virtual environment of its own, since torch_npu breaks `import torch` wherever CANN is
# not in reach. Where it can't be made, one line says why, FOLDER/unavailable keeps it for the tests'
# reports, and the exit status is 1.
set -uo pipefail

folder=$1 python=$2 cmake=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
log=$folder/make_venv.log
packages=(torch==2.13.0 torch-npu==2.13.0 numpy pytest pytest-timeout pyyaml setuptools "lightning>=2.6,!=2.6.2,!=2.6.3")

unavailable() {
  echo "$1" >"$folder/unavailable"
  echo "NPU tests over the stand-in can't run: $1" >&2
  exit 1
}

rm -f "$folder/unavailable"
[ "$(uname -m)" = x86_64 ] || unavailable "the emulator's half type needs x86-64, this is $(uname -m)."

if [ ! -x "$folder/bin/python" ]; then
  "$python" -m venv "$folder" >"$log" 2>&1 || unavailable "$python can't make a virtual environment; see $log."
fi
if [ "$(cat "$folder/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "Installing ${packages[0]} and ${packages[1]} into ${folder##*/} (minutes on a slow line) ..."
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" >"$log" 2>&1 ||
    unavailable "pip can't install ${packages[0]} and ${packages[1]}: $(grep -m 1 -i error "$log" || tail -n 1 "$log")"
  echo "${packages[*]}" >"$folder/packages"
fi

torch_npu=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib") + "/torch_npu")')
# CMake refuses a build folder of another source folder, as one that was moved.
if ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$here" "$folder/standin/CMakeCache.txt" 2>/dev/null; then
  rm -rf "$folder/standin"
fi
echo "Building the stand-in for CANN and the torch binding ..."
{
  "$cmake" -S "$here" -B "$folder/standin" -G Ninja \
    -DCMAKE_MAKE_PROGRAM="$(cd "$(dirname "$cmake")" && pwd)/ninja" -DPYTHON="$folder/bin/python" -DTORCH_NPU="$torch_npu" &&
    "$cmake" --build "$folder/standin"
} >"$log" 2>&1 || unavailable "the stand-in can't be built: $(grep -m 1 -E 'error|Error' "$log" || tail -n 1 "$log"); see $log."
