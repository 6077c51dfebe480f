# shellcheck shell=bash
# Where custom operators are found at run time. torch_npu looks into the folders of
# ASCEND_CUSTOM_OPP_PATH first, in their order, then into vendors/ of ASCEND_OPP_PATH in the order
# of config.ini; the first library with the symbol is the one that runs.

check_install_path() {
  if [ -z "$install_path" ]; then
    if [ -z "${ASCEND_OPP_PATH:-}" ]; then
      [ -n "$cann" ] && [ -d "$cann" ] && problem "\`ASCEND_OPP_PATH\` is not set: run \`source $cann/set_env.sh\`, or give --install-path."
      return
    fi
    install_path=$ASCEND_OPP_PATH
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

# The first vendor that config.ini puts before ours and that has the same operators. Nothing where
# ours isn't listed: installing lists it.
vendor_before_ours() {
  local order names name
  order=$(sed -n 's/^load_priority=//p' "$install_path/vendors/config.ini" 2>/dev/null)
  case ",$order," in *",$vendor,"*) ;; *) return ;; esac
  IFS=, read -r -a names <<<"$order"
  for name in "${names[@]}"; do
    [ "$name" = "$vendor" ] && return
    if has_operator "$install_path/vendors/$name"; then
      echo "$name"
      return
    fi
  done
}

check_other_vendors() {
  local other
  other=$(vendor_before_ours)
  [ -z "$other" ] || problem "$(say_vendor_before_ours "$other")"
}

say_vendor_before_ours() {
  echo "$install_path/vendors/config.ini lists $1 before $vendor, and $1 has an RnntLossFused of its own: that one would run instead of this one. Remove it, or put $vendor first."
}

is_found_at_run_time() {
  case ":${ASCEND_CUSTOM_OPP_PATH:-}:" in *":$vendor_folder:"*) return 0 ;; esac
  [ "$install_path" = "${ASCEND_OPP_PATH:-}" ] &&
    grep -q "^load_priority=\(.*,\)\?$vendor\(,.*\)\?$" "$install_path/vendors/config.ini" 2>/dev/null
}

say_what_to_source() {
  [ "$wants_package" = yes ] || return 0
  is_found_at_run_time && return 0
  say "In every shell that uses the operator: source $vendor_folder/bin/set_env.bash"
}
