#include "clock/nccl_tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace fsdpbench::clock {
namespace {

using config::load_cluster;

double latency_us(const char* cluster, const GroupShape& shape, Algorithm algorithm, Protocol protocol,
                  Collective collective = Collective::all_gather) {
  return nccl_estimate(load_cluster(cluster), collective, shape, algorithm, protocol).latency_s * 1e6;
}

/// Latencies that NCCL itself logged (2.27.5, whose ring row is that of 2.30.7): 8 and 32 nodes of 8 H100.
TEST(NcclTuning, RingLatenciesAreThoseNcclLogs) {
  constexpr GroupShape kEight{64, 8, 8}, kThirtyTwo{256, 32, 8};
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::ring, Protocol::ll), 81.5, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::ring, Protocol::ll128), 148.4, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::ring, Protocol::simple), 296.8, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kThirtyTwo, Algorithm::ring, Protocol::ll), 314.3, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kThirtyTwo, Algorithm::ring, Protocol::ll128), 563.6, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kThirtyTwo, Algorithm::ring, Protocol::simple), 1204.0, 0.05);
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::ring, Protocol::simple, Collective::all_reduce),
              1.4 * (2 * (296.8 - 8.4) + 8.4), 0.5);
  // An all-reduce goes round twice.
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::ring, Protocol::ll, Collective::all_reduce),
              2 * (81.5 - 6.6) + 6.6, 0.05);
}

TEST(NcclTuning, GroupsOfXgmiUseTheirLinks) {
  config::Cluster links =
      load_cluster("dgx-h100");  // 7 of a GPU: of four GPUs each uses three, of three they are one ring
  links.intra.kind = config::IntraKind::xgmi;
  const auto ring = [&](int ranks) {
    return 1e-9 / nccl_estimate(links, Collective::all_gather, {ranks, 1, ranks}, Algorithm::ring, Protocol::simple)
                      .seconds_per_byte;
  };
  EXPECT_NEAR(ring(4), 371 * 3 / 7.0 * 4 / 3, 1e-6);
  EXPECT_NEAR(ring(3), 371 / 7.0 * 3 / 2, 1e-6);
}

/// 8 GPUs a node whose links are rated 100 GB/s, and so many NICs of 10, of which 9.6 count.
config::Cluster plain(config::IntraKind kind, int nics) {
  config::Cluster cluster;
  cluster.gpus_per_node = 8;
  cluster.intra.kind = kind;
  cluster.intra.nccl_gb_per_s = 100;
  cluster.inter.nics_per_node = nics;
  cluster.inter.nic_gb_per_s = 10;
  return cluster;
}

