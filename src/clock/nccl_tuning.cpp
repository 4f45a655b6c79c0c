#include "clock/nccl_tuning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/enum_table.h"

namespace fsdpbench::clock {
namespace {

using config::IntraKind;

/// One figure a protocol: LL, LL128, Simple. Latencies are µs.
using ByProtocol = EnumTable<Protocol, double>;

constexpr ByProtocol kRingBase{6.6, 14.0, 8.4};
constexpr ByProtocol kTreeBase{6.8, 14.0, 8.4};
constexpr double kPatBase = 8.0;
constexpr ByProtocol kRingNvlink{0.6, 1.9, 3.4};
constexpr ByProtocol kRingPci{1.0, 2.5, 5.7};
constexpr ByProtocol kRingNet{2.7, 4.0, 14.0};
constexpr ByProtocol kTreeNvlink{0.6, 1.25, 4.0};
constexpr ByProtocol kTreePci{1.0, 1.9, 4.0};
constexpr ByProtocol kTreeNet{5.0, 8.5, 14.0};
constexpr ByProtocol kNetOverhead{1.0, 1.0, 3.0};
constexpr double kNvlsNvlink = 25.0;
constexpr double kNvlsTreeNet = 20.9;
/// Part of the links' rate that each protocol reaches.
constexpr ByProtocol kRingRate{0.5, 0.92, 1.0};
constexpr double kTreeRate = 0.92;
constexpr double kTreeOneNode = 0.85;  ///< beside that: trees that are not balanced over nodes
/// LL's limit by nodes: part of the links of one, 87.7 of 240 (Ampere), 141 of 371 (Hopper), 282 of 722 (Blackwell);
/// GB/s of Intel's processors for 2 and for more.
constexpr double kLlOneNode = 0.38;
constexpr double kLlTwoNodes = 39.0;
constexpr double kLlManyNodes = 20.4;
/// A plateau of large ring all-reduces over nodes; NCCL takes it from 64 bytes a channel and rank up.
constexpr double kRingPlateau = 1.4;
constexpr double kNvlsRate = 0.85 * 15 / 16;  ///< Hopper with 16 channels
constexpr double kPatBus = 0.75;
constexpr double kNetRate = 0.96;  ///< 12 GB/s of 100 Gb/s

double of(const ByProtocol& table, Protocol protocol) { return table[protocol]; }

double nccl_intra_rate(const config::Cluster& cluster, int group) {
  if (cluster.intra.kind != IntraKind::xgmi) return cluster.intra.nccl_gb_per_s;
  const int links = std::has_single_bit(static_cast<unsigned>(group)) ? group - 1 : 1;
  return cluster.intra.nccl_gb_per_s * links / (cluster.gpus_per_node - 1);
}

/// GB/s of one rank's ring through the group; `wires`: how many times the NICs' rate it may reach.
double link_rate(const config::Cluster& cluster, const GroupShape& shape, double wires = 1) {
  const double intra = shape.per_node > 1 ? nccl_intra_rate(cluster, shape.per_node) : INFINITY;
  if (shape.nodes == 1) return intra;
  const config::InterFabric& inter = cluster.inter;
  return std::min(intra,
                  wires * inter.nics_per_node * inter.nic_gb_per_s * kNetRate * shape.per_node / cluster.gpus_per_node);
}

double ll_limit(double link, int nodes) {
  return nodes == 1 ? link * kLlOneNode : nodes == 2 ? kLlTwoNodes : kLlManyNodes;
}

NcclEstimate line(double latency_us, double gb_per_s) { return {latency_us * 1e-6, 1e-9 / gb_per_s}; }

}  // namespace

bool nccl_has(const config::Cluster& cluster, Algorithm algorithm, Protocol protocol) {
  if (algorithm == Algorithm::ring || algorithm == Algorithm::tree) {
    // LL128 relies on stores of 128 bytes that stay whole, which NVLink promises.
    return protocol != Protocol::ll128 || cluster.intra.kind != IntraKind::pcie;
  }
  const bool known = algorithm == Algorithm::pat || algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree;
  return known && protocol == Protocol::simple;
}

bool nccl_offers(Algorithm algorithm, Collective collective) {
  switch (algorithm) {
    case Algorithm::ring:
    case Algorithm::pat:
    case Algorithm::nvls:
    case Algorithm::nvls_tree: return true;
    case Algorithm::tree: return collective == Collective::all_reduce;
    case Algorithm::hierarchical:
    case Algorithm::direct:
    case Algorithm::automatic:
    case Algorithm::symmetric:
    case Algorithm::copy_engine: break;
  }
  return false;
}

NcclEstimate nccl_estimate(const config::Cluster& cluster, Collective collective, const GroupShape& shape,
                           Algorithm algorithm, Protocol protocol) {
  const double n = shape.ranks, nodes = shape.nodes;
  const bool pci = cluster.intra.kind == IntraKind::pcie;
  const bool twice = collective == Collective::all_reduce;
  const double link = link_rate(cluster, shape);
  const double log_nodes = std::floor(std::log2(nodes));
  const double nvls_bus = cluster.intra.nccl_gb_per_s * kNvlsRate * 2;
  switch (algorithm) {
    case Algorithm::tree: {
      const double intra = of(pci ? kTreePci : kTreeNvlink, protocol);
      const double latency =
          of(kTreeBase, protocol) + 2 * ((shape.per_node - 1) * intra + log_nodes * of(kTreeNet, protocol));
      // Up to two nodes NCCL takes what its channels have in the node, and gives a tree's there up to twice the NIC.
      double bus = (nodes > 2 ? link : link_rate(cluster, shape, 2)) * kTreeRate;
      if (protocol == Protocol::ll) bus = std::min(bus / 3.8, ll_limit(link, shape.nodes));
      if (protocol == Protocol::ll128) bus *= nodes == 1 ? 7.0 / 9 : 120.0 / 128;
      if (nodes == 1) bus *= kTreeOneNode;
      return line(latency, bus / 2);
    }
    case Algorithm::pat: {
      const double steps = log_nodes * of(kRingNet, protocol) / 3.5 + 2.8 * n;
      return line(kPatBase + steps, link * kPatBus);
    }
    case Algorithm::nvls: return line(kNvlsNvlink, nvls_bus * n / (2 * (n - 1)));
    case Algorithm::nvls_tree: {
      const double bus = std::min(nvls_bus, nodes > 2 ? link : 2 * link);
      return line(kNvlsNvlink + 2 * log_nodes * kNvlsTreeNet, bus * n / (2 * (n - 1)));
    }
    case Algorithm::ring:
    case Algorithm::hierarchical:
    case Algorithm::direct:
    case Algorithm::automatic:
    case Algorithm::symmetric:
    case Algorithm::copy_engine: break;
  }
  const double passes = twice ? 2 : 1;
  const double intra = std::max(of(pci ? kRingPci : kRingNvlink, protocol), nodes > 1 ? of(kNetOverhead, protocol) : 0);
  const double inter = of(shape.per_node == 1 ? kTreeNet : kRingNet, protocol);
  double latency = of(kRingBase, protocol) + passes * ((n - nodes) * intra + (nodes - 1) * inter);
  if (twice && nodes > 1 && protocol == Protocol::simple) latency *= kRingPlateau;
  double bus = link * of(kRingRate, protocol);
  if (protocol == Protocol::ll) bus = std::min(bus, ll_limit(link, shape.nodes));
  return line(latency, bus * (collective == Collective::broadcast ? 1 : n / (passes * (n - 1))));
}

namespace {

/// min(x, ceiling) and max(0, x) without their corners, as NCCL has them.
double soft_min(double x, double ceiling, double softness) {
  return ceiling - softness * std::log1p(std::expm1(ceiling / softness) * std::exp(-x / softness));
}
double soft_plus(double x) {
  const double grown = std::exp(x);
  return std::isinf(grown) ? x : std::log1p(grown);
}

bool has_nvlink5(const config::Cluster& cluster) { return cluster.intra.peak_gb_per_s >= 900; }  // Blackwell

/// Costs of one kernel on `ctas` multiprocessors; µs, GB/s. kGiga of its tables is 2^30.
struct SymmetricKernel {
  double bus_bytes = 0;
  double multiplier = 1;  ///< of a multiprocessor's bandwidth: the switch copies or adds
  double most = 0;        ///< rate of any number of multiprocessors
  double latency_us = 0;
  int most_ctas = 1;

