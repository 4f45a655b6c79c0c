#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/lane.h"
#include "base/lane_pool.h"
#include "base/memory_space.h"
#include "hardware/gpu_health.h"

namespace fsdpbench::backend {

/// A backend is built in, and this machine has no device for it: no driver, or no GPU that answers.
class NoDevice : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

class Kernels;

/// Facts for people and result files, as (name, sentence or value).
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Activities of one rank's run that the device itself reports, where it has a profiler.
struct Activities {
  std::vector<Activity> all;       ///< in order of begin
  std::vector<std::string> names;  ///< of kernels and host calls
};

/// Times of an op on its lane, in nanoseconds of base/clock.h. Written by the device, read by the host only after
/// Device::settle_stamps(). A collective also stores when its last peer had arrived, if it can know; 0 elsewhere.
struct Stamp {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t peers_arrived_ns = 0;
  std::int64_t core_wait_ns = 0;  ///< just before, its lane could have run and had no core; 0: never, or not known
  std::int64_t link_ns = 0;       ///< of a collective: from peers_arrived_ns until this rank's own link was done;
                                  ///< 0: not known
};

/// One rank's accelerator: lanes, events, lane-ordered memory and kernels.
///
/// All calls come from the one host thread of the rank that issues; none blocks but host_wait, synchronize and a
/// full queue. A failure in an op, or of any other rank, ends all ranks: the next call then throws
/// BackendError with the first failure's message.
class Device {
 public:
  /// Work of one op. On CPU it runs later, on the lane's own thread; on CUDA it runs at once and only enqueues to
  /// the lane's stream. It may use `kernels` only during the call.
  using Task = std::function<void(Kernels& kernels)>;
  /// Events are small numbers, reused every step; recording again overwrites. Waiting for an event that was never
  /// recorded is a no-op (as on CUDA).
  using Event = std::int32_t;

  virtual ~Device() = default;

  /// Puts `task` at the end of `lane`. `stamp` (null: nobody wants to know) must stay valid until settle_stamps().
  /// `name` must outlive the run; it labels errors.
  virtual void enqueue(Lane lane, const char* name, Task task, Stamp* stamp) = 0;
  /// `event` completes when everything enqueued on `lane` so far is done.
  virtual void record(Event event, Lane lane) = 0;
  /// Ops enqueued on `lane` from now on start only after the latest recording of `event`.
  virtual void wait(Lane lane, Event event) = 0;
  /// Blocks the host until the latest recording of `event` is complete.
  virtual void host_wait(Event event) = 0;
  /// Blocks the host until every lane is empty.
  virtual void synchronize() = 0;

  /// Lane-ordered memory, see base/lane_pool.h. Never returns null; 512-byte aligned; contents undefined.
  /// Throws ResourceError, naming the bytes and the category, when the device has no more.
  virtual std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane) = 0;
  /// Pinned host memory, in the order of lanes as allocate() has it: kernels' upload() and download() copy from and to
  /// it, the host_compute lane computes on it. A device that has none throws BackendError.
  virtual std::byte* allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane);
  /// The memory, of either kind, is free once everything enqueued on `lane` so far is done.
  virtual void free(std::byte* memory, Lane lane) = 0;
  /// Statistics of all allocations and frees issued so far.
  virtual const PoolStatistics& memory() const = 0;
  /// Statistics of the pool of pinned host memory.
  virtual const PoolStatistics& host_memory() const;
  /// Peaks count from now on.
  virtual void reset_memory_peaks() = 0;

  /// No task enqueued so far begins any more, and none runs when this returns: what they refer to may go. A device
  /// whose lanes end with the run's abort alone does nothing: they go on until then.
  virtual void drop_tasks() {}

  /// Everything enqueued from now on belongs to this op of this step; only for what take_activities() tells.
  virtual void set_op(std::int32_t /*step*/, std::int32_t /*op*/) {}
  /// Returns when the stamps of all work that is done are written. A device that stamps as it goes has nothing to do.
  /// After synchronize(), outside any timed region: it may take milliseconds.
  virtual void settle_stamps() {}
  /// Activities that the device recorded for stamped ops since the last call; empty without a profiler.
  virtual Activities take_activities() { return {}; }
  /// Facts on how the device measured and what it used beside its pool, once the run is over: "timer", "nccl", "records
  /// dropped" …
  virtual Facts facts() const { return {}; }
  /// Health of the GPU since this device was made; absent: not a GPU. It may take milliseconds.
  virtual std::optional<GpuHealth> health() const { return std::nullopt; }

  /// False if kernels only take modelled time and compute nothing: results then have no meaning.
  virtual bool computes() const = 0;
};

}  // namespace fsdpbench::backend