TEST(NcclTuning, EveryLineAsWorkedByHand) {
  const config::Cluster few = plain(config::IntraKind::nvlink, 4), many = plain(config::IntraKind::nvlink, 16),
                        pcie = plain(config::IntraKind::pcie, 4);
  config::Cluster slow = few;  // in the node
  slow.intra.nccl_gb_per_s = 2;
  constexpr GroupShape kOne{8, 1, 8}, kTwo{16, 2, 8}, kThree{24, 3, 8}, kApart{4, 4, 1};
  constexpr auto kTree = Algorithm::tree, kRing = Algorithm::ring, kSwitch = Algorithm::nvls,
                 kSwitches = Algorithm::nvls_tree;
  constexpr auto kLl = Protocol::ll, kLl128 = Protocol::ll128, kSimple = Protocol::simple;
  constexpr auto kGather = Collective::all_gather, kReduce = Collective::all_reduce, kCast = Collective::broadcast;
  struct Row {
    const config::Cluster& cluster;
    Algorithm algorithm;
    Protocol protocol;
    Collective collective;
    GroupShape shape;
    double latency_us, gb_per_s;
  };
  for (const Row& row : std::initializer_list<Row>{
           // Up and down 7 links and log2 of the nodes. In a node 0.85 of 0.92 of 100 GB/s; of two the NICs count
           // twice.
           {few, kTree, kSimple, kReduce, kOne, 8.4 + 2 * 7 * 4.0, 92 * 0.85 / 2},
           {few, kTree, kLl, kReduce, kOne, 6.8 + 2 * 7 * 0.6, 92 / 3.8 * 0.85 / 2},
           {few, kTree, kLl128, kReduce, kOne, 14 + 2 * 7 * 1.25, 92 * 7 / 9.0 * 0.85 / 2},
           {pcie, kTree, kLl, kReduce, kOne, 6.8 + 2 * 7 * 1.0, 92 / 3.8 * 0.85 / 2},
           {few, kTree, kSimple, kReduce, kTwo, 8.4 + 2 * (7 * 4.0 + 14), 76.8 * 0.92 / 2},
           {few, kTree, kLl, kReduce, kTwo, 6.8 + 2 * (7 * 0.6 + 5), 76.8 * 0.92 / 3.8 / 2},
           {few, kTree, kLl128, kReduce, kTwo, 14 + 2 * (7 * 1.25 + 8.5), 76.8 * 0.92 * 120 / 128 / 2},
           {few, kTree, kSimple, kReduce, kThree, 8.4 + 2 * (7 * 4.0 + 14), 38.4 * 0.92 / 2},
           {many, kTree, kLl, kReduce, kTwo, 6.8 + 2 * (7 * 0.6 + 5), 92 / 3.8 / 2},
           {many, kTree, kLl, kReduce, kThree, 6.8 + 2 * (7 * 0.6 + 5), 20.4 / 2},
           {few, Algorithm::pat, kSimple, kGather, {16, 16, 1}, 8 + 4 * 14 / 3.5 + 2.8 * 16, 4.8 * 0.75},
           // A switch: twice 0.85 of 15/16 of 100 GB/s.
           {few, kSwitch, kSimple, kReduce, kOne, 25, 159.375 * 8 / 14},
           {few, kSwitches, kSimple, kReduce, kTwo, 25 + 2 * 20.9, 2 * 38.4 * 16 / 30},
           {few, kSwitches, kSimple, kReduce, kThree, 25 + 2 * 20.9, 38.4 * 24 / 46},
           {many, kSwitches, kSimple, kReduce, kTwo, 25 + 2 * 20.9, 159.375 * 16 / 30},
           {few, kRing, kSimple, kGather, kTwo, 8.4 + 14 * 3.4 + 14, 38.4 * 16 / 15},
           {few, kRing, kLl128, kGather, kTwo, 14 + 14 * 1.9 + 4, 0.92 * 38.4 * 16 / 15},
           {few, kRing, kLl, kGather, kOne, 6.6 + 7 * 0.6, 38 * 8 / 7.0},
           {few, kRing, kLl, kGather, kTwo, 6.6 + 14 * 1.0 + 2.7, 19.2 * 16 / 15},
           {many, kRing, kLl, kGather, kTwo, 6.6 + 14 * 1.0 + 2.7, 39.0 * 16 / 15},
           {many, kRing, kLl, kGather, kThree, 6.6 + 21 * 1.0 + 2 * 2.7, 20.4 * 24 / 23},
           {few, kRing, kSimple, kReduce, kOne, 8.4 + 14 * 3.4, 100 * 8 / 14.0},
           {few, kRing, kSimple, kReduce, kTwo, 1.4 * (8.4 + 2 * (14 * 3.4 + 14)), 38.4 * 16 / 30},
           {few, kRing, kLl, kReduce, kTwo, 6.6 + 2 * (14 * 1.0 + 2.7), 19.2 * 16 / 30},
           {few, kRing, kSimple, kCast, kOne, 8.4 + 7 * 3.4, 100},
           {pcie, kRing, kSimple, kGather, kOne, 8.4 + 7 * 5.7, 100 * 8 / 7.0},
           {slow, kRing, kSimple, kGather, kApart, 8.4 + 3 * 14, 4.8 * 4 / 3},
           {few, kRing, kLl, kGather, kApart, 6.6 + 3 * 5.0, 2.4 * 4 / 3}}) {
    const NcclEstimate estimate = nccl_estimate(row.cluster, row.collective, row.shape, row.algorithm, row.protocol);
    const std::string what =
        fmt::format("{} {} of {}", to_string(row.algorithm), to_string(row.protocol), row.shape.ranks);
    EXPECT_NEAR(estimate.latency_s * 1e6, row.latency_us, 1e-9 * row.latency_us) << what;
    EXPECT_NEAR(1e-9 / estimate.seconds_per_byte, row.gb_per_s, 1e-9 * row.gb_per_s) << what;
  }
}

