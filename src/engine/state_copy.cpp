#include "engine/state_copy.h"

#include <algorithm>

#include "backend/kernels.h"

namespace fsdpbench::engine {

bool StateCopy::asked(MemorySpace space) const {
  return std::ranges::find(parts_, space, &Part::space) != parts_.end();
}

void StateCopy::issue() {
  stamps_.assign(parts_.size(), {});
  device_.set_op(-1, -1);  // it belongs to no op of the schedule
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    device_.enqueue(
        lane_from(parts_[i].space), "save",
        [part = parts_[i]](backend::Kernels& kernels) { kernels.download(part.from, part.to, part.bytes); },
        &stamps_[i]);
  }
  for (const MemorySpace space : kMemorySpaces) {
    if (asked(space)) device_.record(events_[index_of(space)], lane_from(space));
  }
}

void StateCopy::before_update(Lane lane) {
  for (const MemorySpace space : kMemorySpaces) {
    if (asked(space)) device_.wait(lane, events_[index_of(space)]);
  }
}

StateCopy::Done StateCopy::finish(std::int64_t ready_ns) {
  Done done{stamps_.front().begin_ns, stamps_.front().end_ns, 0};
  for (const backend::Stamp& stamp : stamps_) {
    done.begin_ns = std::min(done.begin_ns, stamp.begin_ns);
    done.end_ns = std::max(done.end_ns, stamp.end_ns);
  }
  done.waited_ns = std::clamp(done.end_ns - ready_ns, std::int64_t{0}, done.end_ns - done.begin_ns);
  parts_.clear();
  return done;
}

}  // namespace fsdpbench::engine
