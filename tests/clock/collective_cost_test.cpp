#include "clock/collective_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "clock/nccl_tuning.h"

namespace fsdpbench::clock {
namespace {

using config::Cluster;
using config::load_cluster;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024 * kMiB;
constexpr GroupShape kNode{8, 1, 8};

constexpr Collective kAll[]{Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce,
                            Collective::broadcast};
constexpr Algorithm kAlgorithms[]{Algorithm::ring, Algorithm::tree,      Algorithm::hierarchical, Algorithm::pat,
                                  Algorithm::nvls, Algorithm::nvls_tree, Algorithm::direct,       Algorithm::automatic};

GroupShape over_nodes(int nodes, int per_node = 8) { return {nodes * per_node, nodes, per_node}; }

/// Round numbers and rates without a ramp, as closed forms have them: 8 GPUs a node, 100 GB/s in node, 8 NICs of 10.
Cluster plain_cluster() {
  Cluster cluster;
  cluster.nodes = 1024;
  cluster.gpus_per_node = 8;
  cluster.intra.peak_gb_per_s = cluster.intra.nccl_gb_per_s = 100;
  cluster.intra.all_gather_gb_per_s = cluster.intra.reduce_scatter_gb_per_s = cluster.intra.all_reduce_gb_per_s = 100;
  cluster.intra.hop_latency_us = 2;
  cluster.inter.kind = config::InterKind::infiniband;
  cluster.inter.nics_per_node = 8;
  cluster.inter.nic_gb_per_s = cluster.inter.nic_achieved_gb_per_s = 10;
  cluster.inter.hop_latency_us = 20;
  return cluster;
}

double seconds(const Cluster& cluster, Collective collective, double bytes, const GroupShape& shape,
               Algorithm algorithm = Algorithm::automatic) {
  return collective_cost(cluster, collective, bytes, shape, algorithm).seconds();
}

/// As nccl-tests has it, GB/s.
double bus(const Cluster& cluster, Collective collective, double bytes, const GroupShape& shape) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  return passes * bytes * (shape.ranks - 1) / shape.ranks / seconds(cluster, collective, bytes, shape) / 1e9;
}

void expect_cost(const CollectiveCost& cost, double latency_us, double transfer_us) {
  EXPECT_NEAR(cost.latency_s * 1e6, latency_us, 1e-9 * latency_us);
  EXPECT_NEAR(cost.transfer_s * 1e6, transfer_us, 1e-9 * transfer_us);
}

TEST(CollectiveCost, AtTheSizeOfAMeasuredCurveItIsTheCurve) {
  const Cluster cluster = load_cluster("aws-p5:hopper-prod");
  for (std::size_t i = 0; i < cluster.inter.curve_nodes.size(); ++i) {
    const GroupShape shape = over_nodes(static_cast<int>(cluster.inter.curve_nodes[i]));
    EXPECT_NEAR(bus(cluster, Collective::all_gather, 256 * kMiB, shape), cluster.inter.curve_gather[i],
                0.01 * cluster.inter.curve_gather[i]);
    EXPECT_GE(1.01 * bus(load_cluster("aws-p5"), Collective::all_reduce, kGiB, shape),
              bus(cluster, Collective::all_reduce, kGiB, shape));
    const auto more = [&](const Cluster& on) {
      return seconds(on, Collective::all_gather, 4 * kGiB, shape) - seconds(on, Collective::all_gather, kGiB, shape);
    };
    EXPECT_NEAR(more(cluster), more(load_cluster("aws-p5")), 1e-9) << "its steps take longer, its bytes do not";
  }
  EXPECT_EQ(seconds(cluster, Collective::all_gather, kGiB, kNode),
            seconds(load_cluster("aws-p5"), Collective::all_gather, kGiB, kNode));
}

TEST(CollectiveCost, RingIsStepsAndBytesOfTheSlowerLinks) {
  const Cluster cluster = plain_cluster();
  // 7 steps of 2 us; 7/8 of 800 MB at 100 GB/s.
  expect_cost(collective_cost(cluster, Collective::all_gather, 800e6, kNode, Algorithm::ring), 14, 7000);
  expect_cost(collective_cost(cluster, Collective::reduce_scatter, 800e6, kNode, Algorithm::ring), 14, 7000);
  expect_cost(collective_cost(cluster, Collective::all_reduce, 800e6, kNode, Algorithm::ring), 28, 14000);
  expect_cost(collective_cost(cluster, Collective::broadcast, 800e6, kNode, Algorithm::ring), 14, 8000);
  // 4 nodes: 28 steps in nodes, 3 between; 31/32 at 80 GB/s of 8 NICs.
  const CollectiveCost far = collective_cost(cluster, Collective::all_gather, 800e6, over_nodes(4), Algorithm::ring);
  expect_cost(far, 28 * 2 + 3 * 20, 9687.5);
  EXPECT_EQ(far.fabric, Fabric::inter);
  EXPECT_EQ(far.algorithm, Algorithm::ring);
}

TEST(CollectiveCost, OthersAsWorkedByHand) {
  Cluster cluster = plain_cluster();
  // One GPU a node has one of 8 NICs; log2(16) steps; PAT keeps 3/4 of 10 GB/s.
  expect_cost(collective_cost(cluster, Collective::all_gather, 800e6, over_nodes(16, 1), Algorithm::pat), 4 * 20,
              750e6 / 7.5e9 * 1e6);
  // In one step; of a GPU's 100 MB parts 7 go over its links, 24 over its NIC.
  expect_cost(collective_cost(cluster, Collective::all_gather, 3200e6, over_nodes(4), Algorithm::direct), 2 + 20,
              2400e6 / 10e9 * 1e6);
  // The switch reduces: every GPU sends and receives 800 MB; 175 GB/s of "bus" are 100 on its links.
  cluster.intra.nvls_gb_per_s = 175;
  expect_cost(collective_cost(cluster, Collective::all_reduce, 800e6, kNode, Algorithm::nvls), 25, 8000);
  expect_cost(collective_cost(cluster, Collective::all_reduce, 800e6, over_nodes(4), Algorithm::nvls_tree),
              25 + 2 * 2 * 20, 20000);
}

TEST(CollectiveCost, ASendToTheNextRankIsAsSlowAsTheSlowestLinkBetweenNeighbours) {
  Cluster cluster = plain_cluster();
  const auto cost = [&](const GroupShape& shape) {
    return collective_cost(cluster, Collective::send_recv, 800e6, shape);
  };
  expect_cost(cost(kNode), 2, 8000);
  expect_cost(cost({2, 1, 2}), 2, 8000);
  // One rank of a node sends out of it, over one of 8 NICs; where neighbours are never on one node, each over its own.
  expect_cost(cost(over_nodes(2)), 20, 80000);
  expect_cost(cost(over_nodes(4, 1)), 20, 80000);
  EXPECT_EQ(cost(over_nodes(2)).fabric, Fabric::inter);
  EXPECT_EQ(cost(kNode).fabric, Fabric::intra);
  cluster.inter.nics_per_node = 4;
  expect_cost(cost(over_nodes(2)), 20, 160000);
  cluster.intra.pair_fraction = 0.5;
  expect_cost(cost(kNode), 2, 8000);
  cluster.intra.kind = config::IntraKind::xgmi;  // 7 links of a GPU, of which one goes to the next
  expect_cost(cost(kNode), 2, 7 * 8000);
  expect_cost(cost(over_nodes(4, 1)), 20, 160000);
  EXPECT_EQ(cost({}).seconds(), 0);
  EXPECT_FALSE(can_run(Algorithm::ring, Collective::send_recv, cluster, kNode));
}

TEST(CollectiveCost, OneRankCommunicatesNothing) {
  for (const Collective collective : kAll) {
    for (const Algorithm algorithm : kAlgorithms) {
      const CollectiveCost cost = collective_cost(plain_cluster(), collective, kGiB, {}, algorithm);
      EXPECT_EQ(cost.seconds(), 0);
      EXPECT_EQ(cost.fabric, Fabric::none);
    }
  }
}

/// No collective gets quicker by more bytes, but where NCCL changes its mind, nor slower by links that achieve more.
TEST(CollectiveCost, MonotoneInBytesAndRates) {
  for (const char* name : {"dgx-a100", "dgx-h100", "hgx-b200", "mi300x", "aws-p5", "ethernet-a100", "pcie-h100"}) {
    const Cluster cluster = load_cluster(name);
    Cluster better = cluster;
    for (double* rate : {&better.intra.all_gather_gb_per_s, &better.intra.reduce_scatter_gb_per_s,
                         &better.intra.all_reduce_gb_per_s, &better.intra.nvls_gb_per_s, &better.intra.ll128_gb_per_s,
                         &better.inter.nic_achieved_gb_per_s, &better.inter.nic_ll128_gb_per_s}) {
      *rate *= 1.5;
    }
    for (const GroupShape& shape :
         {GroupShape{2, 1, 2}, kNode, over_nodes(2), over_nodes(16), over_nodes(128), over_nodes(16, 1)}) {
      if (shape.nodes > cluster.nodes) continue;
      for (const Collective collective : kAll) {
        for (const Algorithm algorithm : kAlgorithms) {
          CollectiveCost before;
          for (double bytes = 256; bytes < 1e11; bytes *= 1.3) {
            const CollectiveCost now = collective_cost(cluster, collective, bytes, shape, algorithm);
            const bool same = now.algorithm == before.algorithm && now.protocol == before.protocol;
            if (same) {
              ASSERT_GE(now.seconds(), before.seconds() * (1 - 1e-12))
                  << name << " " << to_string(collective) << " " << to_string(algorithm) << " " << bytes
                  << " bytes over " << shape.ranks;
            }
            before = now;
            ASSERT_LE(seconds(better, collective, bytes, shape, algorithm), now.seconds() * (1 + 1e-12))
                << name << " " << bytes;
          }
        }
      }
    }
  }
}

TEST(CollectiveCost, AlgorithmCanBeToldAndElseIsNcclsChoice) {
  const Cluster h100 = load_cluster("dgx-h100");
  const auto chosen = [&](Collective collective, double bytes, const GroupShape& shape, Algorithm asked) {
    return collective_cost(h100, collective, bytes, shape, asked).algorithm;
  };
  constexpr auto kAuto = Algorithm::automatic;
  EXPECT_EQ(chosen(Collective::all_gather, kGiB, over_nodes(4), kAuto), Algorithm::ring);
  EXPECT_EQ(chosen(Collective::all_gather, kMiB, over_nodes(64, 1), kAuto), Algorithm::pat);
  EXPECT_EQ(chosen(Collective::all_reduce, 1024, over_nodes(4), kAuto), Algorithm::tree);
  EXPECT_EQ(chosen(Collective::all_reduce, kGiB, kNode, kAuto), Algorithm::nvls);
  EXPECT_EQ(chosen(Collective::all_reduce, kGiB, over_nodes(2), kAuto), Algorithm::nvls_tree);
  EXPECT_EQ(chosen(Collective::all_reduce, kGiB, over_nodes(4), Algorithm::ring), Algorithm::ring);
  EXPECT_EQ(chosen(Collective::all_gather, kGiB, over_nodes(4), Algorithm::hierarchical), Algorithm::hierarchical);
  // An algorithm that cannot run there is chosen as if nothing had been told.
  EXPECT_EQ(chosen(Collective::all_gather, kGiB, kNode, Algorithm::tree), Algorithm::ring);
  EXPECT_EQ(collective_cost(load_cluster("dgx-a100"), Collective::all_reduce, kGiB, kNode, Algorithm::nvls).algorithm,
            Algorithm::ring);
  // Protocols go from few bytes to many.
  const auto protocol = [&](double bytes) {
    return collective_cost(h100, Collective::all_gather, bytes, over_nodes(8)).protocol;
  };
  EXPECT_EQ(protocol(1024), Protocol::ll);
  EXPECT_EQ(protocol(64 * kMiB), Protocol::ll128);
  EXPECT_EQ(protocol(8 * kGiB), Protocol::simple);
}

/// 1: all-gather, 2: reduce-scatter, 4: all-reduce, 8: broadcast.
TEST(CollectiveCost, EachAlgorithmRunsWhereItCan) {
  const Cluster h100 = load_cluster("dgx-h100"), a100 = load_cluster("dgx-a100");
  const auto which = [](const Cluster& cluster, Algorithm algorithm, const GroupShape& shape) {
    int can = 0;
    if (can_run(algorithm, Collective::all_gather, cluster, shape)) can += 1;
    if (can_run(algorithm, Collective::reduce_scatter, cluster, shape)) can += 2;
    if (can_run(algorithm, Collective::all_reduce, cluster, shape)) can += 4;
    if (can_run(algorithm, Collective::broadcast, cluster, shape)) can += 8;
    return can;
  };
  constexpr GroupShape kTwo{2, 1, 2}, kThree{3, 1, 3}, kEight{8, 1, 8}, kWide{16, 2, 8}, kPairs{4, 2, 2},
      kThrees{6, 2, 3}, kSingles{4, 4, 1};
  struct Row {
    Algorithm algorithm;
    std::array<int, 7> can;  // of those shapes, on H100s
  };
  for (const Row& row : {Row{Algorithm::automatic, {15, 15, 15, 15, 15, 15, 15}},
                         {Algorithm::ring, {15, 15, 15, 15, 15, 15, 15}},
                         {Algorithm::tree, {12, 12, 12, 12, 12, 12, 12}},
                         {Algorithm::hierarchical, {0, 0, 0, 7, 7, 7, 0}},
                         {Algorithm::pat, {0, 0, 0, 0, 0, 0, 3}},
                         {Algorithm::nvls, {0, 4, 4, 0, 0, 0, 0}},
                         {Algorithm::nvls_tree, {0, 0, 0, 4, 0, 4, 0}},
                         {Algorithm::symmetric, {0, 7, 7, 0, 0, 0, 0}},
                         {Algorithm::copy_engine, {0, 1, 1, 0, 0, 0, 0}},
                         {Algorithm::direct, {7, 7, 7, 7, 7, 7, 7}}}) {
    std::array<int, 7> can{};
    std::ranges::transform(std::array{kTwo, kThree, kEight, kWide, kPairs, kThrees, kSingles}, can.begin(),
                           [&](const GroupShape& shape) { return which(h100, row.algorithm, shape); });
    EXPECT_EQ(can, row.can) << to_string(row.algorithm);
  }
  for (const Algorithm multicast :
       {Algorithm::nvls, Algorithm::nvls_tree, Algorithm::symmetric, Algorithm::copy_engine}) {
    EXPECT_EQ(which(a100, multicast, kEight) + which(a100, multicast, kWide), 0);
  }
}

// NVIDIA/Megatron-LM 5596: the kernel's device time over 8 H100, off and on.
TEST(CollectiveCost, SymmetricKernelsAreNcclsOwnEstimate) {
  const Cluster h100 = load_cluster("dgx-h100");
  struct Row {
    Collective collective;
    double mib, us;
  };
  for (const auto& [collective, mib, us] :
       {Row{Collective::all_gather, 2, 10.9}, Row{Collective::all_gather, 8, 27.4},
        Row{Collective::all_gather, 32, 95.3}, Row{Collective::all_gather, 128, 363.2},
        Row{Collective::reduce_scatter, 2, 10.8}, Row{Collective::reduce_scatter, 8, 28.8},
        Row{Collective::reduce_scatter, 32, 100.5}}) {
    const CollectiveCost cost = collective_cost(h100, collective, mib * kMiB, kNode, Algorithm::symmetric);
    EXPECT_EQ(cost.algorithm, Algorithm::symmetric);
    EXPECT_EQ(cost.fabric, Fabric::intra);
    EXPECT_NEAR(cost.seconds() * 1e6, us, 0.15 * us) << to_string(collective) << ", MiB " << mib;
    if (mib > 32) continue;
    EXPECT_LT(cost.seconds(), seconds(h100, collective, mib * kMiB, kNode)) << "the ring";
  }
  // Flags in the data where bytes are few; multicast on 2 multiprocessors where they are many.
  const SymmetricEstimate few = nccl_symmetric(h100, Collective::all_gather, 4096, 8),
                          many = nccl_symmetric(h100, Collective::all_gather, kGiB, 8);
  EXPECT_NEAR(few.latency_s * 1e6, 4.5, 1e-9);
  EXPECT_NEAR(many.latency_s * 1e6, 7.8, 1e-9);
  EXPECT_LE(many.ctas, 2);
  // Who leaves the NVLink domain, or has no multicast, communicates as ever.
  for (const auto& [name, shape] : {std::pair{"dgx-h100", over_nodes(2)}, std::pair{"dgx-h100", GroupShape{2, 1, 2}},
                                    std::pair{"dgx-a100", kNode}, std::pair{"mi300x", kNode}}) {
    const Cluster cluster = load_cluster(name);
    EXPECT_EQ(seconds(cluster, Collective::all_gather, kGiB, shape, Algorithm::symmetric),
              seconds(cluster, Collective::all_gather, kGiB, shape))
        << name;
  }
}

// pytorch/pytorch 182850: 64 MiB from each of 8 H100, copied by PyTorch (375.6 GB/s) and by NCCL's ring (382.7).
TEST(CollectiveCost, CopyEnginesGatherAtNearlyTheRateOfARing) {
  const Cluster h100 = load_cluster("dgx-h100");
  const CollectiveCost copied =
      collective_cost(h100, Collective::all_gather, 512 * kMiB, kNode, Algorithm::copy_engine);
  EXPECT_EQ(copied.algorithm, Algorithm::copy_engine);
  EXPECT_EQ(copied.ctas, 0);
  EXPECT_NEAR(512 * kMiB / copied.seconds() / 1e9, 375.6, 0.03 * 375.6);
  EXPECT_GT(copied.seconds(), seconds(h100, Collective::all_gather, 512 * kMiB, kNode));
  // Nothing else is copied: NCCL has kernels for it; and nothing leaves the NVLink domain.
  const CollectiveCost reduced =
      collective_cost(h100, Collective::reduce_scatter, 512 * kMiB, kNode, Algorithm::copy_engine);
  EXPECT_EQ(reduced.algorithm, Algorithm::symmetric);
  EXPECT_GT(reduced.ctas, 0);
  const CollectiveCost far =
      collective_cost(h100, Collective::all_gather, 512 * kMiB, over_nodes(2), Algorithm::copy_engine);
  EXPECT_EQ(far.algorithm, Algorithm::ring);
  EXPECT_EQ(far.ctas, -1);
  // Blackwell copies what is large though nobody asked for it.
  EXPECT_FALSE(nccl_copies(h100, 1e9));
  EXPECT_FALSE(nccl_copies(load_cluster("hgx-b200"), 8 << 20));
  EXPECT_TRUE(nccl_copies(load_cluster("hgx-b200"), (8 << 20) + 1));
}

struct Published {
  const char* cluster;
  Collective collective;
  double bytes;
  GroupShape shape;
  double gb_per_s;
};

/// Curves by size, group and nodes that are not rows of profiles/published: XLA's tables of H100 and B200 in node,
/// crazyguitar/aws-gpu-communication-benchmark (p5), Azure's and hisohara's all-reduces.
TEST(CollectiveCost, FollowsPublishedCurves) {
  constexpr auto AG = Collective::all_gather, RS = Collective::reduce_scatter, AR = Collective::all_reduce;
  constexpr GroupShape kPair{2, 1, 2}, kQuad{4, 1, 4};
  const Published curves[]{{"dgx-h100", AG, 32 * kMiB, kNode, 227},
                           {"dgx-h100", AG, 64 * kMiB, kNode, 275},
                           {"dgx-h100", AG, kGiB, kNode, 344},
                           {"dgx-h100", AG, 2 * kGiB, kNode, 352},
                           {"dgx-h100", AG, kGiB, kQuad, 326},
                           {"dgx-h100", AG, kGiB, kPair, 269},
                           {"dgx-h100", RS, kGiB, kNode, 322},
                           {"dgx-h100", AR, kGiB, kNode, 466},
                           {"dgx-h100", AR, 128 * kMiB, kNode, 401},
                           {"hgx-b200", AG, 512 * kMiB, kNode, 569},
                           {"hgx-b200", AG, 2 * kGiB, kNode, 616},
                           {"hgx-b200", RS, kGiB, kNode, 608},
                           {"hgx-b200", AG, 2 * kGiB, kQuad, 568},
                           {"hgx-b200", AG, kGiB, kPair, 426},
                           {"aws-p5", AG, 2 * kGiB, over_nodes(2), 329},
                           {"aws-p5", AG, 2 * kGiB, over_nodes(8), 294},
                           {"aws-p5", AG, 2 * kGiB, over_nodes(32), 263},
                           {"aws-p5", AG, 128 * kMiB, over_nodes(8), 144},
                           {"aws-p5", AG, 32 * kMiB, over_nodes(32), 12.4},
                           {"aws-p5", AG, 512 * kMiB, over_nodes(32), 146},
                           {"aws-p5", AR, 8 * kGiB, over_nodes(4), 357},
                           {"mi300x", AR, 8 * kGiB, kNode, 316},
                           {"mi300x", AR, 64 * kMiB, kNode, 268},
                           {"dgx-a100", AR, 8 * kGiB, kNode, 231.6}};
  for (const Published& p : curves) {
    const double predicted = bus(load_cluster(p.cluster), p.collective, p.bytes, p.shape);
    EXPECT_NEAR(predicted / p.gb_per_s, 1, 0.15)
        << p.cluster << " " << to_string(p.collective) << " of " << p.bytes / kMiB << " MiB over " << p.shape.ranks;
  }
}

TEST(CollectiveCost, AStepOverEfaTakesWhatWasMeasured) {
  // 256 ranks: 9.7 us a step, not the 4.7 of NCCL's constants.
  const CollectiveCost cost = collective_cost(load_cluster("aws-p5"), Collective::all_gather, 1, over_nodes(32));
  EXPECT_NEAR(cost.latency_s * 1e6 / 255, 9.7, 0.3);
}

TEST(GroupShapes, ConsecutiveRanksFillNodes) {
  using plan::Members;
  EXPECT_EQ(shape_of(Members{0, 1, 8}, 32, 8), (GroupShape{8, 1, 8}));
  EXPECT_EQ(shape_of(Members{8, 1, 16}, 32, 8), (GroupShape{16, 2, 8}));
  EXPECT_EQ(shape_of(Members{4, 1, 4}, 32, 8), (GroupShape{4, 1, 4}));
  EXPECT_EQ(shape_of(Members{3, 8, 4}, 32, 8), (GroupShape{4, 4, 1})) << "replicas, one a node";
  EXPECT_EQ(shape_of(Members{1, 4, 8}, 32, 8), (GroupShape{8, 4, 2})) << "two replicas a node";
  EXPECT_EQ(shape_of(Members{0, 16, 2}, 32, 8), (GroupShape{2, 2, 1}));
  EXPECT_EQ(shape_of(Members{0, 1, 4}, 4, 8), (GroupShape{4, 1, 4})) << "less than a node";
}

TEST(GroupShapes, SpreadRanksNeverShareANodeWithTheirNeighbours) {
  using plan::Members;
  constexpr auto kSpread = Placement::spread;
  EXPECT_EQ(shape_of(Members{0, 1, 4}, 32, 8, kSpread), (GroupShape{4, 4, 1}));
  EXPECT_EQ(shape_of(Members{0, 1, 32}, 32, 8, kSpread), (GroupShape{32, 4, 8}));
  EXPECT_EQ(shape_of(Members{1, 8, 4}, 32, 8, kSpread), (GroupShape{4, 1, 4})) << "replicas come together";
  const Cluster cluster = load_cluster("dgx-h100");
  const auto time = [&](Placement placement) {
    return seconds(cluster, Collective::all_gather, kGiB, shape_of(Members{0, 1, 8}, 64, 8, placement));
  };
  EXPECT_LT(4 * time(Placement::packed), time(Placement::spread));
}

TEST(CollectiveCost, AnAllToAllGoesFromEachToEachWhateverWasAsked) {
  const Cluster cluster = plain_cluster();
  for (const Algorithm asked : {Algorithm::automatic, Algorithm::ring, Algorithm::direct}) {
    // In a node 7/8 of 800 MB at 100 GB/s; of two nodes each GPU sends half of its 1600 MB through the NICs, 80 GB/s.
    expect_cost(collective_cost(cluster, Collective::all_to_all, 800e6, kNode, asked), 2, 7000);
    expect_cost(collective_cost(cluster, Collective::all_to_all, 1600e6, over_nodes(2), asked), 22, 80'000);
  }
  EXPECT_EQ(seconds(cluster, Collective::all_to_all, 1e9, {1, 1, 1}), 0);
}

/// Two nodes and one: 3 us and 5 more between nodes; gathers 100 GB/s, scatters 80, all-reduces 125 in a node.
TEST(CollectiveCost, EveryPartOfAClusterCountsWhereItShould) {
  Cluster cluster = plain_cluster();
  cluster.intra.base_latency_us = 3;
  cluster.inter.base_latency_us = 5;
  cluster.intra.reduce_scatter_gb_per_s = 80;
  cluster.intra.all_reduce_gb_per_s = 125;
  constexpr auto kGather = Collective::all_gather, kScatter = Collective::reduce_scatter,
                 kReduce = Collective::all_reduce;
  struct Row {
    Collective collective;
    GroupShape shape;
    Algorithm algorithm;
    double latency_us, transfer_us;  // of 640 MB
    Fabric fabric;
  };
  for (const Row& row : std::initializer_list<Row>{
           {kGather, kNode, Algorithm::ring, 3 + 7 * 2, 5600, Fabric::intra},
           {kScatter, kNode, Algorithm::ring, 3 + 7 * 2, 7000, Fabric::intra},
           {kReduce, kNode, Algorithm::ring, 3 + 14 * 2, 8960, Fabric::intra},
           {kReduce, over_nodes(2), Algorithm::ring, 8 + 2 * (14 * 2 + 20), 15000, Fabric::inter},
           {kGather, {2, 2, 1}, Algorithm::ring, 8 + 20, 32000, Fabric::inter},
           // Two trees' nodes send all to each other; of three one sends everything twice.
           {kReduce, over_nodes(2), Algorithm::tree, 8 + 2 * (7 * 2 + 20), 10240, Fabric::intra},
           {kReduce, over_nodes(3), Algorithm::tree, 8 + 2 * (7 * 2 + 2 * 20), 16000, Fabric::inter},
           {Collective::broadcast, over_nodes(3), Algorithm::tree, 8 + 7 * 2 + 2 * 20, 8000, Fabric::inter},
           {kGather, over_nodes(2), Algorithm::hierarchical, 8 + 20 + 7 * 2, 4000 + 5600, Fabric::intra},
           {kGather, {16, 16, 1}, Algorithm::pat, 8 + 4 * 20, 80000, Fabric::inter},
           {kGather, {8, 8, 1}, Algorithm::direct, 8 + 20, 56000, Fabric::inter},
           {kReduce, kNode, Algorithm::direct, 3 + 2 * 2, 8960, Fabric::intra},
           {kReduce, over_nodes(2), Algorithm::direct, 8 + 2 * 22, 64000, Fabric::inter},
           {Collective::send_recv, {4, 2, 2}, Algorithm::direct, 8 + 20, 64000, Fabric::inter}}) {
    const CollectiveCost cost = collective_cost(cluster, row.collective, 640e6, row.shape, row.algorithm);
    expect_cost(cost, row.latency_us, row.transfer_us);
    EXPECT_EQ(cost.fabric, row.fabric) << to_string(row.algorithm) << " of " << row.shape.ranks;
    EXPECT_EQ(cost.algorithm, row.algorithm);
    EXPECT_EQ(cost.ctas, -1);
  }
  cluster.intra.nvls_gb_per_s = 175;  // 100 on its links; over two nodes the NICs carry the bytes once
  expect_cost(collective_cost(cluster, kReduce, 640e6, {4, 1, 4}, Algorithm::nvls), 28, 6400);
  EXPECT_EQ(collective_cost(cluster, kReduce, 640e6, {4, 1, 4}, Algorithm::nvls).fabric, Fabric::intra);
  expect_cost(collective_cost(cluster, kReduce, 640e6, over_nodes(2), Algorithm::nvls_tree), 8 + 25 + 2 * 20, 8000);
  const CollectiveCost copied = collective_cost(cluster, kGather, 640e6, kNode, Algorithm::copy_engine);
  expect_cost(copied, 3 + 7 * 2, 5600 / 0.98);
  EXPECT_EQ(copied.ctas, 0);
  cluster.intra.ramp_mb = 0.56;  // of 560 MB on the wire: a thousandth, of which the root is 17.7 MB
  expect_cost(collective_cost(cluster, kGather, 640e6, kNode, Algorithm::ring), 17, 5600 * (1 + std::sqrt(1e-3)));
  // Pods of one node: two nodes have half of their NICs' rate.
  cluster.intra.ramp_mb = 0;
  cluster.inter.oversubscription = 2;
  expect_cost(collective_cost(cluster, kGather, 640e6, over_nodes(2), Algorithm::ring), 8 + 14 * 2 + 20, 7500);
  cluster.inter.pod_nodes = 1;
  expect_cost(collective_cost(cluster, kGather, 640e6, over_nodes(2), Algorithm::ring), 8 + 14 * 2 + 20, 15000);
  cluster.inter.pod_nodes = 2;
  expect_cost(collective_cost(cluster, kGather, 640e6, over_nodes(2), Algorithm::ring), 8 + 14 * 2 + 20, 7500);
}

/// A collective that fills the NICs for four fifths of its time is theirs.
TEST(CollectiveCost, AFabricIsTheNicsThatAreBusyForLongEnough) {
  Cluster cluster = plain_cluster();
  cluster.inter.nic_achieved_gb_per_s = 80;  // of 64 GB: 0.8 s
  const auto fabric = [&](double links) {
    cluster.intra.all_gather_gb_per_s = links;
    return collective_cost(cluster, Collective::send_recv, 64e9, over_nodes(2)).fabric;
  };
  EXPECT_EQ(fabric(64), Fabric::inter);
  EXPECT_EQ(fabric(63), Fabric::intra);
  // The step to the next rank takes as long as the longest: here that in the node.
  cluster.intra.hop_latency_us = 30;
  expect_cost(collective_cost(cluster, Collective::send_recv, 64e9, over_nodes(2)), 30, 64e6 / 63);
  expect_cost(collective_cost(cluster, Collective::send_recv, 64e9, over_nodes(2, 1)), 20, 800e3);
  cluster.intra.kind = config::IntraKind::xgmi;  // of 63 GB/s each link has a seventh
  expect_cost(collective_cost(cluster, Collective::send_recv, 64e9, over_nodes(2, 1)), 20, 800e3);
  expect_cost(collective_cost(cluster, Collective::send_recv, 64e9, over_nodes(2)), 30, 64e6 / 9);
}

/// 0.5 of the rate between two GPUs and 0.75 among four; in between and up to eight straight in log2.
TEST(CollectiveCost, APartOfANodesGpusHasAPartOfItsRate) {
  Cluster cluster = plain_cluster();
  cluster.intra.pair_fraction = 0.5;
  cluster.intra.quad_fraction = 0.75;
  const auto rate = [&](int gpus, int node) {
    cluster.gpus_per_node = node;
    const CollectiveCost cost =
        collective_cost(cluster, Collective::all_gather, 1e9 * gpus, {gpus, 1, gpus}, Algorithm::ring);
    return (gpus - 1) / cost.transfer_s;
  };
  EXPECT_NEAR(rate(2, 8), 50, 1e-9);
  EXPECT_NEAR(rate(3, 8), 50 + 25 * std::log2(1.5), 1e-9);
  EXPECT_NEAR(rate(4, 8), 75, 1e-9);
  EXPECT_NEAR(rate(6, 8), 75 + 25 * std::log2(1.5), 1e-9);
  EXPECT_NEAR(rate(8, 16), 100, 1e-9);
  EXPECT_NEAR(rate(16, 16), 100, 1e-9);
  EXPECT_NEAR(rate(2, 4), 50 / 0.75, 1e-9) << "of a node of four";
  cluster.intra.kind = config::IntraKind::xgmi;
  EXPECT_NEAR(rate(4, 8), 300 / 7.0, 1e-9);
  EXPECT_NEAR(rate(3, 8), 83 / 7.0, 1e-9);
  EXPECT_NEAR(rate(2, 2), 100, 1e-9);
}

/// 4 MB over links that NCCL rates 100 GB/s: LL128, which may be slower than the others.
TEST(CollectiveCost, Ll128IsAsSlowAsItWasMeasured) {
  Cluster cluster = plain_cluster();
  const auto transfer_us = [&](const GroupShape& shape) {
    const CollectiveCost cost = collective_cost(cluster, Collective::all_gather, 4e6, shape, Algorithm::ring);
    EXPECT_EQ(cost.protocol, Protocol::ll128);
    return cost.transfer_s * 1e6;
  };
  EXPECT_NEAR(transfer_us(kNode), 35, 1e-9);
  cluster.intra.ll128_gb_per_s = 0.5;
  EXPECT_NEAR(transfer_us(kNode), 7000, 1e-6);
  cluster.intra.ll128_gb_per_s = 1000;
  EXPECT_NEAR(transfer_us(kNode), 35, 1e-9);
  EXPECT_NEAR(transfer_us(over_nodes(2)), 46.875, 1e-9);
  cluster.inter.nic_ll128_gb_per_s = 0.5;
  EXPECT_NEAR(transfer_us(over_nodes(2)), 937.5, 1e-9);
  cluster.inter.nic_ll128_gb_per_s = 1000;
  EXPECT_NEAR(transfer_us(over_nodes(2)), 46.875, 1e-9);
}

/// 256 MiB at 40 GB/s over two nodes and 20 over four, all-reduces at 30; bytes beyond go at the NICs' 80 GB/s.
TEST(CollectiveCost, ACurveMakesLatenciesThatWereMeasured) {
  Cluster cluster = plain_cluster();
  cluster.inter.curve_nodes = {2, 4};
  cluster.inter.curve_gather = {40, 20};
  cluster.inter.curve_all_reduce = {30, 30};
  constexpr double kCurve = 256 * kMiB;
  const auto took = [&](Collective collective, double bytes, int nodes) {
    return seconds(cluster, collective, bytes, over_nodes(nodes)) * 1e9;
  };
  EXPECT_NEAR(took(Collective::all_gather, kCurve, 2), kCurve * 15 / 16 / 40, 1);
  EXPECT_NEAR(took(Collective::reduce_scatter, kCurve, 4), kCurve * 31 / 32 / 20, 1);
  EXPECT_NEAR(took(Collective::all_reduce, kCurve, 2), 2 * kCurve * 15 / 16 / 30, 1);
  EXPECT_NEAR(took(Collective::all_gather, 8 * kGiB, 2), kCurve * 15 / 16 / 40 + (8 * kGiB - kCurve) * 15 / 16 / 80, 1);
  EXPECT_NEAR(took(Collective::all_gather, kCurve, 1), kCurve * 7 / 8 / 100 + 7 * 2000, 1) << "no curve of one node";
  cluster.inter.curve_gather = {1000, 1000};
  EXPECT_NEAR(took(Collective::all_gather, kCurve, 2), kCurve * 15 / 16 / 80 + 14 * 2000 + 20'000, 1)
      << "never less than the links say";
}

TEST(CollectiveCost, WhatCannotRunIsChosenAnew) {
  Cluster cluster = plain_cluster();
  cluster.intra.nvls_gb_per_s = 175;
  const auto chosen = [&](Collective collective, const GroupShape& shape, Algorithm asked) {
    return collective_cost(cluster, collective, kGiB, shape, asked).algorithm;
  };
  Cluster slow = plain_cluster();
  slow.intra.nvls_gb_per_s = 0.5;
  EXPECT_TRUE(can_run(Algorithm::nvls, Collective::all_reduce, slow, kNode));
  EXPECT_TRUE(can_run(Algorithm::nvls_tree, Collective::all_reduce, slow, over_nodes(2)));
  EXPECT_TRUE(can_run(Algorithm::symmetric, Collective::all_gather, slow, kNode));
  EXPECT_EQ(chosen(Collective::all_reduce, kNode, Algorithm::copy_engine), Algorithm::symmetric);
  EXPECT_EQ(chosen(Collective::broadcast, kNode, Algorithm::copy_engine), Algorithm::ring);
  EXPECT_EQ(chosen(Collective::broadcast, kNode, Algorithm::symmetric), Algorithm::ring);
  for (const Algorithm algorithm : kAlgorithms) {
    for (const Collective exchange : {Collective::all_to_all, Collective::send_recv}) {
      EXPECT_EQ(can_run(algorithm, exchange, cluster, kNode), algorithm == Algorithm::direct);
    }
  }
}

}  // namespace
}  // namespace fsdpbench::clock
