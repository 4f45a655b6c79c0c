#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accept/collectives/collective_row.h"
#include "accept/collectives/collective_timer.h"
#include "accept/link_parts.h"
#include "accept/step_arms.h"
#include "backend/backend.h"
#include "backend/kernels.h"

namespace fsdpbench::app {

/// Number of measurements, in rounds that all ranks begin together. `begin` is called by all ranks after the
/// first op with about how many seconds a round takes and how many there are to be, `goes_on` after each round: if
/// either says no, as it must to all of them, no other round is measured.
struct Rounds {
  int count;
  backend::RankContext& context;
  RankMeeting& meeting;
  std::function<bool(double round_s, int rounds)> begin;
  std::function<bool()> goes_on;
};

// Rates at which each rank computes or moves data while all others do the same. All ranks of the world call it; what is
// returned means something on rank 0 only.

/// FLOP/s of fp32 products of two square matrices of `rows` rows. Takes 3 such matrices of device memory.
accept::DeviceRounds measure_products(int rows, const Rounds& rounds);

/// Bytes a second, read and written, of copies of `bytes` of its memory. Takes twice as much. On a device that does
/// not compute nothing is measured.
accept::DeviceRounds measure_memory(std::int64_t bytes, const Rounds& rounds);

/// Microseconds from the host's launch of a kernel that has next to nothing to do until the host knows that it is done,
/// on an idle device: the median of a round's launches.
accept::DeviceRounds measure_launches(const Rounds& rounds);

/// Sizes and counts of a measurement by scale.
struct ScaleEffort {
  std::int64_t count = 0;  ///< elements of a rank
  DType gathered = DType::f32;
  DType reduced = DType::f32;
  int iterations = 20;
  double link_bytes_per_s = 0;  ///< about what a link carries, for estimates; 0: not known
};

/// Bytes of device memory that measure_scales() needs on each of `ranks` ranks.
std::int64_t scale_bytes(const ScaleEffort& effort, int ranks);

/// An all-gather in place and a reduce-scatter in groups of each scale. Collective; all ranks of the world call it. The
/// rows mean something on rank 0 only. `begins` is asked on all ranks before each scale, by its name and
/// about how many seconds it takes, and says the same to all: false leaves out all that comes.
std::vector<CollectiveRow> measure_scales(
    const accept::Cluster& cluster, const ScaleEffort& effort, backend::RankContext& context, RankMeeting& meeting,
    const std::function<bool(const std::string&, std::optional<double> estimate_s)>& begins);

}  // namespace fsdpbench::app
