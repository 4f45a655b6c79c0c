#pragma once

#include <vector>

#include "schedule/reducer.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// The optimizer's part of a step: the clip factor, and each unit's update on the device, or on the host where its
/// state lies there (fsdp.cpu_offload).
class Updates {
 public:
  /// `builder` must outlive it.
  explicit Updates(StepBuilder& builder) : builder_(builder) {}

  /// Updates the parameters of all `gradients`, in their order, and frees these. There is at least one.
  void append(const std::vector<Reducer::Ready>& gradients);
  /// The compute lane comes after all that the host has updated, and sent.
  void finish();

 private:
  static Lane lane_of(const Reducer::Ready& gradient) { return gradient.on_host ? Lane::host_compute : Lane::compute; }
  BufferId clip(const std::vector<Reducer::Ready>& gradients);
  /// cpu_offload = optimizer: what the device keeps of the unit that the last op has updated.
  void send_to_device(int unit);

  StepBuilder& builder_;
  BufferId factor_ = kNoBuffer;  // that finish() frees
};

}  // namespace fsdpbench::schedule
