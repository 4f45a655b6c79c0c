#include "accept/collectives/collective_timer.h"

#include <numeric>
#include <utility>

namespace fsdpbench::app {
namespace {

constexpr std::string_view kMeetingTopic = "collectives.meeting";

double us_between(std::int64_t begin_ns, std::int64_t end_ns) { return static_cast<double>(end_ns - begin_ns) * 1e-3; }

}  // namespace

RankMeeting::RankMeeting(int ranks, launch::Session* session)
    : session_(session), slots_(session == nullptr ? static_cast<std::size_t>(ranks) : 0) {}

std::vector<std::string> RankMeeting::gather(backend::RankContext& context, std::string mine) {
  if (session_ != nullptr) return launch::gather(session_->control(), kMeetingTopic, std::move(mine));
  slots_[context.rank] = std::move(mine);
  context.world.barrier();
  std::vector<std::string> all;
  if (context.rank == 0) all = slots_;
  context.world.barrier();  // only now may the slots be written again
  return all;
}

std::vector<double> RankMeeting::broadcast(backend::RankContext& context, const std::vector<double>& from_root) {
  std::string text = message_of(from_root);
  if (session_ != nullptr) {
    text = launch::broadcast(session_->control(), kMeetingTopic, std::move(text));
  } else {
    if (context.rank == 0) slots_.front() = std::move(text);
    context.world.barrier();
    text = slots_.front();
    context.world.barrier();
  }
  return read_messages<std::vector<double>>({text}).front();
}

using backend::Stamp;

std::vector<double> microseconds(const std::vector<Stamp>& stamps) {
  std::vector<double> us;
  for (const Stamp& stamp : stamps) us.push_back(us_between(stamp.begin_ns, stamp.end_ns));
  return us;
}

Timing CollectiveTimer::timing(const Message& message, Reduction reduction, bool in_place) {
  std::int64_t wrong = a_.checks > 0 ? check(message, reduction, in_place) : 0;
  if (a_.checks == 0) buffers_.fill(message, in_place, pattern(message));
  const Iterations timed =
      a_.check_all ? checked_one_by_one(message, reduction, in_place) : burst(message, reduction, in_place);
  wrong = std::accumulate(timed.wrong.begin(), timed.wrong.end(), wrong);
  for (int i = 0; i < a_.checks; ++i) wrong += check(message, reduction, in_place);

  const std::size_t n = timed.each_us.size();
  std::vector<double> mine{timed.mean_us, static_cast<double>(wrong)};
  mine.insert(mine.end(), timed.each_us.begin(), timed.each_us.end());
  mine.insert(mine.end(), timed.wrong.begin(), timed.wrong.end());

  Timing timing;
  std::int64_t all_wrong = 0;
  const std::vector<std::vector<double>> by_rank = meeting_.gather(context_, std::move(mine));
  if (by_rank.empty()) return timing;
  for (const std::vector<double>& values : by_rank) {
    timing.rank_us.push_back(values[0]);
    const auto rank_wrong = static_cast<std::int64_t>(values[1]);
    all_wrong += rank_wrong;
    if (a_.checks_data()) timing.rank_wrong.push_back(rank_wrong);
  }
  timing.time_us = over_ranks(a_.over_ranks, timing.rank_us);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> of_iteration;
    std::int64_t wrong_there = 0;
    for (const std::vector<double>& values : by_rank) {
      of_iteration.push_back(values[2 + i]);
      if (a_.check_all) wrong_there += static_cast<std::int64_t>(values[2 + n + i]);
    }
    timing.iterations_us.push_back(over_ranks(a_.over_ranks, of_iteration));
    if (a_.check_all) timing.iteration_wrong.push_back(wrong_there);
  }
  timing.scatter = scatter_of(timing.iterations_us);
  if (a_.checks_data()) timing.wrong = all_wrong;
  return timing;
}

Pattern CollectiveTimer::pattern(const Message& message) const {
  return {message.dtype, message.reduces(), message.ranks, rounds_};
}

float CollectiveTimer::scale(Reduction reduction) const {
  return reduction == Reduction::average ? 1.0F / static_cast<float>(context_.world.size()) : 1.0F;
}

Pattern CollectiveTimer::refill(const Message& message, bool in_place) {
  ++rounds_;
  Pattern expected = pattern(message);
  buffers_.fill(message, in_place, expected);
  return expected;
}

std::int64_t CollectiveTimer::check(const Message& message, Reduction reduction, bool in_place) {
  const Pattern expected = refill(message, in_place);
  buffers_.issue(context_.world, message, in_place, scale(reduction), nullptr);
  context_.device.synchronize();
  return buffers_.wrong(message, in_place, reduction, expected);
}

void CollectiveTimer::warm_up(const Message& message, Reduction reduction, bool in_place) {
  for (int i = 0; i < a_.warmup; ++i) {
    buffers_.issue(context_.world, message, in_place, scale(reduction), nullptr);
  }
  context_.device.synchronize();
}

CollectiveTimer::Iterations CollectiveTimer::burst(const Message& message, Reduction reduction, bool in_place) {
  warm_up(message, reduction, in_place);
  std::vector<Stamp> stamps(a_.iterations);
  context_.world.barrier();
  for (Stamp& stamp : stamps) {
    buffers_.issue(context_.world, message, in_place, scale(reduction), &stamp);
  }
  context_.device.synchronize();
  context_.device.settle_stamps();
  const double whole_us = us_between(stamps.front().begin_ns, stamps.back().end_ns);
  return {.mean_us = whole_us / a_.iterations, .each_us = microseconds(stamps), .wrong = {}};
}

CollectiveTimer::Iterations CollectiveTimer::checked_one_by_one(const Message& message, Reduction reduction,
                                                                bool in_place) {
  warm_up(message, reduction, in_place);
  Iterations all;
  std::vector<Stamp> stamps(a_.iterations);
  for (Stamp& stamp : stamps) {
    const Pattern expected = refill(message, in_place);
    context_.world.barrier();  // a rank that still fills its buffers would be taken for a slow one
    buffers_.issue(context_.world, message, in_place, scale(reduction), &stamp);
    context_.device.synchronize();
    all.wrong.push_back(buffers_.wrong(message, in_place, reduction, expected));
  }
  context_.device.settle_stamps();
  all.each_us = microseconds(stamps);
  all.mean_us = std::accumulate(all.each_us.begin(), all.each_us.end(), 0.0) / a_.iterations;
  return all;
}

}  // namespace fsdpbench::app
