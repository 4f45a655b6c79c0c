# The program, as the target fsdpbench::fsdpbench, and the folder of its profiles, as fsdpbench_PROFILES.
@PACKAGE_INIT@
include("${CMAKE_CURRENT_LIST_DIR}/fsdpbenchTargets.cmake")
set_and_check(fsdpbench_PROFILES "${PACKAGE_PREFIX_DIR}/share/fsdpbench/profiles")
check_required_components(fsdpbench)
