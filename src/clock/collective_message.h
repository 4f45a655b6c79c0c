#pragma once

#include <cstdint>

#include "base/link_model.h"
#include "base/ring.h"
#include "plan/groups.h"
#include "schedule/op.h"

namespace fsdpbench::clock {

/// What a collective sends, by nccl-tests' conventions: the message is the output of an all-gather, the input of a
/// reduce-scatter, the buffer of an all-reduce, what a rank holds for all in an all-to-all, what it sends to the next
/// one in a send_recv.
struct CollectiveMessage {
  std::int64_t bytes = 0;
  int ranks = 1;
  int passes = 1;        ///< round the ring
  bool to_next = false;  ///< a send_recv: all of it goes to one rank

  /// What of it each rank sends, and in how many messages one after another.
  double share() const { return to_next ? 1 : ring_share(ranks, passes); }
  int hops() const { return to_next ? 1 : ring_hops(ranks, passes); }

  /// The two parts of the link's time: that of the bytes, and that which it takes for any number of bytes.
  double seconds_of_bytes(const LinkModel& link) const {
    return static_cast<double>(bytes) * share() / link.bytes_per_second;
  }
  double seconds_of_latency(const LinkModel& link) const { return link.latency_seconds * hops(); }
};

/// `op` must be a collective.
inline CollectiveMessage message_of(const schedule::Op& op, const plan::Groups& groups) {
  const CollectiveKind kind = schedule::collective_kind(op.kind);
  const bool all_reduce = kind == CollectiveKind::all_reduce, to_next = kind == CollectiveKind::send_recv;
  const int ranks = groups.size(op.group());
  return {op.collective()->bytes() * (all_reduce || to_next ? 1 : ranks), ranks, all_reduce ? 2 : 1, to_next};
}

}  // namespace fsdpbench::clock
