#include "engine/loss_board.h"

namespace fsdpbench::engine {

LossBoard::LossBoard(int ranks, std::int64_t steps)
    : ranks_(static_cast<std::size_t>(ranks)),
      losses_(ranks_ * static_cast<std::size_t>(steps)),
      reported_(static_cast<std::size_t>(steps)) {}

void LossBoard::report(std::int64_t step, int rank, float loss) {
  const std::lock_guard lock(mutex_);
  losses_.at(static_cast<std::size_t>(step) * ranks_ + static_cast<std::size_t>(rank)) = loss;
  ++reported_[static_cast<std::size_t>(step)];
}

std::optional<double> LossBoard::mean(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return mean_of(static_cast<std::size_t>(step));
}

std::optional<double> LossBoard::latest_mean() const {
  const std::lock_guard lock(mutex_);
  while (complete_ < reported_.size() && reported_[complete_] == ranks_) ++complete_;
  if (complete_ == 0) return std::nullopt;
  return mean_of(complete_ - 1);
}

std::optional<double> LossBoard::mean_of(std::size_t step) const {
  if (reported_[step] < ranks_) return std::nullopt;
  double sum = 0;
  for (std::size_t rank = 0; rank < ranks_; ++rank) sum += static_cast<double>(losses_[step * ranks_ + rank]);
  return sum / static_cast<double>(ranks_);
}

}  // namespace fsdpbench::engine
