#pragma once

#include <cuda_runtime_api.h>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/event_timer.h"
#include "backend/cuda/kernels/cuda_kernels.h"
#include "backend/cuda/lane_access.h"
#include "backend/cuda/op_timer.h"
#include "backend/device.h"
#include "backend/kernels.h"
#include "base/lane.h"
#include "base/lane_blocks.h"
#include "base/lane_pool.h"
#include "hardware/gpu_monitor.h"

namespace fsdpbench::backend::cuda {

/// The lane host_compute: its ops run on the host, in the order of a stream, so that events order them with all other
/// lanes.
///
/// [Note: ops on the host]
/// An op is a host function (cudaLaunchHostFunc) that hands the task to a thread of this rank's and waits for it. That
/// thread has the kernels, which belong to one thread, and runs where the rank's others do; CUDA's own thread, of which
/// nothing is promised, does nothing but wait. A stream that waited for a word in memory instead (cuStreamWaitValue)
/// would leave CUDA's thread free, but not be known to CUDA as ordered after the host: streams that share a hardware
/// queue could then wait for each other for ever. The price: CUDA calls host functions of a process one after another,
/// as far as it says, so ranks that are threads of one process update in turn; ranks that are processes do not.
///
/// A task calls nothing of CUDA: a host function may not, and who waits for one may not either.
class HostLane {
 public:
  /// `stream` outlives it, or is idle. `kernels` is called with `threads` on the lane's thread.
  HostLane(cudaStream_t stream, int rank, MakeHostKernels kernels, int threads);
  /// As drop(); host functions that the stream has not come to may be called later and do nothing.
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  /// Puts `task` at the end of the stream; it writes `stamp` (null: nobody wants to know) itself. `name` must outlive
  /// the run.
  void enqueue(const char* name, Device::Task task, Stamp* stamp);
  /// Throws what the first task threw that failed, with rank, lane and op; no task begins after it. Thread-safe.
  void throw_if_failed() const;
  /// No task enqueued so far begins any more, and none runs when this returns.
  void drop();
  Facts facts() const;

 private:
  struct State;
  struct Call;
  static void perform(void* call);
  static void work(State& state, const MakeHostKernels& kernels, int threads);

  cudaStream_t stream_;
  const int threads_;
  std::shared_ptr<State> state_;
  std::int64_t enqueued_ = 0;
  std::thread worker_;
};

/// The ops that the host has issued and not seen complete: tells whether the GPU gets on, and if not, which op it
/// hangs in. One event an op, without timing.
class OpsUnderWay {
 public:
  /// `name` must outlive this; `step` and `op` are -1 where the op is none of a schedule's, `op`
  /// alone where it is a whole step.
  void add(Lane lane, cudaStream_t stream, const char* name, std::int32_t step, std::int32_t op);
  /// Looks which have completed; true if any has since the last call. On a GPU that has failed none has.
  bool advance();
  /// "all_gather (step 2, op 17) on lane all_gather": the first issued of those that have not completed, as of the
  /// last advance(); empty if there is none.
  std::string oldest() const;

 private:
  struct Op {
    std::int64_t number = 0;
    const char* name = "";
    std::int32_t step = -1;
    std::int32_t op = -1;
    cudaEvent_t done = nullptr;
  };
  bool advance(std::deque<Op>& ops);

  EventStore events_{cudaEventDisableTiming};
  std::array<std::deque<Op>, kLaneCount> lanes_;
  std::int64_t issued_ = 0;
  bool advanced_ = false;  // by add(), not told yet
};

/// One rank's GPU: lanes are streams, events are CUDA's. The current device of the rank's host thread is this one.
///
/// The pool's bookkeeping is that of every backend, so live and occupied bytes are those of the schedule's own walk;
/// the bytes that CUDA needed for it are told beside it (facts). The host never waits without an end: it asks again and
/// again whether the GPU is done, and gives up when the run is aborted, when the watched communicator has failed, or
/// when no op has completed for NcclOptions.timeout_s.
///
/// When a call throws, no task of this rank runs any more: those of other lanes than host_compute run in enqueue().
class CudaDevice : public Device, public LaneAccess {
 public:
  /// Resources that the lane host_compute computes with.
  struct HostCompute {
    MakeHostKernels kernels;  ///< none: the device has no such lane
    int threads = 1;
  };
  CudaDevice(launch::Abort& abort, int rank, const BackendOptions& options, const HostCompute& host);
  /// Waits some seconds for what still runs; whoever hangs in a collective must have been stopped before.
  ~CudaDevice() override;

