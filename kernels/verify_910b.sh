#!/usr/bin/env bash
# One command for the first day on a 910B: see `kernels/verify_910b.sh --help` and BUILD.md.
set -uo pipefail

kernels=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$kernels")

usage() {
  cat <<'TEXT'
usage: kernels/verify_910b.sh [options]

Builds and installs the operator and the binding (kernels/build.sh), then checks on the NPU: the
specification's precision rows and the loss's case list against float64, options, repeatability,
NaN, wrong labels, the emulator's results; times the specification's shapes that fit the memory
beside the time model, and profiles where msprof is. Writes outputs/verify_910b/verify.json and
verify.md, to send back.

  --no-build         take what is installed
  --standin          over the stand-in for CANN that `make venv-npu` builds: tries the kit,
                     proves nothing about a chip, and its times mean nothing
  --python PROGRAM   Python with torch_npu (default: $PYTHON, else python3)
  --out FOLDER       where the results go
  --quick            the small cases alone
  --skip SECTION...  leave out precision, cases, options, behaviour, emulator, times or profile
  --timeout SECONDS  for a section (default: 3600)
  --build-option X   passed to kernels/build.sh; may be given more than once
  --help             this

Exit status: 0 if everything asked for was measured and is right; 1 if not; 2 wrong options;
3 or 4 as kernels/build.sh.
TEXT
}

build=yes stand_in=no python=${PYTHON:-python3} build_options=() verify_options=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --no-build) build=no ;;
    --standin) stand_in=yes ;;
    --python | --build-option)
      if [ $# -lt 2 ]; then
        echo "verify_910b.sh: \`$1\` needs a value." >&2
        exit 2
      fi
      if [ "$1" = --python ]; then python=$2; else build_options+=("$2"); fi
      shift
      ;;
    --python=*) python=${1#*=} ;;
    --build-option=*) build_options+=("${1#*=}") ;;
    *) verify_options+=("$1") ;;
  esac
  shift
done

use_stand_in() {
  local folder=${NPU_VENV:-$repository/.venv-npu}
  if [ ! -f "$folder/standin/binding/libasr_ascend_npu.so" ]; then
    local why=''
    [ ! -f "$folder/unavailable" ] || why=" ($(cat "$folder/unavailable"))"
    echo "verify_910b.sh: there is no stand-in for CANN in $folder: \`make venv-npu\` makes it$why." >&2
    exit 3
  fi
  folder=$(cd "$folder" && pwd)
  python=$folder/bin/python
  export LD_LIBRARY_PATH=$folder/standin/lib
  export ASCEND_CUSTOM_OPP_PATH=$folder/standin/opp
  export ASR_ASCEND_NPU_LIBRARY=$folder/standin/binding/libasr_ascend_npu.so
}

# In the build tree, so that nothing of a first day is left in the system.
build_for_chip() {
  local opp=$repository/build/npu/opp
  "$kernels/build.sh" "--python=$python" "--install-path=$opp" "${build_options[@]}" || {
    local status=$?
    [ $status -ne 3 ] || echo "verify_910b.sh: --standin tries the kit on a machine without a chip." >&2
    exit $status
  }
  export ASCEND_CUSTOM_OPP_PATH=$opp/vendors/asr_ascend${ASCEND_CUSTOM_OPP_PATH:+:$ASCEND_CUSTOM_OPP_PATH}
}

# The CPU kernel judges the numbers of shapes that a lattice in Python takes too long for.
find_cpu_library() {
  "$python" -c 'import sys; from asr_ascend.losses import available_backends; sys.exit("cpu" not in available_backends())' 2>/dev/null && return
  local folder=$repository/build/npu/cpu
  mkdir -p "$folder"
  echo "verify_910b.sh: building the CPU library, against which times are checked ..."
  if ! { cmake -S "$kernels" -B "$folder" && cmake --build "$folder" -j "${MAX_JOBS:-2}"; } >"$folder/build.log" 2>&1; then
    echo "verify_910b.sh: the CPU library can't be built; see $folder/build.log." >&2
    exit 1
  fi
  export ASR_ASCEND_LIBRARY=$folder/libasr_ascend_cpu.so
}

if [ "$stand_in" = yes ]; then
  use_stand_in
elif [ "$build" = yes ]; then
  build_for_chip
fi
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH}
if ! missing=$(TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$python" -c 'import torch, numpy' 2>&1); then
  echo "verify_910b.sh: $python needs torch and numpy: ${missing##*$'\n'}" >&2
  exit 3
fi
find_cpu_library
exec "$python" "$kernels/verify" "${verify_options[@]}"
