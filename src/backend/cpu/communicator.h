#pragma once

#include <memory>

#include "backend/communicator.h"
#include "backend/cpu/group.h"

namespace fsdpbench::backend::cpu {

class CpuDevice;

/// One rank's side of a Group: puts collectives on the device's lanes and keeps them in issue order.
/// May be destroyed while its collectives are still queued.
class CpuCommunicator : public Communicator {
 public:
  /// `device` must outlive this.
  CpuCommunicator(CpuDevice& device, std::shared_ptr<Group> group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override;

 private:
  /// Lets one collective after the other pass, in the order of their numbers. Shared with the queued collectives.
  class Turnstile;

  CpuDevice& device_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::int64_t issued_ = 0;
  std::shared_ptr<Turnstile> turnstile_;
  WireBytes wire_bytes_{};    // of all but unequal parts
  mutable WireBytes told_{};  // what wire_bytes() has returned
};

}  // namespace fsdpbench::backend::cpu
