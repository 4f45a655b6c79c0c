#pragma once

#include <cupti.h>

#include <cstdint>
#include <span>

namespace fsdpbench::backend::cuda {

/// A call of CUDA whose record is wanted: those that put work on a stream, and the mark. Everything else is left out
/// because each record costs host time. A call of the runtime's makes one of the driver's, and both are recorded.
struct KnownCall {
  enum class Does : std::uint8_t {
    launch,    ///< always leaves work
    transfer,  ///< leaves a copy or a fill, unless it has no bytes
    mark,
  };
  CUpti_ActivityKind kind;  ///< RUNTIME or DRIVER
  CUpti_CallbackId id;
  const char* name;
  Does does;
  std::uint32_t since = 0;  ///< CUPTI's major version that first knows it; 0: all do
};

/// All of them, runtime and driver; lives as long as the program.
std::span<const KnownCall> known_calls();
/// Null if the call is none of them.
const KnownCall* find_call(CUpti_ActivityKind kind, CUpti_CallbackId id);

}  // namespace fsdpbench::backend::cuda
