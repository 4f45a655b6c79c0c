#include "launch/clock_offset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/clock.h"
#include "launch/run_ranks.h"

namespace fsdpbench::launch {
namespace {

constexpr std::string_view kIdentity = "clock identity";
constexpr std::string_view kQuestion = "clock question";
constexpr std::string_view kAnswer = "clock answer";
constexpr std::string_view kEnough = "enough";

void answer_questions(ControlChannel& channel, const std::string& identity) {
  channel.send(0, kIdentity, identity);
  while (channel.receive(0, kQuestion) != kEnough) channel.send(0, kAnswer, std::to_string(now_ns()));
}

ClockOffset ask(ControlChannel& channel, int rank, int rounds, const std::string& identity) {
  if (channel.receive(rank, kIdentity) == identity && !identity.empty()) {
    channel.send(rank, kQuestion, std::string(kEnough));
    return {0, 0, now_ns(), true};
  }
  std::vector<ClockRound> all(std::max(rounds, 1));
  for (ClockRound& round : all) {
    round.asked_ns = now_ns();
    channel.send(rank, kQuestion, "");
    round.told_ns = std::stoll(channel.receive(rank, kAnswer));
    round.answered_ns = now_ns();
  }
  channel.send(rank, kQuestion, std::string(kEnough));
  return estimate_offset(all);
}

}  // namespace

ClockOffset estimate_offset(std::span<const ClockRound> rounds) {
  const ClockRound& quickest =
      *std::ranges::min_element(rounds, {}, [](const ClockRound& round) { return round.answered_ns - round.asked_ns; });
  const std::int64_t trip = quickest.answered_ns - quickest.asked_ns;
  const std::int64_t middle = quickest.asked_ns + trip / 2;
  return {middle - quickest.told_ns, trip - trip / 2, middle, false};
}

std::vector<ClockOffset> measure_clock_offsets(ControlChannel& channel, int rounds, const std::string& identity) {
  if (channel.rank() != 0) {
    answer_questions(channel, identity);
    return {};
  }
  std::vector<ClockOffset> offsets{{0, 0, now_ns(), true}};
  for (int rank = 1; rank < channel.size(); ++rank) offsets.push_back(ask(channel, rank, rounds, identity));
  return offsets;
}

ClockCorrection::ClockCorrection(const ClockOffset& before, const ClockOffset& after)
    : begin_ns_(before.at_ns - before.offset_ns),
      end_ns_(std::max(begin_ns_, after.at_ns - after.offset_ns)),
      offset_ns_(before.offset_ns),
      residual_ns_(std::max(before.residual_ns, after.residual_ns)),
      same_clock_(before.same_clock && after.same_clock) {
  if (end_ns_ > begin_ns_) {
    drift_ = static_cast<double>(after.offset_ns - before.offset_ns) / static_cast<double>(end_ns_ - begin_ns_);
  }
}

std::int64_t ClockCorrection::to_root(std::int64_t rank_ns) const {
  const std::int64_t since = std::clamp(rank_ns, begin_ns_, end_ns_) - begin_ns_;
  return rank_ns + offset_ns_ + std::llround(drift_ * static_cast<double>(since));
}

void Abort::set(const std::exception_ptr& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_) return;
  try {
    std::rethrow_exception(failure);
  } catch (const Stopped&) {
    return;
  } catch (const std::exception& e) {
    message_ = e.what();
  } catch (...) {
    message_ = "an unknown exception";
  }
  first_ = failure;
  set_.store(true);
  for (Listener* listener : listeners_) listener->aborted();
}

std::exception_ptr Abort::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

void Abort::add(Listener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.insert(&listener);
}

void Abort::remove(Listener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(&listener);
}

void Abort::throw_stopped() const {
  const std::lock_guard lock(mutex_);
  throw Stopped(message_);
}

}  // namespace fsdpbench::launch
