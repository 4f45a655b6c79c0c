#include "clock/collective_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "clock/nccl_tuning.h"

namespace fsdpbench::clock {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
/// Latency of a reduction in the switch, µs: NCCL 2.30.7 (NVLS, Simple); published small all-reduces over 8 H100: 31.
constexpr double kNvlsLatency = 25;
/// Part of the wire's rate that PAT keeps: NCCL 2.30.7.
constexpr double kPatRate = 0.75;
/// Part of a ring's rate that copies between GPUs reach: 375.6 of 382.7 GB/s, 64 MiB from each of 8 H100
/// (pytorch/pytorch 182850, whose copies are PyTorch's own, not NCCL's).
constexpr double kCopyEngineRate = 0.98;

/// Rate of a group over that of the node. Where there is a link between every two GPUs and no switch, the group has the
/// links between its members; RCCL uses all of them in groups of 2, 4 and 8 and one ring of them in others, at 0.83 of
/// a link (reported of 5 to 7 GPUs of an MI355X, and of 5). Else: as measured of 2, 4 and 8 GPUs, straight in log2
/// between.
double group_fraction(const config::Cluster& cluster, int group) {
  const int node = cluster.gpus_per_node;
  if (cluster.intra.kind == config::IntraKind::xgmi) {
    const double links = std::has_single_bit(static_cast<unsigned>(group)) ? group - 1 : 0.83;
    return links / (node - 1);
  }
  const auto of = [&](int gpus) {
    const double log = std::log2(std::clamp(gpus, 2, 8));
    const double to_quad = std::lerp(cluster.intra.pair_fraction, cluster.intra.quad_fraction, std::min(log - 1, 1.0));
    return std::lerp(to_quad, 1.0, std::max(log - 2, 0.0));
  };
  return of(group) / of(node);
}

double intra_rate(const config::Cluster& cluster, Collective collective, int group, Protocol protocol) {
  const config::IntraFabric& intra = cluster.intra;
  double rate = intra.all_gather_gb_per_s;
  if (collective == Collective::reduce_scatter) rate = intra.reduce_scatter_gb_per_s;
  if (collective == Collective::all_reduce) rate = intra.all_reduce_gb_per_s;
  if (protocol == Protocol::ll128 && intra.ll128_gb_per_s > 0) rate = std::min(rate, intra.ll128_gb_per_s);
  return rate * group_fraction(cluster, group) * kGiga;
}

/// Rate of the group's ranks on one node together: each GPU has its part of the node's NICs.
double inter_rate(const config::Cluster& cluster, const GroupShape& shape, Protocol protocol) {
  const config::InterFabric& inter = cluster.inter;
  double nic = inter.nic_achieved_gb_per_s;
  if (protocol == Protocol::ll128 && inter.nic_ll128_gb_per_s > 0) nic = std::min(nic, inter.nic_ll128_gb_per_s);
  const double node = inter.nics_per_node * nic;
  const bool pods = inter.pod_nodes > 0 && shape.nodes > inter.pod_nodes;
  return node * shape.per_node / cluster.gpus_per_node / (pods ? inter.oversubscription : 1) * kGiga;
}

/// Everything an algorithm's closed form needs, in seconds, bytes and bytes a second.
struct Ground {
  double size;   ///< the full tensor
  double n;      ///< ranks
  double nodes;  ///< of them
  double g;      ///< ranks a node
  double base, hop_intra, hop_inter;
  double ramp;
  double rate_intra;  ///< infinite: no two ranks share a node
  double rate_inter;  ///< infinite: one node

