#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/collective_rules.h"
#include "backend/cpu/link.h"
#include "backend/cpu/peers.h"
#include "base/lane.h"

namespace fsdpbench::backend::cpu {

/// What a process says to the others of its group before they do something together. Sent as bytes: all processes are
/// the same program.
struct Words {
  enum class Purpose : std::int32_t { collective, barrier, split, end, silence };  ///< silence: it has said nothing yet

  Purpose purpose = Purpose::end;
  CollectiveCall call;        ///< of a collective, without addresses
  std::int64_t input_at = 0;  ///< its buffers in the caller's device memory; -1: they lie elsewhere
  std::int64_t output_at = 0;
  std::int64_t lengths_at = 0;              ///< of unequal parts, as the buffers
  std::int64_t link_bytes = 0;              ///< that it puts on its link
  std::int64_t now_ns = 0;                  ///< when it came
  std::int32_t flow_count = 0;              ///< of `flows`
  std::array<FlowState, kLaneCount> flows;  ///< on its emulated link: each lane can have one transfer under way
};

/// Says `mine` to all peers and returns what all have said, by rank, once the last has come. Collective. Throws
/// BackendError, on all members alike, if they came for different purposes, and one that names who is missing if they
/// do not all come within CpuOptions::stall_s; `world_ranks` are their names.
std::vector<Words> meet(Peers& peers, std::span<const int> world_ranks, const Words& mine);

}  // namespace fsdpbench::backend::cpu
