#include "replay/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace fsdpbench::replay {
namespace {

using config::IntraKind;

/// One figure a protocol: LL, LL128, Simple. Latencies are µs.
using ByProtocol = std::array<double, 3>;

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
/// Of the rate of the links.
constexpr ByProtocol kRingRate{0.5, 0.92, 1.0};
constexpr double kLlOneNode = 0.38;  ///< 87.7 of 240 (Ampere), 141 of 371 (Hopper), 282 of 722 GB/s (Blackwell)
constexpr double kTreeRate = 0.92 * 0.85;
constexpr double kNvlsRate = 0.85 * 15 / 16;  ///< Hopper with 16 channels
constexpr double kPatBus = 0.75;
constexpr double kNetRate = 0.96;  ///< 12 GB/s of 100 Gb/s

double of(const ByProtocol& table, Protocol protocol) { return table[static_cast<std::size_t>(protocol)]; }

double nccl_intra_rate(const config::Cluster& cluster, int group) {
  if (cluster.intra.kind != IntraKind::xgmi) return cluster.intra.nccl_gb_per_s;
  const int links = std::has_single_bit(static_cast<unsigned>(group)) ? group - 1 : 1;
  return cluster.intra.nccl_gb_per_s * links / std::max(cluster.gpus_per_node - 1, 1);
}

/// GB/s of one rank's ring through the group.
double link_rate(const config::Cluster& cluster, const GroupShape& shape) {
  const double intra = shape.per_node > 1 ? nccl_intra_rate(cluster, shape.per_node) : INFINITY;
  if (shape.nodes == 1) return intra;
  const config::InterFabric& inter = cluster.inter;
  return std::min(intra, inter.nics_per_node * inter.nic_gb_per_s * kNetRate * shape.per_node / cluster.gpus_per_node);
}

NcclEstimate line(double latency_us, double gb_per_s) { return {latency_us * 1e-6, 1e-9 / gb_per_s}; }

}  // namespace

bool nccl_has(Algorithm algorithm, Protocol protocol) {
  if (algorithm == Algorithm::ring || algorithm == Algorithm::tree) return true;
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
    case Algorithm::automatic: break;
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
  switch (algorithm) {
    case Algorithm::tree: {
      const double intra = of(pci ? kTreePci : kTreeNvlink, protocol);
      const double latency =
          of(kTreeBase, protocol) + 2 * ((shape.per_node - 1) * intra + log_nodes * of(kTreeNet, protocol));
      const double of_protocol = protocol == Protocol::ll       ? 1 / 3.8
                                 : protocol == Protocol::simple ? 1
                                 : nodes == 1                   ? 7.0 / 9
                                                                : 120.0 / 128;
      return line(latency, link * kTreeRate * of_protocol / 2);
    }
    case Algorithm::pat: {
      const double steps = log_nodes * of(kRingNet, protocol) / 3.5 + 2.8 * n;
      return line(kPatBase + steps, link * kPatBus);
    }
    case Algorithm::nvls: return line(kNvlsNvlink, cluster.intra.nccl_gb_per_s * kNvlsRate * 2 / 2);
    case Algorithm::nvls_tree: {
      const double bus = std::min(cluster.intra.nccl_gb_per_s * kNvlsRate * 2, nodes > 2 ? link : 2 * link);
      return line(kNvlsNvlink + 2 * log_nodes * kNvlsTreeNet, bus / 2);
    }
    case Algorithm::ring:
    case Algorithm::hierarchical:
    case Algorithm::direct:
    case Algorithm::automatic: break;
  }
  const double passes = twice ? 2 : 1;
  const double intra = std::max(of(pci ? kRingPci : kRingNvlink, protocol), nodes > 1 ? of(kNetOverhead, protocol) : 0);
  const double inter = of(shape.per_node == 1 ? kTreeNet : kRingNet, protocol);
  const double latency = of(kRingBase, protocol) + passes * ((n - nodes) * intra + (nodes - 1) * inter);
  double bus = link * of(kRingRate, protocol);
  if (protocol == Protocol::ll && nodes == 1) bus = std::min(bus, link * kLlOneNode);
  return line(latency, bus * (collective == Collective::broadcast ? 1 : n / (passes * (n - 1))));
}

}  // namespace fsdpbench::replay
