# shellcheck shell=bash
# The environment of a build, written down, so that a later one notices what has changed.

record=$build_dir/environment.txt

package_environment() {
  echo "cann=$cann"
  echo "cann_version=$cann_version"
  echo "device_compiler=$device_compiler"
  echo "soc=$soc"
  echo "vendor=$vendor"
  echo "machine=$(uname -m)"
  echo "package_cxx=$cxx $cxx_version"
  echo "package_source=$kernels"
}

binding_environment() {
  echo "python=$python"
  echo "python_version=$python_version"
  echo "torch=$torch_version"
  echo "torch_npu=$torch_npu_version"
  echo "cxx11_abi=$torch_abi"
  echo "binding_cxx=$cxx $cxx_version"
  echo "binding_source=$kernels"
}

# Says the first thing of a part that is not as recorded; nothing where all is.
changed_since_record() { # part
  local line key before
  while IFS= read -r line; do
    key=${line%%=*}
    before=$(sed -n "s/^$key=//p" "$record" 2>/dev/null | head -n 1)
    if [ -z "$before" ]; then
      echo "there is no record of the last build's $key"
      return
    fi
    if [ "$before" != "${line#*=}" ]; then
      echo "$key was $before and is ${line#*=}"
      return
    fi
  done < <("$1_environment")
}

# A cache made by another torch or toolkit compiles without a word and then fails to load.
discard_stale_builds() {
  local part change
  for part in package binding; do
    local wanted=wants_$part folder=$build_dir/$part
    [ "${!wanted}" = yes ] && [ -d "$folder" ] || continue
    change=$(changed_since_record "$part")
    [ "$clean" = no ] || change="--clean was given"
    [ -n "$change" ] || continue
    say "$change: the $part is built anew."
    rm -rf "$folder" "$folder-kernel_sources"
  done
}

# Keeps the lines of a part that was not built this time.
write_record() {
  local lines='' part
  for part in package binding; do
    local wanted=wants_$part
    if [ "${!wanted}" = yes ]; then
      lines+=$("${part}_environment")$'\n'
    elif [ -f "$record" ]; then
      lines+=$(grep -E "^($("${part}_keys"))=" "$record")$'\n'
    fi
  done
  grep . <<<"$lines" >"$record.new"
  mv "$record.new" "$record"
}

package_keys() { echo 'cann|cann_version|device_compiler|soc|vendor|machine|package_cxx|package_source'; }
binding_keys() { echo 'python|python_version|torch|torch_npu|cxx11_abi|binding_cxx|binding_source'; }
