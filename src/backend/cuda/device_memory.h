#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/device.h"
#include "base/lane.h"
#include "base/lane_pool.h"

namespace fsdpbench::backend::cuda {

/// Where the blocks of a device's pool really lie. The pool's bookkeeping (base/lane_pool.h) is the device's own and
/// the same for all; this only finds memory for its blocks, lane-ordered in the same sense.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  /// `bytes` of memory for the block that the bookkeeping placed at `offset` of its range, and at `place` in the range
  /// of its category, 512-byte aligned, for ops of `lane` enqueued from now on; null if there is no more.
  virtual std::byte* allocate(std::int64_t offset, const LanePool::CategoryPlace& place, std::int64_t bytes,
                              Lane lane) = 0;
  /// Gives the block back once everything enqueued on `lane` so far is done.
  virtual void free(std::byte* memory, std::int64_t bytes, Lane lane) = 0;
  /// The region of all blocks that collectives are called with; empty if there is none such.
  virtual std::span<std::byte> region() const { return {}; }
  /// Bytes of the device that this holds or has held at most, and what else is worth knowing.
  virtual Facts facts() const = 0;
};

}  // namespace fsdpbench::backend::cuda
