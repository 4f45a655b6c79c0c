#pragma once

#include <map>
#include <mutex>

#include "engine/loss_board.h"
#include "engine/run_board.h"

namespace fsdpbench::engine {

/// The board of ranks that are threads of this process. Thread-safe.
class ThreadBoard : public RunBoard {
 public:
  /// `stop` (may be empty) is asked once a step, by whichever rank comes first; it must outlive the board.
  ThreadBoard(int ranks, std::int64_t steps, const std::function<bool()>& stop);

  bool stops_before(int rank, std::int64_t step) override;
  void report_loss(int rank, std::int64_t step, float loss) override { board_.report(step, rank, loss); }
  std::optional<double> latest_loss() override { return board_.latest_mean(); }
  void bring(int rank, std::int64_t steps, RankOutcome outcome) override;
  std::vector<RankOutcome> outcomes() override { return std::move(outcomes_); }
  std::vector<double> losses(std::int64_t steps) override;

 private:
  LossBoard board_;
  const std::function<bool()>& stop_;
  std::mutex mutex_;
  std::map<std::int64_t, bool> decisions_;
  std::vector<RankOutcome> outcomes_;
};

}  // namespace fsdpbench::engine
