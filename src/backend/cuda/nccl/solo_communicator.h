#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  void all_gather(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                  Stamp* stamp) override;
  void reduce_scatter(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                      float scale, Stamp* stamp) override;
  void all_reduce(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, float scale, Stamp* stamp) override;
  void broadcast(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, int root, Stamp* stamp) override;
  void all_to_all(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                  Stamp* stamp) override;
  void barrier() override { lanes_.abort().throw_if_set(); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  void copy(Collective kind, Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
            float scale, Stamp* stamp);

  LaneAccess& lanes_;
  const WireBytes wire_bytes_{};
};

}  // namespace fsdpbench::backend::cuda
