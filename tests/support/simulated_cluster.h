#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "accept/blame_links.h"
#include "accept/finding.h"
#include "accept/link_parts.h"
#include "account/statistics.h"
#include "base/random.h"

namespace fsdpbench::accept {

/// Fault of a simulated cluster.
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

/// How a healthy cluster scatters. Defaults are what has been published.
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

  /// Rates of the GPUs, of a healthy one's 1. Takes 5 s.
  std::vector<double> device_rates();
  /// Rates of the pairings, of a healthy link's 1: medians of 5 transfers. Takes 1 s.
  std::vector<PairRate> pair_rates(const Round& round);
  /// One step's reduce-scatter: `compute_us` of work before it, `transfer_us` of transfer, if all are healthy.
  Arrivals step(double compute_us, double transfer_us);

  double now_s() const { return now_s_; }

 private:
  static constexpr int kSamples = 5;  // of a measurement, which is their median
  static constexpr double kDay_s = 86'400;

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

inline SimulatedCluster::SimulatedCluster(const Cluster& cluster, std::vector<Fault> faults, std::uint64_t seed,
                                          double uniform, const Scattering& scattering)
    : cluster_(cluster),
      faults_(std::move(faults)),
      uniform_(uniform),
      scattering_(scattering),
      seed_(split_mixed(seed)) {
  constexpr double kMostOff = 0.04;
  now_s_ = kDay_s * uniform_number();
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    own_rate_.push_back(1 + std::clamp(normal(scattering_.gpu_static), -kMostOff, kMostOff));
  }
}

inline double SimulatedCluster::uniform_number() {
  const std::uint64_t bits = split_mixed(seed_ + ++drawn_ * 0x9E3779B97F4A7C15ULL) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

inline double SimulatedCluster::normal(double deviation) { return deviation * normal_quantile(uniform_number()); }

inline double SimulatedCluster::transfer_noise() {
  const double slow = uniform_number() < scattering_.slow_transfers ? 0.10 + 0.05 * uniform_number() : 0;
  return (1 - slow) * (1 + normal(scattering_.transfer));
}

inline bool SimulatedCluster::active(const Fault& fault) const {
  if (fault.kind != Fault::Kind::on_and_off) return true;
  return std::fmod(now_s_, fault.period_s) < fault.duty * fault.period_s;
}

inline double SimulatedCluster::gpu_factor(int rank) {
  double factor = uniform_ * own_rate_[static_cast<std::size_t>(rank)] *
                  (1 + scattering_.day_cycle * std::sin(2 * std::numbers::pi * now_s_ / kDay_s));
  for (const Fault& fault : faults_) {
    if (fault.element == Element{Element::Kind::gpu, rank, 0} && active(fault)) factor *= fault.factor;
  }
  return factor;
}

inline double SimulatedCluster::link_factor(const Pairing& pair, int rail, bool both_ways) const {
  const int group = cluster_.nodes_per_switch > 0 ? cluster_.nodes_per_switch : cluster_.ends();
  const int a = pair.a / group, b = pair.b / group;
  double factor = uniform_;
  for (const Fault& fault : faults_) {
    const Element& e = fault.element;
    const bool end = e.index == pair.a || e.index == pair.b;
    bool through = false;
    switch (e.kind) {
      case Element::Kind::nic: through = end && e.other == rail; break;
      case Element::Kind::node: through = end; break;
      case Element::Kind::link:
        through = std::pair(e.index, e.other) == std::pair(std::min(pair.a, pair.b), std::max(pair.a, pair.b));
        break;
      case Element::Kind::uplink:
        through = std::pair(e.index, e.other) == std::pair(std::min(a, b), std::max(a, b));
        break;
      case Element::Kind::switch_: through = e.index == a || e.index == b; break;
      default: break;
    }
    if (!through || !active(fault)) continue;
    if (fault.kind == Fault::Kind::half_duplex) {
      factor *= both_ways ? 0.5 : 1;
    } else {
      factor *= fault.factor;
    }
  }
  return factor;
}

inline std::vector<double> SimulatedCluster::device_rates() {
  std::vector<double> rates;
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) samples.push_back(1 + normal(scattering_.gpu_op));
    rates.push_back(gpu_factor(rank) * account::median(samples));
  }
  now_s_ += 5;
  return rates;
}

inline std::vector<PairRate> SimulatedCluster::pair_rates(const Round& round) {
  std::vector<PairRate> rates;
  for (const Pairing& pair : round) {
    PairRate& rate = rates.emplace_back();
    rate.pair = pair;
    for (int rail = 0; rail < cluster_.rails; ++rail) {
      std::vector<double> one, both;
      for (int i = 0; i < kSamples; ++i) {
        one.push_back(transfer_noise());
        both.push_back(transfer_noise());
      }
      rate.one_way.push_back(link_factor(pair, rail, false) * account::median(one));
      rate.both_ways.push_back(2 * link_factor(pair, rail, true) * account::median(both));
    }
  }
  now_s_ += 1;
  return rates;
}

inline Arrivals SimulatedCluster::step(double compute_us, double transfer_us) {
  Arrivals arrivals;
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    arrivals.arrival_us.push_back(compute_us / (gpu_factor(rank) * (1 + normal(scattering_.gpu_op))));
  }
  double slowest = 1;  // a ring is as fast as its slowest link
  for (int end = 0; end < cluster_.ends(); ++end) {
    const Pairing next{end, (end + 1) % cluster_.ends()};
    for (int rail = 0; rail < cluster_.rails; ++rail) slowest = std::min(slowest, link_factor(next, rail, false));
  }
  arrivals.transfer_us = transfer_us / (slowest * transfer_noise());
  now_s_ += (*std::ranges::max_element(arrivals.arrival_us) + arrivals.transfer_us) * 1e-6;
  return arrivals;
}

}  // namespace fsdpbench::accept
