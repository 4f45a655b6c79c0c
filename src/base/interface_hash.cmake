# cmake -D SOURCE=src -D COMPILER=... -D OUTPUT=interface_hash.h -P interface_hash.cmake
#
# Writes kInterfaceHash: over the contents of all headers through which program and plugins know each other, and over the
# compiler, which lays out what they declare.
set(known "${COMPILER}\n")
foreach(folder base backend launch hardware backend/cuda)
  if(folder STREQUAL backend/cuda)
    set(headers ${SOURCE}/backend/cuda/plugin.h)
  elseif(folder STREQUAL hardware)
    set(headers ${SOURCE}/hardware/gpu_health.h)
  else()
    file(GLOB headers ${SOURCE}/${folder}/*.h)
    list(SORT headers)
  endif()
  foreach(header ${headers})
    file(SHA256 ${header} content)
    cmake_path(GET header FILENAME name)
    string(APPEND known "${folder}/${name} ${content}\n")
  endforeach()
endforeach()
string(SHA256 hash "${known}")
string(SUBSTRING ${hash} 0 32 hash)
file(WRITE ${OUTPUT} "#pragma once\n\nnamespace fsdpbench {\n\n"
                     "inline constexpr char kInterfaceHash[33] = \"${hash}\";\n\n"
                     "}  // namespace fsdpbench\n")