  /// Time of w wire bytes at a rate that is approached slowly: the root makes messages of `ramp` bytes take twice as
  /// long as the rate says, and still a tenth longer where they are a hundred times as large.
  double time(double w, double rate) const { return (w + std::sqrt(w * ramp)) / rate; }
};

Ground ground_of(const config::Cluster& cluster, Collective collective, double bytes, const GroupShape& shape,
                 Protocol protocol) {
  return {.size = bytes,
          .n = static_cast<double>(shape.ranks),
          .nodes = static_cast<double>(shape.nodes),
          .g = static_cast<double>(shape.per_node),
          .base = (cluster.intra.base_latency_us + (shape.nodes > 1 ? cluster.inter.base_latency_us : 0)) * kMicro,
          .hop_intra = cluster.intra.hop_latency_us * kMicro,
          .hop_inter = shape.nodes > 1 ? cluster.inter.hop_latency_us * kMicro : 0,
          .ramp = cluster.intra.ramp_mb * 1e6,
          .rate_intra = shape.per_node > 1 ? intra_rate(cluster, collective, shape.per_node, protocol) : HUGE_VAL,
          .rate_inter = shape.nodes > 1 ? inter_rate(cluster, shape, protocol) : HUGE_VAL};
}

/// Takes the longer of what two fabrics do at the same time. One that fills the NICs but for a little counts as theirs:
/// what else wants them would wait.
void transfer(CollectiveCost& cost, double intra, double inter) {
  cost.transfer_s = std::max(intra, inter);
  cost.fabric = 1.25 * inter >= intra ? Fabric::inter : Fabric::intra;
}

double tree_depth(double nodes) { return std::ceil(std::log2(nodes)); }

CollectiveCost ring(const Ground& at, Collective collective) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  const double w = passes * at.size * (collective == Collective::broadcast ? 1 : (at.n - 1) / at.n);
  CollectiveCost cost;
  cost.latency_s = at.base + passes * ((at.n - at.nodes) * at.hop_intra + (at.nodes - 1) * at.hop_inter);
  transfer(cost, at.time(w, at.rate_intra), at.time(w, at.rate_inter));
  return cost;
}

/// Pipelined: of an all-reduce every byte goes up and down once. Between nodes an inner node of one of the two trees
/// sends to a parent and two children half of the bytes each, and as a leaf of the other once more: twice the bytes;
/// two nodes only exchange them.
CollectiveCost tree(const Ground& at, Collective collective) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  const double inter = collective == Collective::all_reduce && at.nodes > 2 ? 2 * at.size : at.size;
  CollectiveCost cost;
  cost.latency_s = at.base + passes * ((at.g - 1) * at.hop_intra + tree_depth(at.nodes) * at.hop_inter);
  transfer(cost, at.time(passes * at.size, at.rate_intra), at.time(inter, at.rate_inter));
  return cost;
}

/// Two phases one after the other; those of an all-reduce are done twice.
CollectiveCost hierarchical(const Ground& at, Collective collective) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  CollectiveCost cost;
  cost.latency_s = at.base + passes * ((at.nodes - 1) * at.hop_inter + (at.g - 1) * at.hop_intra);
  const double inter = at.time(passes * at.size * (at.nodes - 1) / at.nodes, at.rate_inter);
  const double intra = at.time(passes * at.size * (at.g - 1) / at.g, at.rate_intra);
  transfer(cost, intra, inter);
  cost.transfer_s = inter + intra;
  return cost;
}

CollectiveCost pat(const Ground& at) {
  CollectiveCost cost;
  cost.latency_s = at.base + tree_depth(at.n) * at.hop_inter;
  transfer(cost, 0, at.time(at.size * (at.n - 1) / at.n, at.rate_inter * kPatRate));
  return cost;
}

/// The bus bandwidth of the cluster file is that of a whole node; how many GPUs take part does not change what each
/// sends to the switch.
double nvls_time(const Ground& at, const config::Cluster& cluster) {
  const double node = cluster.gpus_per_node;
  return at.time(2 * at.size * (node - 1) / node, cluster.intra.nvls_gb_per_s * kGiga);
}

CollectiveCost nvls(const Ground& at, const config::Cluster& cluster) {
  CollectiveCost cost;
  cost.latency_s = at.base + kNvlsLatency * kMicro;
  transfer(cost, nvls_time(at, cluster), 0);
  return cost;
}

CollectiveCost nvls_tree(const Ground& at, const config::Cluster& cluster) {
  CollectiveCost cost;
  cost.latency_s = at.base + kNvlsLatency * kMicro + 2 * tree_depth(at.nodes) * at.hop_inter;
  transfer(cost, nvls_time(at, cluster), at.time((at.nodes > 2 ? 2 : 1) * at.size, at.rate_inter));
  return cost;
}

