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
if(FSDPBENCH_NATIVE)
  target_compile_options(fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
endif()
if(FSDPBENCH_SANITIZE)
  target_compile_options(
    fsdpbench_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FSDPBENCH_SANITIZE} -fno-omit-frame-pointer
                                -fno-sanitize-recover=all>)
  target_link_options(fsdpbench_options INTERFACE -fsanitize=${FSDPBENCH_SANITIZE})
endif()

# fsdpbench_library(<folder> SOURCES … LIBRARIES …): one static library a folder, linked along the arrows of
# src/README.md.
function(fsdpbench_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(fsdpbench_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(fsdpbench_${name} PUBLIC fsdpbench_options ${ARG_LIBRARIES})
endfunction()

# fsdpbench_test(<name> [SERIAL] SOURCES … LIBRARIES … LABELS …): a GoogleTest program; each of its cases is a ctest
# test. SERIAL: nothing else runs beside them.
function(fsdpbench_test name)
  cmake_parse_arguments(ARG "SERIAL" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fsdpbench_options ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120 # reading CUDA's libraries from a slow disk for the first time takes more than the usual 5 s
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300 RUN_SERIAL ${ARG_SERIAL})
endfunction()
