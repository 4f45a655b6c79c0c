#pragma once

#include <cupti.h>

#include <array>
#include <cstdint>
#include <span>

namespace fsdpbench::backend::cuda {

/// A call of CUDA whose record is wanted: those that put work on a stream, and the mark. Everything else is switched
/// off because each record costs host time. A call of the runtime's makes one of the driver's, and both are recorded.
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
};

/// Calls of the runtime, and of the driver: `count - 1` that CUPTI knows, numbered from 1.
struct CallKind {
  CUpti_ActivityKind kind;
  CUpti_CallbackId count;
};
inline constexpr std::array<CallKind, 2> kCallKinds{{{CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_SIZE},
                                                     {CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_SIZE}}};

/// All of them, runtime and driver; lives as long as the program.
std::span<const KnownCall> known_calls();
/// Null if the call is none of them.
const KnownCall* find_call(CUpti_ActivityKind kind, CUpti_CallbackId id);

}  // namespace fsdpbench::backend::cuda
