#pragma once

#include <cstdint>

#include "base/link_model.h"
#include "base/ring.h"
#include "plan/groups.h"
#include "schedule/op.h"

namespace fsdpbench::replay {

/// What a collective sends, by nccl-tests' conventions: the message is the output of an all-gather, the input of a
/// reduce-scatter, the buffer of an all-reduce, what a rank holds for all in an all-to-all.
struct CollectiveMessage {
  std::int64_t bytes = 0;
  int ranks = 1;
  int passes = 1;  ///< round the ring

  /// The two parts of the link's time: that of the bytes, and that which it takes for any number of bytes.
  double seconds_of_bytes(const LinkModel& link) const {
    return static_cast<double>(bytes) * ring_share(ranks, passes) / link.bytes_per_second;
  }
  double seconds_of_latency(const LinkModel& link) const { return link.latency_seconds * ring_hops(ranks, passes); }
};

/// `op` must be a collective.
inline CollectiveMessage message_of(const schedule::Op& op, const plan::Groups& groups) {
  const bool all_reduce = op.kind == schedule::OpKind::all_reduce || op.kind == schedule::OpKind::tensor_all_reduce;
  const int ranks = groups.size(op.group());
  return {op.collective()->bytes() * (all_reduce ? 1 : ranks), ranks, all_reduce ? 2 : 1};
}

}  // namespace fsdpbench::replay
