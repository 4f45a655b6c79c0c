#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/kernels.h"
#include "engine/buffer_table.h"
#include "engine/byte_dataset.h"
#include "engine/trouble.h"
#include "model/model.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::engine {

/// The mean loss over ranks of a step.
struct StepLoss {
  std::int64_t steps = 0;  ///< how many steps were done with it
  double mean = 0;
};

/// An op's operands as pointers, taken from the buffers when the op is issued; the lane needs nothing else. One slot
/// an op, reused from step to step; it stays untouched from its issue to the end of the step.
struct OpSlot {
  backend::Stamp stamp;
  backend::Elements from, to;                                      // what most work has: a source and a target
  backend::Elements first_moment, second_moment, factor, rounded;  // optimizer
  std::int64_t step = 0;                                           // optimizer: steps done, this one included
  const std::vector<backend::CopyRun>* runs = nullptr;             // copies by layout, but for copy_in:
  std::vector<backend::CopyRun> bucket_runs;                       // the same into or out of a bucket
  std::int64_t count = 0;                                          // copy_in: elements
  std::vector<std::byte> host_inputs, host_targets;                // load_batch
  model::ModuleCall call;                                          // forward, recompute, backward
  std::vector<const std::byte*> parameters;                        // call's arrays
  std::vector<std::byte*> gradients;
  struct Squares {
    std::int64_t first = 0, count = 0;
    float factor = 1.0F;
  };
  std::vector<Squares> squares;                           // gradient_norm: runs of the gradient and their weights
  std::vector<std::pair<std::byte*, std::int64_t>> zero;  // ranges to clear before a unit's first backward
};

/// Turns ops into work: resolve() on the issuing host thread, run() on the op's lane. Knows what each family of work
/// does, and nothing about the order of ops. Everything given to it must outlive it.
class OpRunner {
 public:
  OpRunner(const config::RunConfig& config, const plan::Plan& plan, const model::Model& model,
           const BatchSource& batches, int rank);

  /// Steps and samples that a resumed training had done before this run. Call before the first step.
  void start_at(const TrainingPosition& position) { start_ = position; }

  /// Fills `slot` from the buffers as they are at issue. `step` counts from 0 in each run.
  void resolve(const schedule::Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const;
  /// The work of every op that is not a collective. Throws std::logic_error for one that has none.
  void run(const schedule::Op& op, OpSlot& slot, backend::Kernels& kernels) const;
  /// Enqueues a collective on its lane. Throws std::logic_error if it is none, or the plan lacks its group.
  void enqueue_collective(const schedule::Op& op, const OpSlot& slot, Communicators& communicators,
                          backend::Stamp* stamp) const;

 private:
  class Resolve;
  class Run;
  struct Place {  // of a parameter in its unit's buffers, in elements
    int unit = 0;
    bool replicated = false;
    std::int64_t offset = 0;
  };
  /// Copies between a unit's buffers by one of its layouts.
  struct LayoutRuns {
    std::vector<backend::CopyRun> copy_out, reduce_copy_in, keep_group;
  };
  struct UnitRuns {
    LayoutRuns over_shard_group, over_reshard_group;
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps, gaps_replicated;
  };

  void fill_batch(int micro, std::int64_t step, OpSlot& slot) const;
  std::int64_t update_number(std::int64_t step) const { return start_.steps + step + 1; }

  const config::RunConfig& config_;
  const plan::Plan& plan_;
  const model::Model& model_;
  const BatchSource& batches_;
  int rank_;
  model::TensorPlace tensor_;
  TrainingPosition start_;
  std::vector<Place> places_;   // by parameter
  std::vector<UnitRuns> runs_;  // by unit
};

}  // namespace fsdpbench::engine
