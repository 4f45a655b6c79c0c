#pragma once

#include "engine/loss_board.h"
#include "engine/run_board.h"
#include "launch/control_channel.h"

namespace fsdpbench::engine {

/// The board of ranks that are processes: rank 0 decides and collects, the others send. Nobody waits inside the loop of
/// steps as long as messages are faster than steps: whether step s runs is decided, and sent, before step s - 1, so a
/// stop takes effect one step later than between threads. One thread a process.
class ChannelBoard : public RunBoard {
 public:
  /// `stop` (may be empty) is asked once a step, on every rank: if any of them wants to stop, the run stops.
  ChannelBoard(launch::ControlChannel& channel, std::int64_t steps, const std::function<bool()>& stop);

  bool stops_before(int rank, std::int64_t step) override;
  void report_loss(int rank, std::int64_t step, float loss) override;
  std::optional<double> latest_loss() override;
  void bring(int rank, std::int64_t steps, RankOutcome outcome) override;
  std::vector<RankOutcome> outcomes() override { return std::move(outcomes_); }
  std::vector<double> losses(std::int64_t steps) override;

 private:
  bool wanted() const { return stop_ && stop_(); }
  bool anybody_wants_to_stop();
  void note_loss(int rank, const std::string& message);

  launch::ControlChannel& channel_;
  const std::int64_t steps_;
  const std::function<bool()>& stop_;
  LossBoard board_;                    // rank 0
  std::vector<std::int64_t> noted_;    // rank 0: losses noted, by rank
  bool stops_next_ = false;            // rank 0: the answer for the next step
  bool asked_to_stop_ = false;         // others: rank 0 knows that this one wants to
  std::vector<RankOutcome> outcomes_;
};

}  // namespace fsdpbench::engine
