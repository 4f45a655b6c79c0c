#include "engine/run_board.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace fsdpbench::engine {
namespace {

constexpr std::string_view kStep = "run.step";        // from rank 0: "go" or "stop", for steps 1, 2 …
constexpr std::string_view kStop = "run.stop";        // to rank 0: this rank was asked to stop
constexpr std::string_view kLoss = "run.loss";        // to rank 0: a float a step
constexpr std::string_view kOutcome = "run.outcome";  // to rank 0: to_bytes()

}  // namespace

LossBoard::LossBoard(int ranks, std::int64_t steps) : ranks_(ranks), losses_(ranks_ * steps), reported_(steps) {}

void LossBoard::report(std::int64_t step, int rank, float loss) {
  const std::lock_guard lock(mutex_);
  losses_.at(step * ranks_ + rank) = loss;
  ++reported_[step];
}

std::vector<double> LossBoard::means(std::int64_t steps) const {
  const std::lock_guard lock(mutex_);
  std::vector<double> means;
  for (std::int64_t step = 0; step < steps; ++step) means.push_back(mean_of(step));
  return means;
}

std::optional<StepLoss> LossBoard::latest_mean() const {
  const std::lock_guard lock(mutex_);
  while (complete_ < reported_.size() && reported_[complete_] == ranks_) ++complete_;
  if (complete_ == 0) return std::nullopt;
  return StepLoss{static_cast<std::int64_t>(complete_), mean_of(complete_ - 1)};
}

double LossBoard::mean_of(std::size_t step) const {
  double sum = 0;
  for (std::size_t rank = 0; rank < ranks_; ++rank) sum += static_cast<double>(losses_[step * ranks_ + rank]);
  return sum / static_cast<double>(ranks_);
}

bool ThreadBoard::stops_before(int /*rank*/, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  const auto [decision, fresh] = decisions_.try_emplace(step);
  if (fresh) decision->second = wanted();
  return decision->second;
}

void ThreadBoard::bring(int rank, std::int64_t steps, RankOutcome outcome) {
  const std::lock_guard lock(mutex_);
  outcomes_.at(rank) = std::move(outcome);
  done_[rank] = steps;
}

ChannelBoard::ChannelBoard(launch::ControlChannel& channel, std::int64_t steps, const std::function<bool()>& stop)
    : RunBoard(channel.size(), 1, channel.rank() == 0 ? steps : 0, stop),
      channel_(channel),
      steps_(steps),
      noted_(channel.size()) {}

bool ChannelBoard::anybody_wants_to_stop() {
  bool stop = wanted();
  for (int rank = 1; rank < channel_.size(); ++rank) stop |= channel_.poll(rank, kStop).has_value();
  return stop;
}

bool ChannelBoard::stops_before(int rank, std::int64_t step) {
  if (rank != 0) {
    if (!asked_to_stop_ && wanted()) {
      asked_to_stop_ = true;
      channel_.send(0, kStop, "");
    }
    return step > 0 && channel_.receive(0, kStep) == "stop";
  }
  if (stops_next_) return true;
  stops_next_ = anybody_wants_to_stop();
  if (step + 1 < steps_) {
    for (int other = 1; other < channel_.size(); ++other) channel_.send(other, kStep, stops_next_ ? "stop" : "go");
  }
  return false;
}

void ChannelBoard::report_loss(int rank, std::int64_t step, float loss) {
  if (rank == 0) {
    board_.report(step, 0, loss);
  } else {
    channel_.send(0, kLoss, std::string(reinterpret_cast<const char*>(&loss), sizeof loss));
  }
}

void ChannelBoard::note_loss(int rank, const std::string& message) {
  float loss{};
  if (message.size() != sizeof loss) {
    throw BackendError(fmt::format("rank {} sent a loss of {} bytes; it has {}", rank, message.size(), sizeof loss));
  }
  std::memcpy(&loss, message.data(), sizeof loss);
  board_.report(noted_[rank]++, rank, loss);
}

std::optional<StepLoss> ChannelBoard::latest_loss() {
  for (int rank = 1; rank < channel_.size(); ++rank) {
    while (const std::optional<std::string> message = channel_.poll(rank, kLoss)) note_loss(rank, *message);
  }
  return board_.latest_mean();
}

void ChannelBoard::bring(int rank, std::int64_t steps, RankOutcome outcome) {
  if (rank != 0) channel_.send(0, kOutcome, to_bytes(outcome));
  outcomes_.at(rank) = std::move(outcome);
  done_.front() = steps;
  if (rank != 0) return;
  for (int other = 1; other < channel_.size(); ++other) {
    const std::size_t index = other;
    while (noted_[index] < steps) note_loss(other, channel_.receive(other, kLoss));
    outcomes_[index] = outcome_from_bytes(channel_.receive(other, kOutcome));
    if (outcomes_[index].trace.rank != other) {
      throw BackendError(fmt::format("rank {} sent the outcome of rank {}", other, outcomes_[index].trace.rank));
    }
  }
}

}  // namespace fsdpbench::engine
