#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/lane.h"
#include "base/link_model.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::clock {

/// Bytes of a collective, by nccl-tests' conventions: the message is the output of an all-gather, the input of a
/// reduce-scatter, the buffer of an all-reduce, what a rank holds for all in an all-to-all, what it sends to the next
/// one in a send_recv.
struct CollectiveMessage {
  std::int64_t bytes = 0;
  int ranks = 1;
  int passes = 1;        ///< round the ring
  bool to_next = false;  ///< a send_recv: all of it goes to one rank

  /// Share of it that each rank sends, and in how many messages one after another.
  double share() const { return to_next ? 1 : ring_share(ranks, passes); }
  int hops() const { return to_next ? 1 : ring_hops(ranks, passes); }

  /// The two parts of the link's time: that of the bytes, and that which it takes for any number of bytes.
  double seconds_of_bytes(const LinkModel& link) const {
    return static_cast<double>(bytes) * share() / link.bytes_per_second;
  }
  double seconds_of_latency(const LinkModel& link) const { return link.latency_seconds * hops(); }
};

/// Ranks that meet in `op`; 0: it is no collective, or of a single rank.
inline int meeting_ranks(const schedule::Op& op, const plan::Groups& groups) {
  const int ranks = op.is_collective() ? groups.size(op.group()) : 0;
  return ranks > 1 ? ranks : 0;
}

/// `op` must be a collective.
inline CollectiveMessage message_of(const schedule::Op& op, const plan::Groups& groups) {
  const CollectiveKind kind = schedule::collective_kind(op.kind);
  const bool all_reduce = kind == CollectiveKind::all_reduce, to_next = kind == CollectiveKind::send_recv;
  const int ranks = groups.size(op.group());
  return {op.collective()->bytes() * (all_reduce || to_next ? 1 : ranks), ranks, all_reduce ? 2 : 1, to_next};
}

}  // namespace fsdpbench::clock

/// The words for what a collective is, how it is done, and between which ranks.
namespace fsdpbench::clock {

using Collective = CollectiveKind;

/// Algorithm of a collective. `automatic` in a question: as NCCL would choose; never in an answer.
enum class Algorithm : std::uint8_t {
  ring,          ///< rank to rank, through all of them
  tree,          ///< chains in nodes, a double binary tree over nodes
  hierarchical,  ///< first between GPUs of equal place in their nodes, then inside the nodes (reduce: the reverse)
  pat,           ///< parallel aggregated trees: logarithmically many steps
  nvls,          ///< the switch of one node reduces
  nvls_tree,     ///< the switches of nodes reduce, a tree between them
  direct,        ///< each rank with each other at once
  automatic,
  symmetric,    ///< kernels over memory that all GPUs of an NVLink domain map (nccl.register_buffers = "window")
  copy_engine,  ///< copies between GPUs of such memory, without a kernel (nccl.cta_policy = "zero")
};
inline constexpr int kAlgorithmCount =
    static_cast<int>(Algorithm::automatic);  ///< those that simulate.collectives names
std::string_view to_string(Algorithm algorithm);

/// NCCL's ways of moving data: with flags in every 8 bytes, in every 128, or after whole chunks.
enum class Protocol : std::uint8_t { ll, ll128, simple };
std::string_view to_string(Protocol protocol);

/// Links that the ranks of a group have between them.
struct GroupShape {
  int ranks = 1;
  int nodes = 1;     ///< that the ranks lie on
  int per_node = 1;  ///< ranks on a node, on the fullest

  bool operator==(const GroupShape&) const = default;
};

/// Order in which ranks are placed on nodes.
enum class Placement : std::uint8_t {
  packed,  ///< ranks 0 … g − 1 on the first node, the next on the second: shard groups stay inside nodes where they can
  spread,  ///< rank r on node r mod nodes, so that neighbours never share one
};

/// Shape of a group of a world of `ranks` ranks on whole nodes of `gpus_per_node` (or fewer ranks on one). Takes the
/// same time for any number of ranks.
GroupShape shape_of(const plan::Members& members, int ranks, int gpus_per_node,
                    Placement placement = Placement::packed);

/// Which links a collective fills. Those of different fabrics do not share.
enum class Fabric : std::uint8_t { none, intra, inter };
std::string_view to_string(Fabric fabric);

}  // namespace fsdpbench::clock