  double transfer_us(int ctas, double of_a_cta) const {
    const double rate = soft_min(ctas * of_a_cta * multiplier, most, of_a_cta);
    return soft_plus(bus_bytes / (rate * 1e3) - 1);
  }
};

}  // namespace

SymmetricEstimate nccl_symmetric(const config::Cluster& cluster, Collective collective, double bytes, int ranks) {
  constexpr double kGib = 1.073741824;  // GiB in GB
  constexpr int kMostCtas = 64;
  constexpr double kFlags = 9;          // bytes of the kernel with flags, and what it costs beside
  constexpr double kTolerance = 0.025;  // of a kernel's time; a CTA's price in time
  const bool blackwell = has_nvlink5(cluster);
  const bool reduces_fully = collective == Collective::all_reduce, gathers = collective == Collective::all_gather;
  const double n = ranks, part = bytes / n;
  const double of_a_cta = (blackwell ? 55 : reduces_fully ? 65 : 44) * kGib;
  const double flags_us = blackwell ? (gathers ? 8.5 : 11) : 4.5,
               stores_us = blackwell ? (reduces_fully ? 19.5 : 13) : 7.8;
  const int switched = static_cast<int>(std::ceil((blackwell ? 32 : 16) / n));
  const double most = (blackwell ? 600 : 320) * kGib, most_reduced = (blackwell ? 1000 : 480) * kGib;
  const auto priced = [&](const SymmetricKernel& kernel) {
    const auto us = [&](int ctas) { return kernel.latency_us + kernel.transfer_us(ctas, of_a_cta); };
    int ctas = 1;
    while (us(ctas) > (1 + kTolerance) * us(kernel.most_ctas)) ++ctas;
    const SymmetricEstimate estimate{kernel.latency_us * 1e-6, kernel.transfer_us(ctas, of_a_cta) * 1e-6, ctas};
    return std::pair(us(ctas) * (1 + kTolerance * ctas), estimate);
  };
  return std::ranges::min({priced({.bus_bytes = (reduces_fully ? n : 1) * bytes * kFlags,
                                   .multiplier = 1.1,
                                   .most = most,
                                   .latency_us = flags_us,
                                   .most_ctas = kMostCtas}),
                           priced({.bus_bytes = reduces_fully ? part + bytes : (n - 1) * part,
                                   .multiplier = reduces_fully ? n : 0.55 * n,
                                   .most = reduces_fully ? most_reduced : most,
                                   .latency_us = stores_us,
                                   .most_ctas = switched})},
                          {}, &std::pair<double, SymmetricEstimate>::first)
      .second;
}

bool nccl_copies(const config::Cluster& cluster, double elements) {
  constexpr double kThreshold = 8 << 20;  // NCCL_SYM_CE_THRESHOLD
  return has_nvlink5(cluster) && elements > kThreshold;
}

}  // namespace fsdpbench::clock
