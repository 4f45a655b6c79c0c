#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/rank_outcome.h"

namespace fsdpbench::engine {

/// Where the ranks of one run agree on when it ends and leave what they have measured.
class RunBoard {
 public:
  virtual ~RunBoard() = default;

  /// Whether the run ends before `step`; every rank gets the same answer. Each rank asks for 0, 1, 2 … in turn, until
  /// the answer is true or it has asked for the last step.
  virtual bool stops_before(int rank, std::int64_t step) = 0;
  virtual void report_loss(int rank, std::int64_t step, float loss) = 0;
  /// For a progress line, on rank 0: the mean loss of the last step that all ranks are known to have done.
  virtual std::optional<double> latest_loss() = 0;

  /// Once a rank, after its last step: `outcome`, and that it has done the first `steps` steps.
  virtual void bring(int rank, std::int64_t steps, RankOutcome outcome) = 0;
  /// After all ranks of this process have brought theirs: all outcomes by rank. Complete on rank 0; in other
  /// processes the outcomes of other ranks are empty.
  virtual std::vector<RankOutcome> outcomes() = 0;
  /// Mean loss of each of the first `steps` steps; rank 0 only.
  virtual std::vector<double> losses(std::int64_t steps) = 0;
};

}  // namespace fsdpbench::engine
