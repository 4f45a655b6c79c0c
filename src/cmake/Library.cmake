# Compile options of every target of this project, and the two helpers that make targets.

# -Wno-restrict: g++ 12 warns falsely about std::string concatenation (its bug 105329).
add_library(fsdpbench_options INTERFACE)
target_include_directories(fsdpbench_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(
  fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
                              -Wno-sign-conversion -Wno-restrict -Werror>)
# Products and sums are rounded one by one: an element's bits must not depend on whether the vectorised loop or its
# remainder computed it, because sharding moves elements between the two.
target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# What is to run elsewhere is for x86-64-v3, which oneDNN surpasses at run time; app/check_cpu.cpp says so to older ones.
set(FSDPBENCH_PORTABLE_CPU)
if(FSDPBENCH_NATIVE)
  target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(FSDPBENCH_PORTABLE_CPU x86-64-v3)
  target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${FSDPBENCH_PORTABLE_CPU}>)
endif()
# Undefined behaviour is looked for in the libraries (fsdpbench_library): what calls them is not asked. Left out is what
# the address sanitizer sees as well when it happens, at a third of the time that such a build takes.
set(FSDPBENCH_SANITIZE_UNDEFINED)
if(FSDPBENCH_SANITIZE)
  string(REPLACE ",undefined" "" everywhere "${FSDPBENCH_SANITIZE}")
  if(FSDPBENCH_SANITIZE MATCHES undefined)
    set(FSDPBENCH_SANITIZE_UNDEFINED
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=undefined -fno-sanitize=null,object-size,pointer-overflow,vptr>)
  endif()
  target_compile_options(
    fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${everywhere} -fno-omit-frame-pointer
                                -fno-sanitize-recover=all>)
  # Indices of any integral type are written as they are; here each one is checked, by every container.
  target_compile_definitions(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
  # Instrumented, GCC 12 takes parts of std::regex and std::optional for uninitialised; the build without it asks.
  target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  target_link_options(fsdpbench_options INTERFACE -fsanitize=${FSDPBENCH_SANITIZE})
endif()
# Where bytes become numbers of a type; the others have no misaligned access to be looked for, a fifth of their time.
set(FSDPBENCH_TYPED_BYTES base backend backend_cpu kernels_cpu engine launch model)
# Of what is not timed, fast compilation counts; tests themselves are compiled a third faster without any optimisation.
# (With the thread sanitizer -O0 compiles no faster; with the other one programs run at half the speed, so not for all.)
set(FSDPBENCH_COMPILED_FAST $<$<CONFIG:Release>:-O1>)
set(FSDPBENCH_TEST_COMPILED_FAST $<$<CONFIG:Release>:-O0>)
if(FSDPBENCH_SANITIZE MATCHES address)
  set(FSDPBENCH_COMPILED_FAST -O0)
  set(FSDPBENCH_TEST_COMPILED_FAST -O0)
endif()
# GCC looks for garbage whenever its memory has grown by a third, from some megabytes on; from 1 GB on is a tenth faster.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

# fsdpbench_together(<target> [<file> …]): with FSDPBENCH_UNITY the files of the target are compiled many at a time, so
# that the headers which they share (JSON, GoogleTest) are read once for all. Names in their anonymous namespaces must
# then differ (tests/check_anonymous_names.py). The files named are compiled alone.
function(fsdpbench_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FSDPBENCH_UNITY} UNITY_BUILD_BATCH_SIZE 24)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(FSDPBENCH_UNITY) # that warning takes a source which another includes for a header
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# fsdpbench_library(<folder> [COLD] [SEPARATE] SOURCES … LIBRARIES …): one static library a folder, linked along the
# arrows of src/README.md. COLD: nothing in it is timed, so it is compiled fast rather than well. SEPARATE: one file at a
# time even with FSDPBENCH_UNITY.
function(fsdpbench_library name)
  cmake_parse_arguments(ARG "COLD;SEPARATE" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(fsdpbench_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(fsdpbench_${name} PUBLIC fsdpbench_options ${ARG_LIBRARIES})
  target_compile_options(fsdpbench_${name} PRIVATE ${FSDPBENCH_SANITIZE_UNDEFINED})
  if(FSDPBENCH_SANITIZE_UNDEFINED AND NOT name IN_LIST FSDPBENCH_TYPED_BYTES)
    target_compile_options(fsdpbench_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=alignment>)
  endif()
  if(ARG_COLD)
    target_compile_options(fsdpbench_${name} PRIVATE ${FSDPBENCH_COMPILED_FAST})
  endif()
  if(NOT ARG_SEPARATE)
    fsdpbench_together(fsdpbench_${name})
  endif()
endfunction()

# fsdpbench_test(<name> [SEPARATE] [SANITIZED filter] SOURCES … LIBRARIES … [FIRST …] LABELS …): a GoogleTest program; each of
# its cases is a ctest test. SEPARATE: as for libraries. SANITIZED: with a sanitizer only these cases (GoogleTest's filter).
# FIRST: of the libraries those in which the test spends its time. The linker takes the first copy of an inline function
# that it sees: theirs is optimised, the test's own is not. Those of the label gpu are programs that the suite for GPUs runs.
function(fsdpbench_test name)
  cmake_parse_arguments(ARG "SEPARATE" "SANITIZED" "SOURCES;LIBRARIES;FIRST;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set(filter)
  if(FSDPBENCH_SANITIZE AND ARG_SANITIZED)
    set(filter TEST_FILTER "${ARG_SANITIZED}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fsdpbench_options ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${FSDPBENCH_TEST_COMPILED_FAST})
  if(NOT ARG_SEPARATE)
    fsdpbench_together(${name})
  endif()
  foreach(library ${ARG_FIRST})
    target_link_options(${name} PRIVATE "LINKER:--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive")
  endforeach()
  if("gpu" IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY FSDPBENCH_GPU_PROGRAMS ${name})
  endif()
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    NO_PRETTY_VALUES # a test is called the same in ctest and in GoogleTest, and in each run: values may be addresses
    ${filter}
    DISCOVERY_TIMEOUT 120 # reading CUDA's libraries from a slow disk for the first time takes more than the usual 5 s
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()