/// Each rank sends its part to every other: to those of its node over their links, to the rest over the NICs.
CollectiveCost direct(const Ground& at, Collective collective) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  CollectiveCost cost;
  cost.latency_s = at.base + passes * ((at.g > 1 ? at.hop_intra : 0) + at.hop_inter);
  transfer(cost, at.time(passes * at.size * (at.g - 1) / at.n, at.rate_intra),
           at.time(passes * at.size * at.g * (at.n - at.g) / at.n, at.rate_inter));
  return cost;
}

/// Each rank sends to the next.
CollectiveCost send_recv(const config::Cluster& cluster, double bytes, const GroupShape& shape) {
  GroupShape links = shape;
  if (shape.per_node > 1 && cluster.intra.kind == config::IntraKind::xgmi) links.per_node = 2;
  Ground at = ground_of(cluster, Collective::send_recv, bytes, links, Protocol::simple);
  at.rate_inter /= links.per_node;
  CollectiveCost cost;
  cost.latency_s = at.base + std::max(shape.per_node > 1 ? at.hop_intra : 0, at.hop_inter);
  transfer(cost, at.time(bytes, at.rate_intra), at.time(bytes, at.rate_inter));
  return cost;
}

CollectiveCost achieved(const config::Cluster& cluster, Collective collective, double bytes, const GroupShape& shape,
                        Algorithm algorithm, Protocol protocol) {
  const Ground at = ground_of(cluster, collective, bytes, shape, protocol);
  CollectiveCost cost;
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::ring: cost = ring(at, collective); break;
    case Algorithm::tree: cost = tree(at, collective); break;
    case Algorithm::hierarchical: cost = hierarchical(at, collective); break;
    case Algorithm::pat: cost = pat(at); break;
    case Algorithm::nvls: cost = nvls(at, cluster); break;
    case Algorithm::nvls_tree: cost = nvls_tree(at, cluster); break;
    case Algorithm::direct: cost = direct(at, collective); break;
    case Algorithm::symmetric: {
      const SymmetricEstimate estimate = nccl_symmetric(cluster, collective, bytes, shape.ranks);
      cost = {.latency_s = estimate.latency_s,
              .transfer_s = estimate.transfer_s,
              .fabric = Fabric::intra,
              .ctas = estimate.ctas};
      break;
    }
    case Algorithm::copy_engine:
      cost = ring(at, collective);
      cost.transfer_s /= kCopyEngineRate;
      cost.ctas = 0;
      break;
  }
  cost.algorithm = algorithm;
  cost.protocol = protocol;
  return cost;
}

/// A way NCCL could go, and what it thinks of it.
struct Choice {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  NcclEstimate estimate;
};

/// All that NCCL would consider, or all protocols of one algorithm.
class Choices {
 public:
  Choices(const config::Cluster& cluster, Collective collective, const GroupShape& shape, Algorithm asked) {
    for (int a = 0; a < kAlgorithmCount; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (asked == Algorithm::automatic ? !nccl_offers(algorithm, collective) : asked != algorithm) continue;
      if (!can_run(algorithm, collective, cluster, shape)) continue;
      for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
        if (!nccl_has(cluster, algorithm, protocol)) continue;
        all_[count_++] = {algorithm, protocol, nccl_estimate(cluster, collective, shape, algorithm, protocol)};
      }
    }
  }
  const Choice* begin() const { return all_.data(); }
  const Choice* end() const { return all_.data() + count_; }

 private:
  std::array<Choice, static_cast<std::size_t>(3 * kAlgorithmCount)> all_;
  int count_ = 0;
};

const Choice& quickest(const Choices& choices, double bytes) {
  return *std::ranges::min_element(
      choices, {}, [&](const Choice& c) { return std::pair(c.estimate.seconds(bytes), c.estimate.seconds_per_byte); });
}

