# shellcheck shell=bash
# Where custom operators are found at run time. torch_npu looks into the folders of
# ASCEND_CUSTOM_OPP_PATH first, in their order, then into vendors/ of ASCEND_OPP_PATH in the order
# of config.ini; the first library with the symbol is the one that runs. A package that is installed
# with --install-path, as build.sh does, writes bin/set_env.bash for the former and no config.ini.

check_install_path() {
  if [ -z "$install_path" ]; then
    if [ -z "${ASCEND_OPP_PATH:-}" ]; then
      [ -n "$cann" ] && [ -d "$cann" ] && problem "\`ASCEND_OPP_PATH\` is not set: run \`source $(set_env_script)\`, or give --install-path."
      return
    fi
    install_path=$ASCEND_OPP_PATH
    if [[ $install_path != /* ]]; then
      problem "\`ASCEND_OPP_PATH\` must be absolute, but is $install_path: run \`source $(set_env_script)\`, or give --install-path."
      return
    fi
  fi
  local folder=$install_path
  while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
  if [ ! -d "$folder" ] || [ ! -w "$folder" ] || { [ -d "$install_path/vendors" ] && [ ! -w "$install_path/vendors" ]; }; then
    problem "the package can't be installed in $install_path, which is not writable: give --install-path."
    return
  fi
  vendor_folder=$install_path/vendors/$vendor
  check_custom_path
  check_other_vendors
}

# Whether a vendor's package has our operator.
has_operator() {
  [ -e "$1/op_api/lib/libcust_opapi.so" ] && grep -q aclnnRnntLossFused "$1/op_api/lib/libcust_opapi.so"
}

check_custom_path() {
  local folders folder
  IFS=: read -r -a folders <<<"${ASCEND_CUSTOM_OPP_PATH:-}"
  for folder in "${folders[@]}"; do
    [ -n "$folder" ] || continue
    [ "$(readlink -m "$folder")" = "$(readlink -m "$vendor_folder")" ] && return
    if [ ! -d "$folder" ]; then
      note "\`ASCEND_CUSTOM_OPP_PATH\` names a folder that isn't there: $folder."
    elif [ -d "$folder/vendors" ]; then
      note "\`ASCEND_CUSTOM_OPP_PATH\` must name vendors' own folders, such as $folder/vendors/$vendor, but names $folder."
    elif has_operator "$folder"; then
      problem "\`ASCEND_CUSTOM_OPP_PATH\` puts $folder first, which has an RnntLossFused of its own: that one would run instead of this one. Take it out, or put $vendor_folder before it."
    fi
  done
}

# Other vendors of ASCEND_OPP_PATH run wherever nothing names ours in ASCEND_CUSTOM_OPP_PATH.
check_other_vendors() {
  local folder
  for folder in "${ASCEND_OPP_PATH:-$install_path}"/vendors/*; do
    [ "$(readlink -m "$folder")" != "$(readlink -m "$vendor_folder")" ] || continue
    has_operator "$folder" || continue
    note "$folder has an RnntLossFused of its own, which runs in every shell that doesn't source $vendor_folder/bin/set_env.bash."
  done
}

is_found_at_run_time() {
  case ":${ASCEND_CUSTOM_OPP_PATH:-}:" in *":$vendor_folder:"*) return 0 ;; esac
  return 1
}

say_what_to_source() {
  [ "$wants_package" = yes ] || return 0
  is_found_at_run_time && return 0
  say "In every shell that uses the operator: source $vendor_folder/bin/set_env.bash"
}
