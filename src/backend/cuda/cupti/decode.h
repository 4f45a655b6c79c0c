#pragma once

#include <cupti.h>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cupti/cupti_generation.h"
#include "base/lane.h"

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

/// The host called CUDA.
struct Call {
  std::uint32_t correlation = 0;
  std::uint32_t thread = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  const KnownCall* what = nullptr;
  bool failed = false;
};

/// A call was made while this external id was pushed.
struct Owner {
  std::uint32_t correlation = 0;
  std::uint64_t id = 0;
};

/// The device ran a kernel, a copy or a fill. Both times 0: CUPTI could not take them; end alone 0: it had not ended.
struct Work {
  Activity::Kind kind = Activity::Kind::kernel;
  std::uint32_t correlation = 0;
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;
  std::string name;  ///< of a kernel: as the compiler wrote it
};

/// Records of a buffer, each kind in its order. The kinds come in any order.
struct Decoded {
  std::vector<Call> calls;
  std::vector<Owner> owners;
  std::vector<Work> works;
  std::int64_t unknown = 0;  ///< records of kinds that nobody asked for
  bool damaged = false;      ///< the rest could not be read: a record is cut off or CUPTI refused it
};

/// Reads the first `bytes` of a buffer that CUPTI filled. `next` finds the records (cuptiActivityGetNextRecord): only
/// CUPTI knows the sizes of all kinds. Nothing of the buffer is referred to afterwards.
Decoded decode(std::uint8_t* buffer, std::size_t bytes, decltype(CuptiApi::get_next_record) next);

}  // namespace fsdpbench::backend::cuda