/// Latency of a collective over so many nodes beyond that of the cluster's file: so that 256 MiB take what its curve
/// says. Bytes go at the NICs' rate all the same: of gathers and scatters over 16 to 64 nodes of that curve each step
/// of the ring takes 35 to 45 us, however little of the 256 MiB it carries. A group of a part of each node's GPUs has
/// as many hops between nodes.
double latency_beyond(const config::Cluster& cluster, Collective collective, int nodes) {
  const config::InterFabric& inter = cluster.inter;
  const bool reduces = collective == Collective::all_reduce;
  const double rate = config::at_nodes(inter, reduces ? inter.curve_all_reduce : inter.curve_gather, nodes);
  const GroupShape shape{nodes * cluster.gpus_per_node, nodes, cluster.gpus_per_node};
  const Choice choice = quickest(Choices(cluster, collective, shape, Algorithm::automatic), kCurveBytes);
  const CollectiveCost alone = achieved(cluster, collective, kCurveBytes, shape, choice.algorithm, choice.protocol);
  const double took = (reduces ? 2 : 1) * kCurveBytes * (shape.ranks - 1) / shape.ranks / (rate * kGiga);
  return std::max(0.0, took - alone.latency_s - alone.transfer_s);
}

}  // namespace

bool can_run(Algorithm algorithm, Collective collective, const config::Cluster& cluster, const GroupShape& shape) {
  // NCCL sends an exchange from each rank to each.
  if (collective == Collective::all_to_all || collective == Collective::send_recv) {
    return algorithm == Algorithm::direct;
  }
  const bool reduces_fully = collective == Collective::all_reduce;
  const bool scatters = collective == Collective::all_gather || collective == Collective::reduce_scatter;
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::ring: return true;
    case Algorithm::tree: return reduces_fully || collective == Collective::broadcast;
    case Algorithm::hierarchical: return collective != Collective::broadcast && shape.nodes > 1 && shape.per_node > 1;
    case Algorithm::pat: return scatters && shape.nodes > 1 && shape.per_node == 1;
    case Algorithm::nvls:
      return reduces_fully && cluster.intra.nvls_gb_per_s > 0 && shape.nodes == 1 && shape.ranks > 2;
    case Algorithm::nvls_tree:
      return reduces_fully && cluster.intra.nvls_gb_per_s > 0 && shape.nodes > 1 && shape.per_node > 2;
    case Algorithm::copy_engine:
      return collective == Collective::all_gather && can_run(Algorithm::symmetric, collective, cluster, shape);
    case Algorithm::symmetric:
      return (reduces_fully || scatters) && cluster.intra.nvls_gb_per_s > 0 && shape.nodes == 1 && shape.ranks > 2;
    case Algorithm::direct: break;
  }
  return collective != Collective::broadcast;
}

CollectiveCost collective_cost(const config::Cluster& cluster, Collective collective, double bytes,
                               const GroupShape& shape, Algorithm asked) {
  if (shape.ranks <= 1) return {};
  if (collective == Collective::send_recv) return send_recv(cluster, bytes, shape);
  if (collective == Collective::all_to_all) {
    return achieved(cluster, collective, bytes, shape, Algorithm::direct, Protocol::simple);
  }
  const auto lacks = [&](Algorithm algorithm) { return !can_run(algorithm, collective, cluster, shape); };
  if (asked == Algorithm::copy_engine && lacks(asked)) asked = Algorithm::symmetric;
  if (lacks(asked)) asked = Algorithm::automatic;
  if (asked == Algorithm::symmetric || asked == Algorithm::copy_engine) {
    return achieved(cluster, collective, bytes, shape, asked, Protocol::simple);
  }
  const Choices choices(cluster, collective, shape, asked);
  if (choices.begin() == choices.end()) return achieved(cluster, collective, bytes, shape, asked, Protocol::simple);

  const Choice& choice = quickest(choices, bytes);
  CollectiveCost cost = achieved(cluster, collective, bytes, shape, choice.algorithm, choice.protocol);
  if (shape.nodes > 1 && !cluster.inter.curve_nodes.empty())
    cost.latency_s += latency_beyond(cluster, collective, shape.nodes);
  return cost;
}

}  // namespace fsdpbench::clock
