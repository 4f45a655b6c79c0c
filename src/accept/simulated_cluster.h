#pragma once

#include <cstdint>
#include <vector>

#include "accept/blame_devices.h"
#include "accept/blame_links.h"
#include "accept/lateness.h"

namespace fsdpbench::accept {

/// What is wrong in a simulated cluster.
struct Fault {
  enum class Kind : std::uint8_t {
    slow,         ///< all the time
    half_duplex,  ///< of links: both directions at once carry as much as one
    on_and_off,   ///< for `duty` of each `period_s`
  };
  Element element;
  Kind kind = Kind::slow;
  double factor = 0.8;  ///< of the healthy rate
  double duty = 0.4;
  double period_s = 60;
};

/// How a healthy cluster scatters. Defaults are what has been published: see docs/accept.md.
struct Scattering {
  double gpu_static = 0.015;     ///< standard deviation of a GPU's own rate, cut off at +-4 %
  double gpu_op = 0.0075;        ///< of one op
  double transfer = 0.02;        ///< of one transfer
  double slow_transfers = 0.01;  ///< share of transfers that are 10 to 15 % slower
  double day_cycle = 0.015;      ///< by which all GPUs change together
};

/// A cluster that is not there, on a computed clock: every answer costs its time on that clock, nothing sleeps, and the
/// same seed gives the same answers. One thread at a time.
class SimulatedCluster {
 public:
  SimulatedCluster(const Cluster& cluster, std::vector<Fault> faults, std::uint64_t seed, double uniform = 1,
                   const Scattering& scattering = {});

  /// What each GPU computes a second, of a healthy one's 1. Takes 5 s.
  std::vector<double> device_rates();
  /// What each pairing carries, of a healthy link's 1: medians of 5 transfers. Takes 1 s.
  std::vector<PairRate> pair_rates(const Round& round);
  /// One step's reduce-scatter: `compute_us` of work before it, `transfer_us` of transfer, if all are healthy.
  Arrivals step(double compute_us, double transfer_us);

  double now_s() const { return now_s_; }

 private:
  double uniform_number();  // 0 to 1
  double normal(double deviation);
  double transfer_noise();
  bool active(const Fault& fault) const;
  double gpu_factor(int rank);
  double link_factor(const Pairing& pair, int rail, bool both_ways) const;

  const Cluster cluster_;
  const std::vector<Fault> faults_;
  const double uniform_;
  const Scattering scattering_;
  const std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
  double now_s_ = 0;
  std::vector<double> own_rate_;  // by rank
};

}  // namespace fsdpbench::accept
