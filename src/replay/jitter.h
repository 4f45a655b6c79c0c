#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdpbench::replay {

/// By how much ops take longer or shorter than they should, drawn anew for every op, step and rank (of a collective:
/// and group). What is drawn follows from seed, step, op and rank alone, so two configurations with the same seed have
/// the same luck, op by op.
class Jitter {
 public:
  Jitter() = default;  ///< none
  /// `distributions`: at least one, each of residuals: what an op takes over what it should, as measured or given, at
  /// least one, each > 0; any of them is as likely as another (bootstrap: tails stay). A pause comes with probability
  /// `pause_chance` in [0, 1) an op of the compute lane and lasts `pause_ns`.
  Jitter(std::uint64_t seed, std::vector<std::vector<double>> distributions, double pause_chance = 0,
         double pause_ns = 0);

  /// Residuals of a lognormal distribution with median 1: its quantiles at (i + 1/2) / count.
  static std::vector<double> lognormal(double sigma, std::size_t count = 1024);

  bool any() const { return !residuals_.empty(); }
  /// by_rank[k] = (by_rank[k] times a residual, plus a pause now and then), in whole nanoseconds, for ranks first + k.
  /// `pauses`: whether there may be one. `distribution`: by number, OpCost::scatter; where there is but one, all have
  /// it.
  void apply(std::int64_t step, std::size_t op, std::size_t first, bool pauses, std::span<double> by_rank,
             int distribution = 0) const;

 private:
  std::uint64_t seed_ = 0;
  std::vector<double> residuals_;  // a power of two of each distribution's, sorted
  std::uint64_t pause_below_ = 0;  // of 2^32
  double pause_ns_ = 0;
  std::size_t distributions_ = 0;
};

}  // namespace fsdpbench::replay
