#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/lane_worker.h"
#include "backend/cpu/mapped_memory.h"
#include "backend/cpu/team.h"
#include "backend/device.h"
#include "base/lane_blocks.h"
#include "base/lane_pool.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {

/// Lanes are threads, memory is one address range of this rank: first the device's, then the host's, so that ranks of
/// other processes see both. An event is the number of the last item queued on its
/// lane at the time of recording: recording costs no queue entry, waiting is waiting for that number.
///
/// When a call throws launch::Stopped, no lane of this rank runs any more: nothing of the caller's is in use.
class CpuDevice : public Device {
 public:
  CpuDevice(Team& team, int rank);
  ~CpuDevice() override;

  void enqueue(Lane lane, const char* name, Task task, Stamp* stamp) override;
  void record(Event event, Lane lane) override;
  void wait(Lane lane, Event event) override;
  void host_wait(Event event) override;
  void synchronize() override;
  std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane) override;
  std::byte* allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane) override;
  void free(std::byte* memory, Lane lane) override;
  const PoolStatistics& memory() const override { return device_.pool.statistics(); }
  const PoolStatistics& host_memory() const override { return host_.pool.statistics(); }
  void reset_memory_peaks() override {
    device_.pool.reset_peaks();
    host_.pool.reset_peaks();
  }
  bool computes() const override { return team_.computes(); }
  Facts facts() const override;

  void enqueue_collective(Lane lane, const char* name, CollectiveTask call, Stamp* stamp);
  launch::Abort& abort() { return team_.abort(); }
  /// Runs `action`, which may block; on launch::Stopped ends this rank's lanes before passing it on.
  template <class Action>
  void guarded(Action action) {
    try {
      abort().throw_if_set();
      action();
    } catch (const launch::Stopped&) {
      join_lanes();
      throw;
    }
  }

 private:
  struct Recording {
    bool recorded = false;
    Lane lane = Lane::compute;
    std::int64_t position = 0;
    LaneClock clock;
  };
  /// A freed block that a lane still fills.
  struct Poisoning {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Lane lane = Lane::compute;
    std::int64_t position = 0;
  };

  /// Offsets are in the rank's range.
  struct Space {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
    std::string_view name;
    LanePool pool = {};
  };

  LaneWorker& worker(Lane lane) { return *lanes_[index_of(lane)]; }
  const Recording& recording(Event event) const;
  void join_lanes();
  std::byte* allocate_in(Space& space, std::int64_t bytes, MemoryCategory category, Lane lane);
  [[noreturn]] void throw_out_of_memory(const Space& space, std::int64_t bytes, MemoryCategory category) const;
  void push(Lane lane, LaneItem&& item);
  void push_wait(Lane lane, Lane for_lane, std::int64_t position);
  void poison(std::int64_t offset, std::int64_t bytes, Lane lane);
  void wait_for_poison(std::int64_t offset, std::int64_t bytes, Lane lane);

  Team& team_;
  const int rank_;
  MappedMemory& memory_;
  Space device_, host_;
  LaneOrder order_;
  std::vector<Recording> events_;
  std::vector<Poisoning> poisonings_;
  std::array<std::unique_ptr<LaneWorker>, kLaneCount> lanes_;  // may wait for each other: all join before one goes
};

}  // namespace fsdpbench::backend::cpu
