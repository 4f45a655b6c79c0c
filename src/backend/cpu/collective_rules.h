#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/communicator.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// target[i] = scale * (sources[0][i] + sources[1][i] + …): fp32 sum in the order given, one multiplication, one
/// rounding to `dtype` (f32 or bf16; anything else throws BackendError). The bits of an element depend on its inputs
/// alone, not on count or alignment. `target` may be one of the sources.
void reduce(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, DType dtype, float scale);

/// Bytes each of `size` ranks sends in a ring, rounded down where the message does not split evenly.
std::int64_t wire_bytes(const CollectiveCall& call, int size);
/// Bytes that pass the link of each of `size` ranks: as wire_bytes, but of a broadcast the whole message, which its
/// root sends and everybody else receives.
std::int64_t link_bytes(const CollectiveCall& call, int size);
/// Steps of the ring, each of which pays the latency once.
int hops(Collective kind, int size);

/// Throws BackendError unless all members call the same collective. Both by rank in the group.
void check_match(std::span<const CollectiveCall> calls, std::span<const int> world_ranks);

/// memcpy, but nothing if there is nothing to do.
void copy_bytes(const std::byte* source, std::byte* target, std::int64_t bytes);

/// Division of a message among ranks, in elements.
class Slices {
 public:
  /// `count` elements for each of `size` ranks.
  static Slices equal(std::int64_t count, int size) { return {count * size, count}; }
  /// `count` elements in all. Slices begin on cache lines if the message does; the last ones may be shorter or empty.
  static Slices divide(std::int64_t count, int size);

  std::int64_t begin(int rank) const { return std::min(total_, rank * slice_); }
  std::int64_t count(int rank) const { return begin(rank + 1) - begin(rank); }

 private:
  Slices(std::int64_t total, std::int64_t slice) : total_(total), slice_(slice) {}

  std::int64_t total_;
  std::int64_t slice_;
};

}  // namespace fsdpbench::backend::cpu
