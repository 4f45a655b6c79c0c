#include "app/collectives/collective_timer.h"

#include <utility>

#include "base/clock.h"

namespace fsdpbench::app {

using backend::Stamp;

Timing CollectiveTimer::timing(const Message& message, Reduction reduction, bool in_place) {
  std::int64_t wrong = a_.checks > 0 ? check(message, reduction, in_place) : 0;
  if (a_.checks == 0) buffers_.fill(message, in_place, a_.root, pattern(message));
  std::vector<double> mine = burst(message, reduction, in_place);
  for (int i = 0; i < a_.checks; ++i) wrong += check(message, reduction, in_place);
  mine.push_back(static_cast<double>(wrong));

  Timing timing;
  std::int64_t all_wrong = 0;
  std::vector<std::vector<double>> by_rank = meeting_.gather(context_, std::move(mine));
  if (by_rank.empty()) return timing;
  for (std::vector<double>& values : by_rank) {
    all_wrong += static_cast<std::int64_t>(values.back());
    if (a_.checks > 0) timing.rank_wrong.push_back(static_cast<std::int64_t>(values.back()));
    timing.rank_us.push_back(values.front());
  }
  timing.time_us = over_ranks(a_.over_ranks, timing.rank_us);
  for (int i = 0; i < a_.iterations; ++i) {
    std::vector<double> of_iteration;
    for (const std::vector<double>& values : by_rank) of_iteration.push_back(values[1 + static_cast<std::size_t>(i)]);
    timing.iterations_us.push_back(over_ranks(a_.over_ranks, of_iteration));
  }
  timing.scatter = scatter_of({timing.iterations_us.begin() + a_.skip, timing.iterations_us.end()});
  if (a_.checks > 0) timing.wrong = all_wrong;
  return timing;
}

Pattern CollectiveTimer::pattern(const Message& message) const {
  return {message.dtype, message.reduces(), message.ranks, rounds_};
}

float CollectiveTimer::scale(Reduction reduction) const {
  return reduction == Reduction::average ? 1.0F / static_cast<float>(context_.world.size()) : 1.0F;
}

std::int64_t CollectiveTimer::check(const Message& message, Reduction reduction, bool in_place) {
  ++rounds_;
  const Pattern expected = pattern(message);
  buffers_.fill(message, in_place, a_.root, expected);
  buffers_.issue(context_.world, message, in_place, scale(reduction), a_.root, nullptr);
  context_.device.synchronize();
  return buffers_.wrong(message, in_place, reduction, a_.root, expected);
}

std::vector<double> CollectiveTimer::burst(const Message& message, Reduction reduction, bool in_place) {
  const auto issue = [&](Stamp* stamp) {
    buffers_.issue(context_.world, message, in_place, scale(reduction), a_.root, stamp);
  };
  for (int i = 0; i < a_.warmup * a_.aggregate; ++i) issue(nullptr);
  context_.device.synchronize();
  const auto m = static_cast<std::size_t>(a_.aggregate);
  std::vector<Stamp> stamps(static_cast<std::size_t>(a_.iterations) * m);
  context_.world.barrier();
  const std::int64_t begin = now_ns();
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    issue(&stamps[i]);
    if (a_.wait_each && (i + 1) % m == 0) context_.device.synchronize();
  }
  const std::int64_t issued = now_ns();
  context_.device.synchronize();
  context_.device.settle_stamps();
  const auto us = [](std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) * 1e-3; };
  const double whole = a_.host_time ? us(begin, issued) : us(stamps.front().begin_ns, stamps.back().end_ns);
  std::vector<double> times{whole / a_.iterations};
  for (std::size_t i = 0; i < stamps.size(); i += m) times.push_back(us(stamps[i].begin_ns, stamps[i + m - 1].end_ns));
  return times;
}

}  // namespace fsdpbench::app
