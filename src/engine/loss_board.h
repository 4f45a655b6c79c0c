#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace fsdpbench::engine {

/// Ranks' losses of each step. Thread-safe.
class LossBoard {
 public:
  LossBoard(int ranks, std::int64_t steps);

  void report(std::int64_t step, int rank, float loss);
  /// Over all ranks, summed in rank order; absent while ranks are missing.
  std::optional<double> mean(std::int64_t step) const;
  /// Of the last step that all ranks have reported; absent before the first.
  std::optional<double> latest_mean() const;

 private:
  std::optional<double> mean_of(std::size_t step) const;

  mutable std::mutex mutex_;
  std::size_t ranks_;
  std::vector<float> losses_;          // by step, then rank
  std::vector<std::size_t> reported_;  // by step
  mutable std::size_t complete_ = 0;   // steps before this one are
};

}  // namespace fsdpbench::engine
