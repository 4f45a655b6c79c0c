#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "accept/collectives/collective_row.h"
#include "accept/collectives/collectives_options.h"
#include "backend/backend.h"
#include "backend/kernels.h"
#include "base/lane_pool.h"

namespace fsdpbench::app {

/// Contents that ranks put into their buffers, so that results can be known exactly: small integers that depend on rank
/// and place. Bytes that came from another rank, another place or another round differ.
class Pattern {
 public:
  /// `round`: tells one filling of the buffers from the next. Where values are to be reduced, all sums of all `ranks`
  /// are exact in `dtype`, in whatever order they are added.
  Pattern(DType dtype, bool reduced, int ranks, std::uint64_t round);

  /// Elements first.. of what `rank` holds, in `out`: a whole number of elements.
  void fill(int rank, std::int64_t first, std::span<std::byte> out) const;
  /// Number of elements of `got` are not what `rank` holds there.
  std::int64_t wrong(int rank, std::int64_t first, std::span<const std::byte> got) const;
  /// Number that is not the sum over all ranks of what they hold there, or the average. An average that is exact in the
  /// dtype must be met exactly, others within the rounding of an inexact factor.
  std::int64_t wrong_sums(Reduction reduction, std::int64_t first, std::span<const std::byte> got) const;

 private:
  int value(int rank, std::int64_t index) const;

  DType dtype_;
  int ranks_;
  std::uint64_t round_;
  int peak_ = 0;    // the largest value
  int stride_ = 1;  // one rank in so many holds something there
  int least_ = 0;
};

/// Cleared memory of one rank's device for as long as something is measured.
template <std::size_t kCount>
class Blocks {
 public:
  Blocks(backend::RankContext& context, std::int64_t bytes, Lane lane = Lane::compute)
      : context_(context), lane_(lane) {
    const bool computes = lane == Lane::compute;
    for (std::byte*& block : blocks_) {
      block = context.device.allocate(
          bytes, computes ? MemoryCategory::activations : MemoryCategory::communication_buffers, lane);
      context.device.enqueue(
          lane, "clear", [block, bytes](backend::Kernels& kernels) { kernels.fill_zero(block, bytes); }, nullptr);
    }
  }
  ~Blocks() {
    try {
      for (std::byte* block : blocks_) context_.device.free(block, lane_);
    } catch (...) {  // the run has failed: the device goes, and its memory with it
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  std::byte* operator[](std::size_t i) const { return blocks_[i]; }

  /// Device memory that all of them take.
  static std::int64_t bytes(std::int64_t each) { return kCount * LanePool::rounded(each); }

 private:
  backend::RankContext& context_;
  const Lane lane_;
  std::array<std::byte*, kCount> blocks_{};
};

/// The two buffers of one rank that its collectives move bytes between, and how they are filled and checked. Made once
/// for the largest message, so that nothing is allocated between measurements.
class CollectiveBuffers {
 public:
  /// `root`: of broadcasts. Throws ResourceError as Device::allocate.
  CollectiveBuffers(backend::RankContext& context, std::int64_t most_bytes, Lane lane, int root = 0);

  /// Puts this rank's part of `pattern` where the message begins, and zeros where it will arrive.
  void fill(const Message& message, bool in_place, const Pattern& pattern);
  /// Enqueues the collective on the lane.
  void issue(backend::Communicator& communicator, const Message& message, bool in_place, float scale,
             backend::Stamp* stamp);
  /// Elements that are wrong on this rank after the collective.
  std::int64_t wrong(const Message& message, bool in_place, Reduction reduction, const Pattern& pattern);

  /// Bytes of device memory of both, for messages of up to `most_bytes`.
  static std::int64_t bytes(std::int64_t most_bytes);

 private:
  std::byte* source(const Message& message, bool in_place) const;
  std::byte* target(const Message& message, bool in_place) const;
  void upload(std::byte* to, std::int64_t count, DType dtype, int rank, const Pattern& pattern);
  template <class Check>
  std::int64_t checked(const std::byte* from, std::int64_t count, DType dtype, const Check& check);

  backend::RankContext& context_;
  const Lane lane_;
  const int root_;
  const Blocks<2> blocks_;
  std::vector<std::byte> staging_;  // host memory
};

}  // namespace fsdpbench::app
