#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Inputs of reductions that are alive, oldest first: fsdp.reduce_scatter_buffers and reduce_scatter_elements.
class ReduceInputs {
 public:
  /// `builder` must outlive it.
  explicit ReduceInputs(StepBuilder& builder);

  /// True: the compute lane frees inputs, once they were added here; false: whoever reads an input frees it.
  bool compute_frees() const;
  /// The compute lane will free `buffer` after `read`.
  void add(BufferId buffer, EventId read, int unit, std::int64_t numel);
  /// Waits for the oldest until the limit allows another, which is made now if `fresh`.
  void make_room(bool fresh);
  /// Waits for all of them.
  void release_all() { release_down_to(0); }

 private:
  struct Input {
    BufferId buffer = kNoBuffer;
    EventId read = kNoEvent;
    int unit = 0;
    std::int64_t numel = 0;
  };
  void release_down_to(std::size_t count);

  StepBuilder& builder_;
  std::int64_t most_elements_;  // fsdp.reduce_scatter_elements, two mean units at least
  std::deque<Input> inputs_;
};

/// fsdp.cpu_offload: takes the reduced gradient of a shard to host memory.
///
/// [Note: offloaded gradients]
/// A gradient goes to the host by device_to_host, in fp32 and divided (all, as PyTorch has it) or as it was reduced
/// (optimizer, as ZeRO-Offload has it: the host widens it). PyTorch copies in the stream of the reduction, so the next
/// reduction there starts after the copy; and before the optimizer the host waits for every copy. If several
/// microbatches are reduced, the host adds later ones to the first: PyTorch's thread does that itself, so with
/// `all` it waits for the copy and the sum before it issues more. Unsharded gradients (no_sync) and those that await
/// the replicas' all-reduce are added up on the device.
class GradientOffload {
 public:
  /// `builder` must outlive it.
  explicit GradientOffload(StepBuilder& builder) : builder_(builder) { copied_from_.fill(kNoEvent); }

  bool on() const { return builder_.offloads(); }
  /// The device widens and divides before the copy.
  bool finishes_on_device() const { return builder_.policy.fsdp.cpu_offload == config::CpuOffload::all; }
  /// The next op of `lane` is a reduction's.
  void before_reduction(Lane lane);

  /// The host waits for all copies and sums so far, unit by unit.
  void host_waits();

  /// A reduced gradient on the device.
  struct Gradient {
    int unit = 0;
    BufferId buffer = kNoBuffer;
    Lane lane = Lane::compute;  ///< where it was written
    EventId ready = kNoEvent;
    std::int64_t numel = 0;
    float factor = 1.0F;  ///< that it must yet be multiplied by
  };
  /// Copies `gradient` to the host and adds it to `sum` there (fp32; kNoBuffer: it becomes the sum).
  void append(const Gradient& gradient, BufferId& sum);

 private:
  StepBuilder& builder_;
  std::array<EventId, kLaneCount> copied_from_;  // last copy of what was reduced on a lane
  std::map<int, EventId> unfinished_;            // by unit: what the host has not waited for
};

}  // namespace fsdpbench::schedule
