#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/cupti/calls.h"
#include "backend/cuda/cupti/cupti_generation.h"
#include "base/lane.h"

namespace fsdpbench::backend::cuda {

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
