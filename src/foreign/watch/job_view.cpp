#include "foreign/watch/job_view.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::watch {
namespace {

constexpr std::int64_t kApart_ns = 500'000'000;
constexpr std::size_t kMostSigns = 512;

}  // namespace

void Signs::add(std::int64_t time_ns) {
  if (time_ns <= newest_ns_) return;
  newest_ns_ = time_ns;
  if (!times_.empty() && time_ns - times_.back() < kApart_ns) return;
  times_.push_back(time_ns);
  if (times_.size() > kMostSigns) times_.pop_front();
}

std::int64_t Signs::active_after_ns(std::int64_t time_ns) const {
  std::int64_t active_ns = 0, last_ns = time_ns;
  const auto count = [&](std::int64_t sign_ns) {
    if (sign_ns <= time_ns) return;
    if (last_ns >= 0) active_ns += std::min(sign_ns - last_ns, kMostGap_ns);
    last_ns = sign_ns;
  };
  for (const std::int64_t sign_ns : times_) count(sign_ns);
  count(newest_ns_);
  return active_ns;
}

std::int64_t JobView::newest_ns() const {
  std::int64_t newest = -1;
  for (const auto& [name, communicator] : communicators) {
    for (const auto& [rank, member] : communicator.members) {
      newest = std::max(newest, member.heard.newest_ns());
      if (!member.operations.empty()) newest = std::max(newest, member.operations.back().told_ns);
    }
  }
  for (const auto& [rank, view] : ranks) newest = std::max(newest, view.heard.newest_ns());
  for (const auto& [key, gpu] : gpus) {
    if (!gpu.looks.empty()) newest = std::max(newest, gpu.looks.back().time_ns);
  }
  return newest;
}

void add_operation(Member& member, Operation operation) {
  auto& all = member.operations;
  const auto place = std::ranges::lower_bound(all, operation.sequence, {}, &Operation::sequence);
  if (place != all.end() && place->sequence == operation.sequence) {
    *place = std::move(operation);
  } else {
    all.insert(place, std::move(operation));
  }
  if (all.size() > kMostOperations) all.pop_front();
}

void add_step(RankView& rank, const Step& step) {
  // A job that begins anew in the same files counts from 1 again: what was before is another job's.
  while (!rank.steps.empty() && rank.steps.back().number >= step.number) rank.steps.pop_back();
  rank.steps.push_back(step);
  if (rank.steps.size() > kMostSteps) rank.steps.pop_front();
}

}  // namespace fsdpbench::watch
