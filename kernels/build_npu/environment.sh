# shellcheck shell=bash
# Looks for all that the build needs; each lack is one sentence, and all are listed.

# What the doctor (asr_ascend/doctor) looks for too: one table for both.
versions=$repository/asr_ascend/npu_versions.json
version_of() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$versions"; }
list_of() { sed -n "s/^  \"$1\": \[\(.*\)\],\$/\1/p" "$versions" | tr -d '",'; }
least_cmake=$(version_of least_cmake)
least_gcc=$(version_of least_gcc)
least_cann=$(version_of least_cann)
job_gib=$(version_of job_gib) # what compiling torch's headers takes, about

check_environment() {
  check_machine
  if [ "$wants_package" = yes ]; then
    check_toolkit
    check_install_path
  fi
  check_host_tools
  if [ "$wants_binding" = yes ]; then check_torch; fi
}

at_least() { # version, least
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

check_toolkit() {
  cann_version=unknown
  if [ -z "$cann" ]; then
    local root
    for root in ${ASCEND_ROOTS:-/usr/local/Ascend "$HOME/Ascend"}; do
      local script
      for script in "$root"/ascend-toolkit/set_env.sh "$root"/cann/set_env.sh "$root"/set_env.sh; do
        [ -f "$script" ] || continue
        problem "\`ASCEND_HOME_PATH\` is not set: run \`source $script\` first."
        return
      done
    done
    problem "CANN is missing: \`ASCEND_HOME_PATH\` is not set and there is no toolkit in ${ASCEND_ROOTS:-/usr/local/Ascend or $HOME/Ascend}. Install the CANN toolkit for Atlas A2, $least_cann or later, and source its set_env.sh."
    return
  fi
  if [ ! -d "$cann" ]; then
    problem "\`ASCEND_HOME_PATH\` (or --cann) must be the CANN toolkit's folder, but there is no folder $cann."
    return
  fi
  read_toolkit_version
  local machine
  machine=$(uname -m)
  if [ -n "$cann_machine" ] && [ "$cann_machine" != "$machine" ]; then
    problem "the CANN toolkit in $cann is for $cann_machine, but this machine is $machine."
  fi
  asc_dir=$(find_asc)
  if [ "$cann_version" != unknown ] && ! at_least "$cann_version" "$least_cann"; then
    problem "the CANN toolkit must be $least_cann or later, but the one in $cann is $cann_version, which builds packages by msopgen only."
  elif [ -z "$asc_dir" ]; then
    problem "the CANN toolkit in $cann ($cann_version) has no ASCConfig.cmake: the operator package needs CANN $least_cann or later."
  fi
  check_toolkit_programs
}

# CANN's build rules and the scripts that they write call these by name, so PATH must have them.
check_toolkit_programs() {
  local name found
  device_compiler=$(command -v bisheng)
  for name in $(list_of toolkit_programs); do
    command -v "$name" >/dev/null && continue
    found=$(find -L "$cann" -maxdepth 5 -name "$name" -perm -u+x -not -type d 2>/dev/null | head -n 1)
    if [ -n "$found" ]; then
      problem "$name is not in PATH, where CANN's build looks for it: run \`source $(set_env_script)\` first (it is $found)."
    else
      problem "there is no $name in $cann: the runtime alone (nnrt, nnae) can't build, install the toolkit."
    fi
  done
  if ! command -v python3 >/dev/null; then
    problem "python3 is not in PATH, where CANN's build looks for it."
  fi
}

# Beside the toolkit's folder in CANN 8, inside of it from CANN 9 on.
set_env_script() {
  local script
  for script in "$cann"/set_env.sh "${cann%/*}"/set_env.sh; do
    [ -f "$script" ] || continue
    echo "$script"
    return
  done
  echo "$cann/set_env.sh"
}

read_toolkit_version() {
  local file
  cann_machine=''
  for file in "$cann"/"$(uname -m)"-linux/ascend_toolkit_install.info "$cann"/*/ascend_toolkit_install.info \
    "$cann"/ascend_toolkit_install.info "$cann"/version.cfg "$cann"/compiler/version.info; do
    [ -f "$file" ] || continue
    cann_version=$(sed -n 's/^[Vv]ersion=//p' "$file" | head -n 1)
    cann_machine=$(sed -n 's/^arch=//p' "$file" | head -n 1)
    [ -n "$cann_version" ] && return
  done
  cann_version=unknown
}

find_asc() {
  local folder
  for folder in "$cann"/compiler/tikcpp/ascendc_kernel_cmake "$cann"/tools/tikcpp/ascendc_kernel_cmake \
    "$cann"/lib64/cmake/ASC "$cann"/lib/cmake/ASC "$cann"/cmake/ASC "$cann"/*-linux/tikcpp/ascendc_kernel_cmake; do
    [ -f "$folder/ASCConfig.cmake" ] || [ -f "$folder/asc-config.cmake" ] || continue
    echo "$folder"
    return
  done
}

# Chips by the names that `npu-smi info -m` prints: rows of patterns and CANN's name.
soc_of_chip() {
  local row soc pattern patterns
  while read -r row soc; do
    IFS='|' read -r -a patterns <<<"$row"
    for pattern in "${patterns[@]}"; do
      # shellcheck disable=SC2254
      case $1 in
        $pattern)
          echo "$soc"
          return
          ;;
      esac
    done
  done < <(sed -n '/^  "chips": \[/,/^  \]/s/^    "\(.*\)",\{0,1\}$/\1/p' "$versions")
  echo unknown
}

check_machine() {
  chip=''
  if ! command -v npu-smi >/dev/null; then
    note "npu-smi is not in PATH: whether this machine's chip is $soc is not checked."
    return
  fi
  local answer
  if ! answer=$(npu-smi info -m 2>&1); then
    problem "npu-smi fails, so the driver isn't ready: $(grep -m1 . <<<"$answer")"
    return
  fi
  chip=$(grep -v -i -w mcu <<<"$answer" | grep -oE '(Ascend ?|[[:space:]])(910|310)[A-Za-z0-9_]*' | head -n 1 | sed -E 's/^(Ascend)?[[:space:]]*//')
  if [ -z "$chip" ]; then
    note "npu-smi names no chip: whether it is $soc is not checked."
    return
  fi
  local found
  found=$(soc_of_chip "$chip")
  if [ "$found" = unknown ]; then
    note "npu-smi names a chip $chip that build.sh doesn't know: whether it is $soc is not checked."
  elif [ "$found" != "$soc" ]; then
    problem "this machine's chip is $chip ($found), but the kernels are for $soc and would not start on it."
  fi
}

check_host_tools() {
  local version
  if command -v "$python" >/dev/null; then
    python=$(command -v "$python")
  else
    problem "there is no Python $python: give --python."
  fi
  if ! command -v cmake >/dev/null; then
    problem "cmake is missing: install $least_cmake or later."
  else
    version=$(cmake --version | sed -n 's/^cmake version //p')
    at_least "$version" "$least_cmake" || problem "cmake must be $least_cmake or later, but is $version."
  fi
  if ! command -v make >/dev/null && ! command -v ninja >/dev/null; then problem "make is missing."; fi
  if ! command -v "$cxx" >/dev/null; then
    problem "the C++ compiler $cxx is missing: install g++ $least_gcc or later, or give --cxx."
    cxx_version=missing
    return
  fi
  cxx_version=$("$cxx" -dumpfullversion -dumpversion 2>/dev/null | head -n 1)
  if ! grep -q -i clang <<<"$("$cxx" --version 2>/dev/null)" && ! at_least "$cxx_version" "$least_gcc"; then
    problem "the C++ compiler $cxx must be g++ $least_gcc or later for torch's headers, but is $cxx_version."
  fi
}

check_torch() {
  torch_version=missing torch_npu_version=missing torch_abi='' python_version=''
  command -v "$python" >/dev/null || return
  local line
  while IFS= read -r line; do
    case $line in
      python=*) python_version=${line#*=} ;;
      torch=*) torch_version=${line#*=} ;;
      torch_npu=*) torch_npu_version=${line#*=} ;;
      abi=*) torch_abi=${line#*=} ;;
      problem=*) problem "${line#*=}" ;;
      note=*) note "${line#*=}" ;;
    esac
  done < <("$python" "$kernels/build_npu/describe_torch.py" "${cann_version:-unknown}" 2>&1 || echo "problem=$python can't run describe_torch.py.")
}

# Jobs at once: what was asked for, or the processors; fewer where the memory doesn't hold them.
choose_jobs() {
  local asked=${jobs:-$(nproc)} fit
  [ -n "$memory_gib" ] || memory_gib=$(free_gib)
  fit=$((memory_gib / job_gib))
  [ "$fit" -ge 1 ] || fit=1
  if [ "$asked" -gt "$fit" ]; then
    jobs=$fit
    say "$jobs compile job(s) instead of $asked: $memory_gib GiB of memory are free, and one takes up to $job_gib."
  else
    jobs=$asked
  fi
}

# Free memory in GiB; a container may be allowed less than the machine has.
free_gib() {
  local free limit used
  free=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [ "$limit" != max ]; then
    used=$(cat /sys/fs/cgroup/memory.current)
    limit=$(((limit - used) / 1073741824))
    [ "$limit" -ge "$free" ] || free=$limit
  fi
  echo "$free"
}
