#pragma once

#include <memory>

#include "backend/communicator.h"
#include "backend/cuda/lane_access.h"

namespace fsdpbench::backend::cuda {

/// A group of one rank: copies and scaling on the lane's stream, no NCCL.
class SoloCommunicator : public Communicator {
 public:
  /// `lanes` must outlive this.
  explicit SoloCommunicator(LaneAccess& lanes) : lanes_(lanes) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override { lanes_.abort().throw_if_set(); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  LaneAccess& lanes_;
  const WireBytes wire_bytes_{};
};

}  // namespace fsdpbench::backend::cuda
