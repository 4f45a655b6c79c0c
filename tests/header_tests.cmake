# Every header that has no source of its own compiles by itself, and twice. (Of the others the source includes its header
# first, which tests/check_includes.py asks for, as tests/check_used_names.py does for what is used.) Only parsed, and only when
# asked for (make check-headers): one run of the compiler each is a good part of a build.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/*.h)
if(FSDPBENCH_CUDA) # the others are the CPU build's
  list(FILTER headers INCLUDE REGEX "^backend/cuda/")
else()
  list(FILTER headers EXCLUDE REGEX "^backend/cuda/")
  list(APPEND headers backend/cuda/backend.h backend/cuda/plugin.h)
endif()
set(units)
foreach(header ${headers})
  string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${source})
    continue()
  endif()
  string(REPLACE "/" "__" stem ${header})
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/headers/${stem}.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
  list(APPEND units ${unit})
endforeach()
add_library(header_tests OBJECT EXCLUDE_FROM_ALL ${units})
target_link_libraries(header_tests PRIVATE fsdpbench_app DNNL::dnnl OpenMP::OpenMP_CXX)
if(FSDPBENCH_CUDA)
  target_link_libraries(header_tests PRIVATE fsdpbench_cuda_headers)
endif()
target_compile_options(header_tests PRIVATE -O0 -fsyntax-only)
set_target_properties(header_tests PROPERTIES CXX_COMPILER_LAUNCHER "") # no object, nothing to keep
