#pragma once

#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "engine/batch_source.h"
#include "engine/buffer_table.h"
#include "engine/communicators.h"
#include "engine/copy_runs.h"
#include "model/model.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

namespace fsdpbench::engine {

/// What an op needs on its lane, resolved when it is issued: pointers and numbers only. One slot an op, reused from
/// step to step; it stays untouched from its issue to the end of the step.
struct OpSlot {
  backend::Stamp stamp;
  model::ModuleCall call;                    // forward, recompute, backward
  std::vector<const std::byte*> parameters;  // call's arrays
  std::vector<std::byte*> gradients;
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::byte* extra = nullptr;                // second operand: moments, sums
  std::byte* extra2 = nullptr;
  const float* factor = nullptr;             // clip factor
  DType from_dtype = DType::f32;
  DType to_dtype = DType::f32;
  std::int64_t count = 0;
  std::int64_t step = 0;                     // optimizer steps done, this one included
  const std::vector<backend::CopyRun>* runs = nullptr;
  std::vector<std::byte> host_inputs;        // load_batch
  std::vector<std::byte> host_targets;
  std::vector<std::pair<std::byte*, std::int64_t>> zero;  // ranges to clear before a unit's first backward
};

/// Turns ops into work: resolve() on the issuing host thread, run() on the op's lane. Knows what each kind of op
/// does, and nothing about their order.
class OpRunner {
 public:
  OpRunner(const config::RunConfig& config, const plan::Plan& plan, const model::Model& model,
           const BatchSource& batches, int rank);

  /// Fills `slot` from the buffers as they are at issue. `step` counts from 0.
  void resolve(const schedule::Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const;
  /// The work of every op that is not a collective.
  void run(const schedule::Op& op, OpSlot& slot, backend::Kernels& kernels) const;
  /// Enqueues a collective on its lane.
  void enqueue_collective(const schedule::Op& op, const OpSlot& slot, Communicators& communicators,
                          backend::Stamp* stamp) const;

 private:
  struct Place {  // of a parameter in its unit's buffers, in elements
    int unit = 0;
    bool replicated = false;
    std::int64_t offset = 0;
  };
  struct UnitRuns {
    std::vector<backend::CopyRun> copy_out, copy_out_group, reduce_copy_in, keep_group;
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps, gaps_replicated;
  };
  void resolve_module(const schedule::Op& op, const BufferTable& buffers, OpSlot* slot) const;
  void resolve_batch(const schedule::Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const;

  const config::RunConfig& config_;
  const plan::Plan& plan_;
  const model::Model& model_;
  const BatchSource& batches_;
  int rank_;
  std::vector<Place> places_;     // by parameter
  std::vector<UnitRuns> runs_;    // by unit
};

}  // namespace fsdpbench::engine
