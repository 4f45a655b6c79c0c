# What a trace of ours must keep to, for tests.
fsdpbench_library(
  trace_rules COLD SEPARATE
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/device_rules.cpp ${CMAKE_CURRENT_LIST_DIR}/step_rules.cpp ${CMAKE_CURRENT_LIST_DIR}/track_rules.cpp ${CMAKE_CURRENT_LIST_DIR}/validate.cpp
  LIBRARIES fsdpbench_trace fmt::fmt)
target_include_directories(fsdpbench_trace_rules PUBLIC ${CMAKE_SOURCE_DIR}/tests)

# For tests of the whole program.
add_executable(check_trace ${CMAKE_CURRENT_LIST_DIR}/check_trace.cpp)
target_link_libraries(check_trace PRIVATE fsdpbench_options fsdpbench_trace_rules fmt::fmt)
set_property(GLOBAL APPEND PROPERTY FSDPBENCH_GPU_PROGRAMS check_trace)
