# cmake --install BUILD --prefix PREFIX [--component program|cuda]. The program finds its profiles and its plugin beside
# itself, so PREFIX may be moved. Another CMake project says find_package(fsdpbench) and has the program as
# fsdpbench::fsdpbench and its profiles' folder as fsdpbench_PROFILES.
include(CMakePackageConfigHelpers)

install(TARGETS fsdpbench EXPORT fsdpbench_targets RUNTIME DESTINATION bin COMPONENT program)
install(
  DIRECTORY ${CMAKE_SOURCE_DIR}/profiles
  DESTINATION share/fsdpbench
  COMPONENT program
  PATTERN recorded EXCLUDE) # figures of the documents: nothing reads them but tests
if(TARGET fsdpbench_cuda)
  install(TARGETS fsdpbench_cuda LIBRARY DESTINATION lib COMPONENT cuda)
endif()

install(EXPORT fsdpbench_targets NAMESPACE fsdpbench:: FILE fsdpbenchTargets.cmake DESTINATION lib/cmake/fsdpbench
        COMPONENT development)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/fsdpbenchConfig.cmake ${CMAKE_BINARY_DIR}/generated/fsdpbenchConfig.cmake
  INSTALL_DESTINATION lib/cmake/fsdpbench)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/fsdpbenchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/fsdpbenchConfig.cmake ${CMAKE_BINARY_DIR}/generated/fsdpbenchConfigVersion.cmake
        DESTINATION lib/cmake/fsdpbench COMPONENT development)
