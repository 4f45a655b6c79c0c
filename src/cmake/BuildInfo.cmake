# Run as a script at every build: writes what git says now, and touches the output only if that has changed.
#   cmake -D SOURCE_DIR=… -D INPUT=… -D OUTPUT=… [-D VERSION=… BUILD_TYPE=… SANITIZE=… COMPILER=…] -P BuildInfo.cmake
set(GIT_REVISION "unknown")
set(GIT_DIRTY "false")
find_program(GIT git)
if(GIT)
  execute_process(
    COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE revision RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(GIT_REVISION ${revision})
    execute_process(
      COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(changes)
      set(GIT_DIRTY "true")
    endif()
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
