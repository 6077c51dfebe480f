#!/usr/bin/env bash
# Builds and installs what an Ascend 910B needs: see `kernels/build.sh --help` and BUILD.md.
set -uo pipefail

kernels=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$kernels")

usage() {
  cat <<'TEXT'
usage: kernels/build.sh [options]

Builds and installs the operator package (AscendC, with a CANN toolkit of 8.5 or later) and the torch binding
(with torch and torch_npu) for an Ascend 910B, checks that both load, and runs a smoke test.

  --check              look at the environment and build nothing
  --only PART          package or binding (default: both)
  --cann FOLDER        the CANN toolkit (default: $ASCEND_HOME_PATH)
  --python PROGRAM     Python whose torch the binding is for (default: $PYTHON, else python3)
  --cxx PROGRAM        C++ compiler of the host (default: $CXX, else g++)
  --soc NAME           chip to compile for (default: ascend910b)
  --vendor NAME        folder of the package under vendors/ (default: asr_ascend)
  --install-path PATH  where vendors/ is (default: $ASCEND_OPP_PATH)
  --build-dir FOLDER   build tree, logs and record (default: build/npu)
  --jobs N             compile jobs at most (default: $MAX_JOBS, else the processors)
  --memory GIB         memory to count with (default: what is free, and the container's limit)
  --clean              build anew
  --no-smoke           don't run the loss on the NPU at the end
  --help               this

Exit status: 0 all done; 1 a build failed; 2 wrong options; 3 something is missing or wrong in the
environment, all of it listed; 4 what was built doesn't load or gives wrong numbers.
TEXT
}

fail_usage() {
  echo "build.sh: $1" >&2
  echo "Try kernels/build.sh --help." >&2
  exit 2
}

check_only=no only=all cann=${ASCEND_HOME_PATH:-} python=${PYTHON:-python3} cxx=${CXX:-g++}
soc=ascend910b vendor=asr_ascend install_path='' build_dir=$repository/build/npu
jobs=${MAX_JOBS:-} memory_gib='' clean=no smoke=yes

while [ $# -gt 0 ]; do
  option=$1
  case $option in
    --check) check_only=yes ;;
    --clean) clean=yes ;;
    --no-smoke) smoke=no ;;
    --help | -h)
      usage
      exit 0
      ;;
    --*=*)
      set -- "${option%%=*}" "${option#*=}" "${@:2}"
      continue
      ;;
    --only | --cann | --python | --cxx | --soc | --vendor | --install-path | --build-dir | --jobs | --memory)
      [ $# -ge 2 ] || fail_usage "\`$option\` needs a value."
      value=$2
      shift
      case $option in
        --only) only=$value ;;
        --cann) cann=$value ;;
        --python) python=$value ;;
        --cxx) cxx=$value ;;
        --soc) soc=$value ;;
        --vendor) vendor=$value ;;
        --install-path) install_path=$value ;;
        --build-dir) build_dir=$value ;;
        --jobs) jobs=$value ;;
        --memory) memory_gib=$value ;;
      esac
      ;;
    *) fail_usage "there is no option \`$option\`." ;;
  esac
  shift
done

case $only in all | package | binding) ;; *) fail_usage "\`--only\` must be package or binding, but is $only." ;; esac
[[ $jobs =~ ^([1-9][0-9]*)?$ ]] || fail_usage "\`--jobs\` (or MAX_JOBS) must be a number above 0, but is $jobs."
[[ $memory_gib =~ ^([1-9][0-9]*)?$ ]] || fail_usage "\`--memory\` must be a number of GiB above 0, but is $memory_gib."
[[ $vendor =~ ^[a-z][a-z0-9_]*$ ]] || fail_usage "\`--vendor\` must be lower-case letters, digits and _, but is $vendor."
if [ "$vendor" = customize ]; then
  fail_usage "\`--vendor\` must not be customize: the samples' packages have that name, and the next one installed would replace this one."
fi
supported_socs=$(grep -oh 'AddConfig("[a-z0-9_]*"' "$kernels"/rnnt_loss_fused/op_host/*.cpp | sort -u | cut -d'"' -f2 | tr '\n' ' ')
case " $supported_socs" in
  *" $soc "*) ;;
  *) fail_usage "\`--soc\` must be one that the operator is defined for (${supported_socs% }), but is $soc." ;;
esac
[[ $install_path =~ ^(/.*)?$ ]] || fail_usage "\`--install-path\` must be absolute, but is $install_path."
[ "$only" != binding ] && wants_package=yes || wants_package=no
[ "$only" != package ] && wants_binding=yes || wants_binding=no
mkdir -p "$build_dir/logs" || fail_usage "\`--build-dir\` can't be made: $build_dir."
build_dir=$(cd "$build_dir" && pwd)

# shellcheck source=kernels/build_npu/report.sh
. "$kernels/build_npu/report.sh"
# shellcheck source=kernels/build_npu/environment.sh
. "$kernels/build_npu/environment.sh"
# shellcheck source=kernels/build_npu/vendors.sh
. "$kernels/build_npu/vendors.sh"
# shellcheck source=kernels/build_npu/record.sh
. "$kernels/build_npu/record.sh"
# shellcheck source=kernels/build_npu/package.sh
. "$kernels/build_npu/package.sh"
# shellcheck source=kernels/build_npu/binding.sh
. "$kernels/build_npu/binding.sh"

check_environment
stop_if_problems
choose_jobs
if [ "$check_only" = yes ]; then
  say "Nothing is missing."
  exit 0
fi

discard_stale_builds
write_record
if [ "$wants_package" = yes ]; then
  build_package
  install_package
  check_package
fi
if [ "$wants_binding" = yes ]; then
  build_binding
  check_binding
fi
if [ "$smoke" = yes ] && [ "$only" = all ]; then run_smoke_test; fi
say_what_to_source
say "Done. Record of the environment: $record"
