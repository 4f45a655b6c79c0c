#pragma once

namespace fsdpbench::launch {

// Variables by which start_ranks() (own_ranks.h) tells each process of its place.
inline constexpr const char* kOwnJob = "FSDPBENCH_OWN_JOB";
inline constexpr const char* kOwnRank = "FSDPBENCH_OWN_RANK";
inline constexpr const char* kOwnRanks = "FSDPBENCH_OWN_RANKS";

}  // namespace fsdpbench::launch
