# The CUDA toolkit and NVIDIA's libraries, for the plugin only: with FSDPBENCH_CUDA, and nowhere else. What is missing
# stops the configuration with one sentence that names it.

function(fsdpbench_cuda_missing what hint)
  message(FATAL_ERROR "The CUDA build needs ${what}: ${hint}")
endfunction()

# nvcc: the caller's choice, PATH, CUDA_HOME, the usual place.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(FSDPBENCH_NVCC nvcc HINTS ENV PATH PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin NO_DEFAULT_PATH)
  if(NOT FSDPBENCH_NVCC)
    fsdpbench_cuda_missing("nvcc" "it is not on PATH, in CUDA_HOME/bin or in /usr/local/cuda/bin; install the CUDA \
toolkit, 12.8 or newer, or set CMAKE_CUDA_COMPILER.")
  endif()
  set(CMAKE_CUDA_COMPILER ${FSDPBENCH_NVCC} CACHE FILEPATH "The CUDA compiler")
endif()
# Ampere and Hopper as machine code, Blackwell also as PTX for what comes after.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "GPU architectures")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 knows nothing above 17
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

find_package(CUDAToolkit)
if(NOT TARGET CUDA::cudart)
  fsdpbench_cuda_missing("the CUDA runtime (cuda_runtime_api.h, libcudart.so)" "none lies beside ${CMAKE_CUDA_COMPILER}.")
endif()
# backend/cuda/cupti/cupti_generation.h names CUPTI's record structs of each toolkit.
if(NOT CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
  fsdpbench_cuda_missing("the CUDA toolkit 12.8 or newer" "this is ${CUDAToolkit_VERSION}; set CMAKE_CUDA_COMPILER to the nvcc of another.")
endif()
foreach(library cublasLt cupti nvrtc nvtx3)
  if(NOT TARGET CUDA::${library})
    fsdpbench_cuda_missing("${library}" "the CUDA toolkit in ${CUDAToolkit_LIBRARY_ROOT} has none.")
  endif()
endforeach()
foreach(header cublasLt.h cupti.h)
  find_path(FSDPBENCH_${header}_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include)
  if(NOT FSDPBENCH_${header}_DIR)
    fsdpbench_cuda_missing("${header}" "the CUDA toolkit in ${CUDAToolkit_LIBRARY_ROOT} has none.")
  endif()
endforeach()

# fsdpbench_cuda_package(<target> <name for people> <header> <library>): beside the toolkit or where the system has it;
# <NAME>_ROOT says where else.
function(fsdpbench_cuda_package target name header library)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${${name}_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
  find_library(${name}_LIBRARY ${library} HINTS ${${name}_ROOT}/lib ${CUDAToolkit_LIBRARY_DIR})
  if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
    fsdpbench_cuda_missing("${name} (${header}, lib${library}.so)" "it is neither beside the CUDA toolkit nor where the \
system keeps libraries; install it, or set ${name}_ROOT.")
  endif()
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(
    ${target} PROPERTIES IMPORTED_LOCATION ${${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()
fsdpbench_cuda_package(NCCL::nccl NCCL nccl.h nccl)
fsdpbench_cuda_package(CUDNN::cudnn CUDNN cudnn.h cudnn)

set(CUDNN_FRONTEND_INCLUDE_DIR "${CMAKE_BINARY_DIR}/cudnn-frontend/include"
    CACHE PATH "Folder of cudnn_frontend.h; make cuda downloads it from PyPI")
if(NOT EXISTS ${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend.h)
  fsdpbench_cuda_missing("the headers of cudnn-frontend" "${CUDNN_FRONTEND_INCLUDE_DIR} has none; run \
src/cmake/fetch-cudnn-frontend.sh ${CMAKE_BINARY_DIR}, or set CUDNN_FRONTEND_INCLUDE_DIR.")
endif()

# fsdpbench_cuda_headers: the headers of all of them, and no library: what is also compiled against fakes links this.
add_library(fsdpbench_cuda_headers INTERFACE)
target_include_directories(
  fsdpbench_cuda_headers SYSTEM
  INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${FSDPBENCH_cupti.h_DIR} ${NCCL_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR}
            ${CUDNN_FRONTEND_INCLUDE_DIR})

# fsdpbench_cuda_library(<name> [SEPARATE] SOURCES … LIBRARIES …): the static library fsdpbench_cuda_<name>, a part of the
# plugin. SEPARATE: one file at a time, so that who links it gets only what it needs.
function(fsdpbench_cuda_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(fsdpbench_cuda_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(fsdpbench_cuda_${name} PUBLIC fsdpbench_options fsdpbench_backend fsdpbench_cuda_headers
                                                      CUDA::cudart ${ARG_LIBRARIES})
  target_compile_options(
    fsdpbench_cuda_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--threads=2 --expt-relaxed-constexpr
                                   -Xcompiler=-Wall,-Wextra,-Wno-restrict>)
  if(NOT ARG_SEPARATE)
    fsdpbench_together(fsdpbench_cuda_${name}) # CMake leaves out what nvcc compiles
  endif()
endfunction()

# fsdpbench_emulated_cuda_library(<name> [SEPARATE] LIBRARIES … [REPLACED folder]): fsdpbench_emulated_cuda_<name>, the
# sources of fsdpbench_cuda_<name> once more, compiled by the host's compiler (.cu files as C++) for the fakes that LIBRARIES
# names. Headers in the folders REPLACED come before those of src. Call it outside the folder of the sources.
function(fsdpbench_emulated_cuda_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "LIBRARIES;REPLACED" ${ARGN})
  get_target_property(folder fsdpbench_cuda_${name} SOURCE_DIR)
  get_target_property(sources fsdpbench_cuda_${name} SOURCES)
  list(TRANSFORM sources PREPEND ${folder}/)
  add_library(fsdpbench_emulated_cuda_${name} STATIC ${sources})
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX)
  target_include_directories(fsdpbench_emulated_cuda_${name} BEFORE PRIVATE ${ARG_REPLACED})
  target_link_libraries(fsdpbench_emulated_cuda_${name} PUBLIC fsdpbench_options fsdpbench_backend
                                                               fsdpbench_cuda_headers ${ARG_LIBRARIES})
  if(NOT ARG_SEPARATE)
    fsdpbench_together(fsdpbench_emulated_cuda_${name} ${sources})
  endif()
endfunction()

# fsdpbench_rehearsed(<name> SOURCES … LIBRARIES …): rehearsed_<name>, a program of the suite for GPUs once more, for
# stand-ins, under its own name in the folder rehearsal/bin (tests/gpu/rehearsal).
function(fsdpbench_rehearsed name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(rehearsed_${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(rehearsed_${name} PRIVATE fsdpbench_options ${ARG_LIBRARIES})
  target_compile_options(rehearsed_${name} PRIVATE ${FSDPBENCH_COMPILED_FAST})
  set_target_properties(rehearsed_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY
                                                                         ${CMAKE_BINARY_DIR}/rehearsal/bin)
  set_property(GLOBAL APPEND PROPERTY FSDPBENCH_REHEARSED rehearsed_${name})
endfunction()
