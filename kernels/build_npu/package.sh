# shellcheck shell=bash
# The operator package: configured, compiled, installed, and looked at.

read -r -a operators <<<"$(list_of operators)"

build_package() {
  local folder=$build_dir/package
  step package-configure "configuring the operator package" env "ASCEND_HOME_PATH=$cann" cmake \
    -S "$kernels/rnnt_loss_fused" -B "$folder" "-DASC_DIR=$asc_dir" "-DCMAKE_PREFIX_PATH=$cann" \
    "-DCMAKE_CXX_COMPILER=$cxx" "-Dvendor_name=$vendor" "-DASCEND_COMPUTE_UNIT=$soc" -DCMAKE_BUILD_TYPE=Release
  step package-binary "compiling the kernels for $soc" env "ASCEND_HOME_PATH=$cann" cmake \
    --build "$folder" --target binary -j "$jobs"
  step package-package "packing the operators" env "ASCEND_HOME_PATH=$cann" cmake \
    --build "$folder" --target package -j "$jobs"
}

install_package() {
  local packages
  mapfile -t packages < <(find "$build_dir/package" -name '*.run' -newer "$build_dir/logs/package-configure.log" -not -path '*/_CPack_Packages/*')
  if [ ${#packages[@]} -ne 1 ]; then
    echo "build.sh: the build must leave one .run package in $build_dir/package, but left ${#packages[@]}." >&2
    exit 1
  fi
  mkdir -p "$install_path"
  step package-install "installing ${packages[0]##*/} in $install_path" bash "${packages[0]}" --quiet "--install-path=$install_path"
}

cannot_use() {
  echo "build.sh: $*" >&2
  exit 4
}

check_package() {
  local library=$vendor_folder/op_api/lib/libcust_opapi.so operator name
  [ -d "$vendor_folder" ] || cannot_use "the package was installed, but there is no $vendor_folder: was it made for another vendor name?"
  [ -f "$library" ] || cannot_use "the package was installed, but it has no op_api/lib/libcust_opapi.so."
  for operator in "${operators[@]}"; do
    for name in "aclnn${operator}GetWorkspaceSize" "aclnn$operator"; do
      has_symbol "$library" "$name" || cannot_use "$library has no symbol $name."
    done
    check_kernel_binary "$operator"
  done
  check_loads "$library"
  say "The package is installed in $vendor_folder; its libraries load."
}

has_symbol() { # library, name
  nm -D --defined-only "$1" 2>/dev/null | grep -q " T $2\$"
}

# A package without a chip's kernels installs without a word, and fails at the first launch.
check_kernel_binary() {
  local folder snake
  snake=$(sed -E 's/([a-z])([A-Z])/\1_\2/g' <<<"$1" | tr '[:upper:]' '[:lower:]')
  folder=$vendor_folder/op_impl/ai_core/tbe/kernel/$soc/$snake
  if ! compgen -G "$folder/*.o" >/dev/null; then
    cannot_use "the package has no kernel of $1 for $soc: there is no .o in $folder."
  fi
}

check_loads() { # library
  local log=$build_dir/logs/load-${1##*/}.log
  if ! LD_LIBRARY_PATH=$cann/lib64:${LD_LIBRARY_PATH:-} "$python" -c \
    'import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)' "$1" >"$log" 2>&1; then
    cannot_use "$1 doesn't load: $(sed -n 's/^OSError: //p' "$log" | head -n 1)"
  fi
}
