# Double of CANN's CMake package (see ../README.md): builds nothing, writes down what it was asked.
set(cann_double_record "${CMAKE_BINARY_DIR}/calls.txt")
file(WRITE "${cann_double_record}" "")

function(cann_double_note name)
  string(REPLACE ";" " " arguments "${ARGN}")
  file(APPEND "${cann_double_record}" "${name} ${arguments}\n")
endfunction()

function(cann_double_require file)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "There is no file ${file}.")
  endif()
endfunction()

function(npu_op_package name)
  cann_double_note(npu_op_package ${name} ${ARGN})
endfunction()

function(npu_op_package_add name)
  cann_double_note(npu_op_package_add ${name} ${ARGN})
endfunction()

function(npu_op_code_gen)
  cmake_parse_arguments(GEN "" "PACKAGE;OUT_DIR" "SRC;COMPILE_OPTIONS;OPTIONS" ${ARGN})
  foreach(source ${GEN_SRC})
    cann_double_require("${source}")
  endforeach()
  cann_double_note(npu_op_code_gen ${ARGN})
endfunction()

function(npu_op_library name type)
  foreach(source ${ARGN})
    cann_double_require("${source}")
  endforeach()
  add_library(${name} INTERFACE)
  cann_double_note(npu_op_library ${name} ${type} ${ARGN})
endfunction()

# The real libraries take PRIVATE options; an interface library takes none.
function(target_include_directories)
endfunction()
function(target_compile_options)
endfunction()

function(npu_op_kernel_options name)
  cann_double_note(npu_op_kernel_options ${name} ${ARGN})
endfunction()

function(npu_op_kernel_sources name)
  cmake_parse_arguments(KERNEL "" "OP_TYPE;KERNEL_DIR;KERNEL_FILE" "COMPUTE_UNIT" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY cann_double_kernels "${KERNEL_KERNEL_DIR}/${KERNEL_KERNEL_FILE}")
  cann_double_note(npu_op_kernel_sources ${name} ${ARGN})
endfunction()

function(npu_op_kernel_library name)
  cmake_parse_arguments(KERNEL "" "SRC_BASE;TILING_LIBRARY" "" ${ARGN})
  get_property(files GLOBAL PROPERTY cann_double_kernels)
  foreach(file ${files})
    cann_double_require("${KERNEL_SRC_BASE}/${file}")
  endforeach()
  cann_double_note(npu_op_kernel_library ${name} ${ARGN})
endfunction()
