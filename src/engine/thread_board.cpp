#include "engine/thread_board.h"

#include <utility>

namespace fsdpbench::engine {

ThreadBoard::ThreadBoard(int ranks, std::int64_t steps, const std::function<bool()>& stop)
    : board_(ranks, steps), stop_(stop), outcomes_(static_cast<std::size_t>(ranks)) {}

bool ThreadBoard::stops_before(int /*rank*/, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  const auto [decision, fresh] = decisions_.try_emplace(step, false);
  if (fresh && stop_) decision->second = stop_();
  return decision->second;
}

void ThreadBoard::bring(int rank, std::int64_t /*steps*/, RankOutcome outcome) {
  const std::lock_guard lock(mutex_);
  outcomes_.at(static_cast<std::size_t>(rank)) = std::move(outcome);
}

std::vector<double> ThreadBoard::losses(std::int64_t steps) {
  std::vector<double> means;
  for (std::int64_t step = 0; step < steps; ++step) means.push_back(board_.mean(step).value());
  return means;
}

}  // namespace fsdpbench::engine
