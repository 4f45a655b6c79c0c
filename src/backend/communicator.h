#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/device.h"
#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/lane.h"

namespace fsdpbench::backend {

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
inline constexpr std::size_t kCollectiveCount = kEnumCount<Collective>;

/// As traces and messages call it.
constexpr std::string_view to_string(Collective kind) {
  constexpr EnumNames<Collective> kNames{"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"};
  return kNames[kind];
}

/// Bytes this rank has put on the wire, by collective, as a ring would send them: all-gather, reduce-scatter and
/// all-to-all (N-1)/N, all-reduce 2(N-1)/N, broadcast (N-1)/N of the whole message.
using WireBytes = std::array<std::int64_t, kCollectiveCount>;

/// A group of ranks that communicate. Every member calls the same collectives in the same order; on one
/// communicator they run one after another in that order even from different lanes, as NCCL's do.
///
/// Reductions add in rank order 0, 1, 2 …, accumulate in fp32, multiply the sum once by `scale` and round once to
/// the dtype: the same element always gets the same bits, whichever collective and sharding carried it.
/// All calls only enqueue; errors surface as the device's do.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  ///< of this rank inside the group
  virtual int size() const = 0;  ///< ranks of the group

  /// output[r*count .. (r+1)*count) = input of rank r. `input` may be the rank's own slice of `output`.
  virtual void all_gather(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                          Stamp* stamp) = 0;
  /// output[0..count) = scale * sum over ranks s of input_s[rank*count .. (rank+1)*count). `output` may be the rank's
  /// own slice of `input`.
  virtual void reduce_scatter(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                              float scale, Stamp* stamp) = 0;
  /// buffer[0..count) = scale * sum over ranks of buffer, in place.
  virtual void all_reduce(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, float scale, Stamp* stamp) = 0;
  /// buffer[0..count) of `root` to all.
  virtual void broadcast(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, int root, Stamp* stamp) = 0;
  /// output[s*count .. (s+1)*count) = input_s[rank*count .. (rank+1)*count) of every rank s. The buffers must not
  /// overlap.
  virtual void all_to_all(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                          Stamp* stamp) = 0;
  /// Blocks the host until all members have called it.
  virtual void barrier() = 0;

  /// Collective over this group: members with equal `color` form a new group, ordered by `key`, then by rank.
  /// Blocks the host.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Of all collectives enqueued since it was made; not those of groups split from it.
  virtual const WireBytes& wire_bytes() const = 0;
  /// What messages call this group, "shard"; the world's name is "world".
  virtual void set_name(std::string_view /*name*/) {}
};

}  // namespace fsdpbench::backend
