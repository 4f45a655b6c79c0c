#include "backend/cuda/ops_under_way.h"

#include <fmt/format.h>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {
namespace {

/// So many ops of a lane may be noted before the oldest are looked at: a host that runs ahead should not ask the
/// driver at every op.
constexpr std::size_t kNoted = 64;

}  // namespace

void OpsUnderWay::add(Lane lane, cudaStream_t stream, const char* name, std::int32_t step, std::int32_t op) {
  std::deque<Op>& ops = lanes_[index_of(lane)];
  if (ops.size() >= kNoted && ops.size() % kNoted == 0) advanced_ |= advance(ops);
  const Op added{++issued_, name, step, op, events_.take()};
  check(cudaEventRecord(added.done, stream), "recording an event");
  ops.push_back(added);
}

bool OpsUnderWay::advance(std::deque<Op>& ops) {
  bool any = false;
  while (!ops.empty()) {
    if (cudaEventQuery(ops.front().done) != cudaSuccess) break;
    events_.give_back(ops.front().done);
    ops.pop_front();
    any = true;
  }
  return any;
}

bool OpsUnderWay::advance() {
  bool any = advanced_;
  advanced_ = false;
  for (std::deque<Op>& ops : lanes_) any |= advance(ops);
  return any;
}

std::string OpsUnderWay::oldest() const {
  const Op* first = nullptr;
  Lane lane = Lane::compute;
  for (const Lane candidate : kLanes) {
    const std::deque<Op>& ops = lanes_[index_of(candidate)];
    if (ops.empty() || (first != nullptr && first->number < ops.front().number)) continue;
    first = &ops.front();
    lane = candidate;
  }
  if (first == nullptr) return {};
  const std::string where = first->step < 0 ? ""
                            : first->op < 0 ? fmt::format(" (step {})", first->step)
                                            : fmt::format(" (step {}, op {})", first->step, first->op);
  return fmt::format("{}{} on lane {}", first->name, where, to_string(lane));
}

}  // namespace fsdpbench::backend::cuda