/// Bits of `has`: LL, LL128 and Simple over NVLink, the same over PCIe; of `offers`: the collectives in their order.
TEST(NcclTuning, WhatNcclHasAndConsiders) {
  const config::Cluster nvlink = plain(config::IntraKind::nvlink, 8), pcie = plain(config::IntraKind::pcie, 8);
  struct Row {
    Algorithm algorithm;
    int has;
    bool offers, offers_all_reduce;
  };
  for (const Row& row : {Row{Algorithm::ring, 0b111101, true, true},
                         {Algorithm::tree, 0b111101, false, true},
                         {Algorithm::pat, 0b001001, true, true},
                         {Algorithm::nvls, 0b001001, true, true},
                         {Algorithm::nvls_tree, 0b001001, true, true},
                         {Algorithm::hierarchical, 0, false, false},
                         {Algorithm::direct, 0, false, false},
                         {Algorithm::automatic, 0, false, false},
                         {Algorithm::symmetric, 0, false, false},
                         {Algorithm::copy_engine, 0, false, false}}) {
    int has = 0;
    for (const config::Cluster& cluster : {nvlink, pcie}) {
      for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
        has = 2 * has + static_cast<int>(nccl_has(cluster, row.algorithm, protocol));
      }
    }
    EXPECT_EQ(has, row.has) << to_string(row.algorithm);
    for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      EXPECT_EQ(nccl_offers(row.algorithm, collective),
                collective == Collective::all_reduce ? row.offers_all_reduce : row.offers)
          << to_string(row.algorithm);
    }
  }
}

/// NCCL's sym_kernels.cc worked out beside the program: the kernel with flags where bytes are few, the switch's else.
TEST(NcclTuning, SymmetricKernelsAsItsFormulasGiveThem) {
  config::Cluster hopper = plain(config::IntraKind::nvswitch, 8), blackwell = hopper;
  hopper.intra.peak_gb_per_s = 899;
  blackwell.intra.peak_gb_per_s = 900;
  constexpr auto kGather = Collective::all_gather, kScatter = Collective::reduce_scatter,
                 kReduce = Collective::all_reduce;
  constexpr double kKi = 1024, kMi = 1024 * kKi, kGi = 1024 * kMi;
  struct Row {
    const config::Cluster& cluster;
    Collective collective;
    int ranks;
    double bytes, latency_us, transfer_us;
    int ctas;
  };
  for (const Row& row : std::initializer_list<Row>{{hopper, kGather, 8, 64, 4.5, 0.316258402, 1},
                                                   {hopper, kGather, 8, 64 * kKi, 4.5, 1.20156542, 7},
                                                   {hopper, kScatter, 4, kMi, 7.8, 1.58236188, 4},
                                                   {hopper, kScatter, 8, 256 * kKi, 7.8, 0.753475973, 1},
                                                   {hopper, kGather, 8, kGi, 7.8, 2809.25406, 2},
                                                   {hopper, kGather, 4, kGi, 7.8, 2407.7892, 4},
                                                   {hopper, kReduce, 4, 4 * kKi, 4.5, 0.544152548, 3},
                                                   {hopper, kReduce, 8, 4 * kKi, 4.5, 0.730155346, 4},
                                                   {hopper, kReduce, 8, kMi, 7.8, 1.64534466, 1},
                                                   {hopper, kReduce, 4, kGi, 7.8, 2606.64263, 3},
                                                   {blackwell, kGather, 8, 64 * kKi, 8.5, 0.856533661, 7},
                                                   {blackwell, kScatter, 8, 4 * kKi, 11, 0.500097063, 1},
                                                   {blackwell, kScatter, 8, 64 * kKi, 13, 0.377582616, 1},
                                                   {blackwell, kGather, 4, 16 * kMi, 13, 18.7053354, 6},
                                                   {blackwell, kGather, 8, kGi, 13, 1470.33171, 3},
                                                   {blackwell, kReduce, 4, 64 * kKi, 11, 2.94754289, 10},
                                                   {blackwell, kReduce, 8, 64 * kKi, 19.5, 0.357682445, 1},
                                                   {blackwell, kReduce, 8, kGi, 19.5, 1124.18371, 3}}) {
    const SymmetricEstimate estimate = nccl_symmetric(row.cluster, row.collective, row.bytes, row.ranks);
    const std::string what = fmt::format("{} bytes of {}", row.bytes, row.ranks);
    EXPECT_NEAR(estimate.latency_s * 1e6, row.latency_us, 1e-9) << what;
    EXPECT_NEAR(estimate.transfer_s * 1e6, row.transfer_us, 1e-8 * row.transfer_us) << what;
    EXPECT_EQ(estimate.ctas, row.ctas) << what;
  }
}

}  // namespace
}  // namespace fsdpbench::clock
