#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/op_runner.h"
#include "engine/rank_outcome.h"
#include "launch/control_channel.h"

namespace fsdpbench::engine {

/// Ranks' losses of each step. Thread-safe.
class LossBoard {
 public:
  LossBoard(int ranks, std::int64_t steps);

  /// Once a rank and step.
  void report(std::int64_t step, int rank, float loss);
  /// Mean over all ranks, summed in rank order, of each of the first `steps` steps, which all have reported.
  std::vector<double> means(std::int64_t steps) const;
  /// The mean loss of the last step that all ranks have reported; absent before the first.
  std::optional<StepLoss> latest_mean() const;

 private:
  double mean_of(std::size_t step) const;

  mutable std::mutex mutex_;
  std::size_t ranks_;
  std::vector<float> losses_;          // by step, then rank
  std::vector<std::size_t> reported_;  // by step
  mutable std::size_t complete_ = 0;   // steps before this one are
};

/// Board on which the ranks of one run agree on when it ends and leave what they have measured.
class RunBoard {
 public:
  virtual ~RunBoard() = default;

  /// Whether the run ends before `step`; every rank gets the same answer. Each rank asks for 0, 1, 2 … in turn, until
  /// the answer is true or it has asked for the last step.
  virtual bool stops_before(int rank, std::int64_t step) = 0;
  /// Once a rank and step, in the order of steps.
  virtual void report_loss(int rank, std::int64_t step, float loss) = 0;
  /// For a progress line, on rank 0: the mean loss of the last step that all ranks are known to have done.
  virtual std::optional<StepLoss> latest_loss() = 0;
  /// Once a rank, after its last step: `outcome`, and that it has done the first `steps` steps.
  virtual void bring(int rank, std::int64_t steps, RankOutcome outcome) = 0;

  /// Steps that all ranks of this process have done; 0 if one of them has brought nothing.
  std::int64_t steps_done() const { return *std::ranges::min_element(done_); }
  /// After all ranks of this process have brought theirs: all outcomes by rank. Complete on rank 0; in other
  /// processes the outcomes of other ranks are empty.
  std::vector<RankOutcome> outcomes() { return std::move(outcomes_); }
  /// Mean loss of each of the first `steps` steps; rank 0 only.
  std::vector<double> losses(std::int64_t steps) const { return board_.means(steps); }

 protected:
  /// `stop` (may be empty) must outlive the board. Losses of `steps` steps come to this process, which has `threads` of
  /// the ranks.
  RunBoard(int ranks, int threads, std::int64_t steps, const std::function<bool()>& stop)
      : board_(ranks, steps), outcomes_(ranks), done_(threads), stop_(stop) {}
  bool wanted() const { return stop_ && stop_(); }

  LossBoard board_;
  std::vector<RankOutcome> outcomes_;  // by rank
  std::vector<std::int64_t> done_;     // steps, by rank of this process

 private:
  const std::function<bool()>& stop_;
};

/// The board of ranks that are threads of this process. Thread-safe.
class ThreadBoard : public RunBoard {
 public:
  /// `stop` is asked once a step, by whichever rank comes first.
  ThreadBoard(int ranks, std::int64_t steps, const std::function<bool()>& stop) : RunBoard(ranks, ranks, steps, stop) {}

  bool stops_before(int rank, std::int64_t step) override;
  void report_loss(int rank, std::int64_t step, float loss) override { board_.report(step, rank, loss); }
  std::optional<StepLoss> latest_loss() override { return board_.latest_mean(); }
  void bring(int rank, std::int64_t steps, RankOutcome outcome) override;

 private:
  std::mutex mutex_;
  std::map<std::int64_t, bool> decisions_;
};

/// The board of ranks that are processes: rank 0 decides and collects, the others send. Nobody waits inside the loop of
/// steps as long as messages are faster than steps: whether step s runs is decided, and sent, before step s - 1, so a
/// stop takes effect one step later than between threads. One thread a process.
class ChannelBoard : public RunBoard {
 public:
  /// `stop` is asked once a step, on every rank: if any of them wants to stop, the run stops.
  ChannelBoard(launch::ControlChannel& channel, std::int64_t steps, const std::function<bool()>& stop);

  bool stops_before(int rank, std::int64_t step) override;
  void report_loss(int rank, std::int64_t step, float loss) override;
  std::optional<StepLoss> latest_loss() override;
  void bring(int rank, std::int64_t steps, RankOutcome outcome) override;

 private:
  bool anybody_wants_to_stop();
  void note_loss(int rank, const std::string& message);

  launch::ControlChannel& channel_;
  const std::int64_t steps_;
  std::vector<std::int64_t> noted_;  // rank 0: losses noted, by rank
  bool stops_next_ = false;          // rank 0: the answer for the next step
  bool asked_to_stop_ = false;       // others: rank 0 knows that this one wants to
};

}  // namespace fsdpbench::engine
