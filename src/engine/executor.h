#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/device.h"
#include "engine/buffer_table.h"
#include "engine/byte_dataset.h"
#include "engine/device_records.h"
#include "engine/masters.h"
#include "engine/op_runner.h"
#include "engine/trouble.h"
#include "model/model.h"
#include "plan/plan.h"
#include "schedule/communicator_order.h"
#include "schedule/op.h"
#include "trace/nvtx_range.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// NVTX ranges around the ops of a run, on every backend: on the thread that runs a lane's tasks, or on the host for
/// ops without work on a lane. Names are registered once; without a tool nothing is kept and nothing is done.
class OpRanges {
 public:
  /// `plan` and `schedules` must outlive this object.
  OpRanges(const plan::Plan& plan, const schedule::Schedules& schedules);

  /// Before an op's work is enqueued, or before the host does an op without work.
  void begin(backend::Device& device, const schedule::Op& op, std::int64_t step) const;
  /// After it: ends what begin() began.
  void end(backend::Device& device, const schedule::Op& op) const;

 private:
  struct Label {
    trace::NvtxName name;
    std::int64_t bytes = 0;
  };

  std::unordered_map<const schedule::Op*, Label> names_;  // empty: nobody listens
};

/// One rank: walks the schedule once a step, issues each op to its lane, honours events and host waits, and stamps
/// every op. It knows no strategy: what it does is what the schedule says.
class Executor {
 public:
  Executor(backend::RankContext& context, const config::RunConfig& config, const plan::Plan& plan,
           const schedule::Schedules& schedules, const model::Model& model, const BatchSource& batches);
  /// Tasks of a failed step that have not run yet refer to this.
  ~Executor() { context_.device.drop_tasks(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// As Masters::initialize; does nothing on a device that does not compute.
  void initialize(const model::FillParameter& fill, int threads = 1);
  /// As OpRunner::start_at.
  void start_at(const TrainingPosition& position) { runner_.start_at(position); }
  Masters& masters() { return masters_; }

  /// Runs step `step` to its end and returns this rank's mean loss over the microbatches (NaN if nothing computes).
  float run_step(std::int64_t step);
  /// From now on records and memory samples are kept, in buffers made now for `steps` steps.
  void start_recording(std::int64_t steps);
  /// Leaves steps out, or records again; what was recorded stays. After start_recording().
  void pause_recording(bool paused) { recording_ = !paused; }
  /// Host memory that those buffers take.
  static std::int64_t recording_bytes(const schedule::Schedules& schedules, std::int64_t steps);

  /// Host time of the last step, from its first op issued until every lane was idle; recorded or not.
  std::int64_t last_step_ns() const { return last_step_ns_; }

  /// The steps recorded so far.
  const trace::RankTrace& trace() const { return trace_; }
  /// As DeviceRecords::early_ns().
  std::int64_t early_ns() const { return device_records_.early_ns(); }
  /// Since the executor was made.
  backend::WireBytes wire_bytes() const { return communicators_.wire_bytes(); }

 private:
  /// Issues a step op by op.
  void issue_all(const schedule::Schedule& schedule, std::int64_t step);
  void issue(const schedule::Op& op, OpSlot& slot, std::int64_t step, trace::Record* record);
  void sample_memory();

  backend::RankContext& context_;
  const plan::Plan& plan_;
  const schedule::Schedules& schedules_;
  Communicators communicators_;
  BufferTable buffers_;
  Masters masters_;
  OpRunner runner_;
  OpRanges ranges_;
  schedule::CommunicatorOrder in_line_;
  Trouble trouble_;
  std::vector<OpSlot> slots_;
  std::vector<float> losses_;  // by microbatch
  bool recording_ = false;
  std::int64_t last_step_ns_ = 0;
  trace::RankTrace trace_;
  DeviceRecords device_records_;
};

}  // namespace fsdpbench::engine
