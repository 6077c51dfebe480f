# shellcheck shell=bash
# The torch binding: compiled against this Python's torch, put beside the package, and looked at.

binding_library=$repository/asr_ascend/lib/libasr_ascend_npu.so

build_binding() {
  local folder=$build_dir/binding built
  # setuptools takes compilers from these; torch's build extension adds its own ABI flag.
  step binding "compiling the torch binding (torch $torch_version, C++11 ABI $torch_abi)" \
    in_folder "$kernels/torch_binding" env "CXX=$cxx" "CC=$cxx" "MAX_JOBS=$jobs" \
    "$python" setup.py --quiet build_ext --build-lib "$folder" --build-temp "$folder/objects"
  built=$folder/${binding_library##*/}
  if [ ! -f "$built" ]; then
    echo "build.sh: setup.py succeeded but left no $built." >&2
    exit 1
  fi
  mkdir -p "${binding_library%/*}"
  # A library in use must not change under its users: a new file takes its name.
  cp "$built" "$binding_library.new" && mv "$binding_library.new" "$binding_library"
}

in_folder() { (cd "$1" && shift && "$@"); }

# Runs a Python file of this folder with the package of this checkout.
run_python() { # log, file, arguments...
  local log=$1 file=$2
  shift 2
  PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH} "$python" "$kernels/build_npu/$file" "$@" >"$log" 2>&1
}

# What a Python file of this folder complains of; of an exception its last line.
complaint() { # log
  local text
  text=$(sed -n 's/^problem: //p' "$1" | head -n 1)
  echo "${text:-$(tail -n 1 "$1")}"
}

check_binding() {
  local log=$build_dir/logs/load-${binding_library##*/}.log
  if ! run_python "$log" load_binding.py "$binding_library"; then
    cannot_use "$binding_library is built, but can't be used: $(complaint "$log")"
  fi
  if [ -n "${ASR_ASCEND_NPU_LIBRARY:-}" ] && [ "$ASR_ASCEND_NPU_LIBRARY" != "$binding_library" ]; then
    note "\`ASR_ASCEND_NPU_LIBRARY\` makes Python load $ASR_ASCEND_NPU_LIBRARY, not the binding just built."
  fi
  say "The binding is $binding_library; torch takes its operators."
}

run_smoke_test() {
  local log=$build_dir/logs/smoke.log status
  say "running the loss on the NPU ..."
  ASCEND_CUSTOM_OPP_PATH=$vendor_folder${ASCEND_CUSTOM_OPP_PATH:+:$ASCEND_CUSTOM_OPP_PATH} run_python "$log" smoke_test.py
  status=$?
  if [ $status -eq 77 ]; then
    note "no NPU can be used here, so the loss was not run: $(tail -n 1 "$log")"
  elif [ $status -ne 0 ]; then
    cannot_use "the loss doesn't run on the NPU: $(complaint "$log") The log is $log."
  else
    say "$(grep -m 1 '^The loss runs on ' "$log")"
  fi
}
