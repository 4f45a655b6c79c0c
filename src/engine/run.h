#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/byte_dataset.h"
#include "engine/checkpoint.h"
#include "engine/op_runner.h"
#include "engine/rank_outcome.h"
#include "engine/setup.h"
#include "launch/clock_offset.h"
#include "launch/session.h"
#include "model/initialize.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// Callbacks of a run. Any may be empty.
struct RunHooks {
  /// After each step, on rank 0's thread: steps done (warm-up included), and the mean loss over ranks of the latest
  /// step that all are known to have done (absent if nothing computes, or before the first).
  std::function<void(std::int64_t done, const std::optional<StepLoss>& loss)> progress;
  /// Asked before each step; true ends the run after the steps done so far. In a job of processes any rank's counts,
  /// and one step more is done.
  std::function<bool()> stop;
  /// All ranks meet before each step, so that a step without collectives lets none of them begin the next one early.
  bool meet_before_steps = false;
  /// After the last step, on the thread of this process's first rank: what follows brings home what is done.
  std::function<void()> steps_over;
  /// Initial parameters; empty: model/initialize.h with train.seed.
  model::FillParameter fill;
  /// A training that the run goes on with, instead of `fill`: parameters, moments, the number of the next step and
  /// sample. It was saved under the setup's plan, and must outlive the run.
  const Checkpoint* resume = nullptr;
  /// Whether Measurement::parameters is wanted: the whole model in fp32, in rank 0's host memory.
  bool keep_parameters = false;
  /// Steps that the ranks of this process have completed, step by step, and also when the run throws: an
  /// array with one for each, in order.
  DoneSteps* done = nullptr;
  /// Once set, a run of threads ends in the middle of its step, wherever ranks wait, with the steps that all ranks have
  /// done: Measurement::interrupted. Jobs of processes are ended by their control channel.
  launch::Abort* interrupt = nullptr;
};

/// One rank's clock as seen from rank 0's.
struct RankClock {
  launch::ClockOffset before;  ///< measured right before the run
  launch::ClockCorrection correction;
};

/// Measurements of a run. In a job of processes only rank 0's is complete: elsewhere the entries of other ranks are
/// empty, and there are no losses and no parameters.
struct Measurement {
  std::int64_t steps_done = 0;  ///< warm-up included
  bool interrupted = false;
  std::vector<double> losses;  ///< per step, warm-up included; empty if nothing computes
  /// Absent if nobody wants it (train.params_digest), nothing computes, not all parameters are finite, the run ended in
  /// the middle of a step, or another run of the same may end with other bits (config::Device::repeats).
  std::optional<std::string> parameters_digest;
  std::int64_t parameters_not_finite = 0;  ///< elements of the final parameters that are NaN or infinite
  std::vector<std::vector<float>>
      parameters;  ///< final masters by canonical index; only if hooks ask and something computes
  /// Measured steps only; by rank, but a simulation of many ranks keeps some of them (`rank` says which).
  std::vector<trace::RankTrace> traces;
  /// Nanoseconds of the slowest rank by measured step, if not all ranks are in `traces`. Else empty.
  std::vector<std::int64_t> slowest_ns;
  std::vector<PoolStatistics> memory;          ///< as traces
  std::vector<PoolStatistics> host_memory;     ///< pinned, as traces
  std::vector<backend::WireBytes> wire_bytes;  ///< as traces, of the measured steps
  std::vector<backend::Facts> devices;         ///< by rank: how its device measured
  std::vector<std::optional<GpuHealth>> gpus;  ///< by rank: how its GPU fared; absent: it has none
  std::vector<std::int64_t> early_ns;          ///< by rank: DeviceRecords::early_ns()
  TrainingPosition began_at;                   ///< of the training that the run went on with
  std::vector<SavedCheckpoint> checkpoints;    ///< on rank 0, also those that were removed again
  std::vector<std::string> hosts;              ///< by rank: name of its machine
  double others_share = 0;        ///< of the busiest host's processors, what other programs took; 0: nobody looked
  std::vector<RankClock> clocks;  ///< by rank: the traces are on rank 0's; empty without a session
};

/// Throws BackendError if links are emulated and a rank is on another host than rank 0: the model of a link counts in
/// one clock's time. `clocks`: as rank 0, which speaks for all, has measured them.
void check_emulation(const config::RunConfig& config, const std::vector<launch::ClockOffset>& clocks);

/// Trains train.warmup + train.steps steps on `backend`. Without a session all ranks are threads of this process; with
/// one, this process is the session's rank, and all processes of the job must call it with the same setup.
/// Throws what the first failing rank threw; in other processes launch::Stopped with its message.
Measurement run(backend::Backend& backend, const Setup& setup, const BatchSource& batches, const RunHooks& hooks = {},
                launch::Session* session = nullptr);

}  // namespace fsdpbench::engine