  void enqueue(Lane lane, const char* name, Task task, Stamp* stamp) override;
  void record(Event event, Lane lane) override;
  void wait(Lane lane, Event event) override;
  void host_wait(Event event) override;
  void synchronize() override;
  std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane) override;
  void free(std::byte* memory, Lane lane) override;
  const PoolStatistics& memory() const override { return pool_.statistics(); }
  std::byte* allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane) override;
  const PoolStatistics& host_memory() const override;
  void reset_memory_peaks() override;
  void drop_tasks() override;
  void set_op(std::int32_t step, std::int32_t op) override;
  void settle_stamps() override { timer_->settle(); }
  Activities take_activities() override { return timer_->take_activities(); }
  Facts facts() const override;
  std::optional<GpuHealth> health() const override;
  bool computes() const override { return true; }

  cudaStream_t stream(Lane lane) override { return streams_[lane]; }
  void run_op(Lane lane, const char* name, const std::function<void(cudaStream_t)>& work, Stamp* stamp) override;
  void watch(std::function<void()> check) override { watched_ = std::move(check); }
  launch::Abort& abort() override { return abort_; }
  Kernels& kernels(Lane lane) override { return *kernels_[index_of(lane)]; }
  std::span<std::byte> communication_memory() override { return memory_->region(); }

  /// More for facts() to tell, asked then.
  void add_facts(std::function<Facts()> more) { more_facts_ = std::move(more); }
  /// Attributes GPU memory taken since the last call to `what`; for facts().
  void note_memory(const std::string& what) { memory_log_.note(what); }

 private:
  struct Recording {
    cudaEvent_t event = nullptr;  ///< null: never recorded
    LaneClock clock;
  };

  Recording* recording(Event event);
  template <class Work>
  void issue(Lane lane, const char* name, Stamp* stamp, const Work& work);
  void enqueue_on_host(const char* name, Task task, Stamp* stamp);
  /// Throws if an op on the host has failed or the run is aborted.
  void throw_if_failed();
  /// Throws also if the watched communicator has failed.
  void look_around();
  /// Blocks until ready(), which asks the GPU, is true; what the host has asked to be copied to it is there then.
  template <class Ready>
  void block_until(const Ready& ready);
  std::string in_op(Lane lane, const char* name, const char* what) const;
  std::string oldest_op() const;
  /// Result of a query of the GPU; throws if it says that the GPU has failed.
  bool is_done(cudaError_t status) const;
  [[noreturn]] void throw_stuck() const;
  [[noreturn]] void throw_out_of_memory(std::int64_t bytes, MemoryCategory category) const;

  launch::Abort& abort_;
  const int rank_;
  const std::chrono::duration<double> timeout_;
  std::int32_t step_ = -1;
  std::int32_t op_ = -1;
  std::function<void()> watched_;
  std::function<Facts()> more_facts_;

  std::optional<hardware::GpuMonitor> monitor_;  // none: nobody wants to know
  MemoryLog memory_log_;
  std::string timer_note_;
  std::unique_ptr<OpTimer> timer_;
  LaneStreams streams_;
  EventStore event_store_{cudaEventDisableTiming};
  std::vector<Recording> events_;
  OpsUnderWay ops_;
  PinnedRanges pinned_;
  std::unique_ptr<PinnedPool> pinned_pool_;
  std::unique_ptr<HostLane> host_lane_;
  std::array<std::unique_ptr<StreamKernels>, kLaneCount> kernels_;
  LaneOrder order_;
  LanePool pool_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unordered_map<std::byte*, std::int64_t> offsets_;  ///< of live blocks
};

}  // namespace fsdpbench::backend::cuda
