#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/lane.h"

namespace fsdpbench::backend {

using Collective = CollectiveKind;
inline constexpr std::size_t kCollectiveCount = kEnumCount<Collective>;

/// Bytes this rank has put on the wire, by collective, as a ring would send them: all-gather, reduce-scatter and
/// all-to-all (N-1)/N, all-reduce 2(N-1)/N, broadcast (N-1)/N of the whole message; send_recv all of it.
using WireBytes = std::array<std::int64_t, kCollectiveCount>;

/// One collective as one member calls it. Counts are elements; N is the number of ranks of the group.
///
/// | kind           | input   | output  | meaning |
/// |----------------|---------|---------|---------|
/// | all_gather     | count   | N*count | output[r*count .. (r+1)*count) = input of rank r; `input` may be the rank's
/// own slice of `output` | | reduce_scatter | N*count | count   | output = scale * sum over ranks s of
/// input_s[rank*count .. (rank+1)*count); `output` may be the rank's own slice of `input` | | all_reduce     | count |
/// count   | output = scale * sum over ranks of input; `input` may be `output` | | broadcast      | count   | count   |
/// output = input of `root`; `input` may be `output`, and is read by `root` only | | all_to_all     | N*count | N*count
/// | output[s*count .. (s+1)*count) = input_s[rank*count .. (rank+1)*count) of every rank s; the buffers share no byte
/// | | send_recv      | count   | count   | output = input of the rank before, of rank 0
/// that of the last; the buffers share no byte |
struct CollectiveCall {
  Collective kind = Collective::all_gather;
  const std::byte* input =
      nullptr;  ///< device memory, as `output`; the caller keeps both until the lane was waited for
  std::byte* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  float scale = 1.0F;  ///< of reductions; others leave it at 1
  int root = 0;        ///< of broadcast, a rank of the group; others leave it at 0
};

/// A group of ranks that communicate. Every member calls the same collectives in the same order; on one
/// communicator they run one after another in that order even from different lanes, as NCCL's do.
///
/// Reductions add in rank order 0, 1, 2 …, accumulate in fp32, multiply the sum once by `scale` and round once to
/// the dtype: the same element always gets the same bits, whichever collective and sharding carried it.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  ///< of this rank inside the group
  virtual int size() const = 0;  ///< ranks of the group

  /// Puts a collective on a lane and returns; errors surface as the device's do. A root outside the group throws
  /// BackendError at once. `stamp`, which may be null, gets the times of the collective and is the caller's.
  virtual void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) = 0;

  // Statistics call by call: see CollectiveCall.

  void all_gather(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype, Stamp* stamp) {
    enqueue(lane, {Collective::all_gather, input, output, count, dtype}, stamp);
  }
  void reduce_scatter(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                      float scale, Stamp* stamp) {
    enqueue(lane, {Collective::reduce_scatter, input, output, count, dtype, scale}, stamp);
  }
  void all_reduce(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, float scale, Stamp* stamp) {
    enqueue(lane, {Collective::all_reduce, buffer, buffer, count, dtype, scale}, stamp);
  }
  void broadcast(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, int root, Stamp* stamp) {
    enqueue(lane, {Collective::broadcast, buffer, buffer, count, dtype, 1.0F, root}, stamp);
  }
  void all_to_all(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype, Stamp* stamp) {
    enqueue(lane, {Collective::all_to_all, input, output, count, dtype}, stamp);
  }

  /// Blocks the host until all members have called it.
  virtual void barrier() = 0;

  /// Collective over this group: members with equal `color` form a new group, ordered by `key`, then by rank.
  /// Blocks the host.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Bytes of all collectives enqueued since it was made, without those of groups split from it.
  virtual const WireBytes& wire_bytes() const = 0;
  /// Names this group in messages, "shard"; the world's name is "world".
  virtual void set_name(std::string_view /*name*/) {}
};

/// Throws BackendError if the root of a broadcast is no rank of a group of `size`.
void check_root(const CollectiveCall& call, int size);
/// Bytes that each of `size` ranks sends in a ring for one collective whose count is `bytes` long, rounded down where
/// the message does not split evenly.
std::int64_t ring_bytes(Collective kind, std::int64_t bytes, int size);

}  // namespace fsdpbench::backend
