#include "engine/state_copy.h"

#include <algorithm>

#include "backend/kernels.h"

namespace fsdpbench::engine {

void StateCopy::issue() {
  stamps_.assign(parts_.size(), {});
  device_.set_op(-1, -1);  // it belongs to no op of the schedule
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    device_.enqueue(
        kLane, "save",
        [part = parts_[i]](backend::Kernels& kernels) { kernels.download(part.from, part.to, part.bytes); },
        &stamps_[i]);
  }
  device_.record(event_, kLane);
}

StateCopy::Done StateCopy::finish(std::int64_t ready_ns) {
  Done done{stamps_.front().begin_ns, stamps_.back().end_ns, 0};
  done.waited_ns = std::clamp(done.end_ns - ready_ns, std::int64_t{0}, done.end_ns - done.begin_ns);
  parts_.clear();
  return done;
}

}  // namespace fsdpbench::engine
