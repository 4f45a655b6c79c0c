#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/cupti/record_table.h"
#include "backend/device.h"
#include "base/lane.h"

namespace fsdpbench::backend::cuda {

/// An op as its host thread issued it.
struct IssuedOp {
  std::int32_t step = 0;
  std::int32_t op = 0;
  Lane lane = Lane::compute;
  StreamKey stream;
  std::int64_t begin_ns = 0;  ///< the host began to issue it
  std::int64_t end_ns = 0;
  Stamp* stamp = nullptr;
};

/// Counts that limit the figures of one timer.
struct TimerCounts {
  std::int64_t ops = 0;
  std::int64_t without_times = 0;   ///< ops that did something and have no stamp, because a record of it is missing
  std::int64_t without_work = 0;    ///< ops that put nothing on the device
  std::int64_t zero_times = 0;      ///< works whose times CUPTI could not take
  std::int64_t incomplete = 0;      ///< works that had not ended
  std::int64_t missing = 0;         ///< launches whose kernel was never reported
  std::int64_t without_launch = 0;  ///< works whose call was never reported
  std::int64_t before_launch = 0;   ///< works that began before their call, by the clocks
  std::int64_t foreign = 0;         ///< works put on our streams between the ops: injected delays, or somebody else's
};

/// Names of kernels and calls, each once, as people read them.
class NameList {
 public:
  /// The index of a kernel's name as the compiler wrote it, or of any other text.
  std::int32_t index_of(const std::string& name);
  std::vector<std::string> take();

 private:
  std::unordered_map<std::string, std::int32_t> indices_;
  std::vector<std::string> names_;
};

/// Writes the stamps of `ops`, which were issued one after the other, from what CUDA did for them, and appends that to
/// `activities` in no order. Launches that know their owner go to op `owner.op - first`; the others to the op on their
/// stream during which they were made. `marks`: the op numbers whose mark was seen; each op needs its own and its
/// successor's, or part of it may be missing. Empty: there are none to go by.
///
/// A stamp goes from the begin of the op's first work to the end of its last. An op that put nothing on the device
/// took place when it was issued, or when the op before it on its lane was over. An op of which a record is missing
/// keeps a stamp of zeros: account/ refuses figures with such ops.
void assemble(const std::vector<IssuedOp>& ops, std::uint32_t first, const std::vector<Launch>& launches,
              const std::set<std::uint32_t>& marks, NameList& names, std::vector<Activity>& activities,
              TimerCounts& counts);

}  // namespace fsdpbench::backend::cuda
