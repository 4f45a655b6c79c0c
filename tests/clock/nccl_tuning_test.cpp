#include "clock/nccl_tuning.h"

#include <gtest/gtest.h>

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

TEST(NcclTuning, OtherLatenciesAsItsFormulasGiveThem) {
  constexpr GroupShape kOneNode{8, 1, 8}, kEight{64, 8, 8}, kSparse{64, 64, 1};
  constexpr auto kReduce = Collective::all_reduce;
  EXPECT_NEAR(latency_us("dgx-h100", kOneNode, Algorithm::ring, Protocol::ll), 6.6 + 7 * 0.6, 1e-9) << "no network";
  EXPECT_NEAR(latency_us("pcie-h100", kOneNode, Algorithm::ring, Protocol::simple), 8.4 + 7 * 5.7, 1e-9);
  EXPECT_NEAR(latency_us("dgx-h100", kSparse, Algorithm::ring, Protocol::ll), 6.6 + 63 * 5.0, 1e-9)
      << "one GPU a node: the tree's step";
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::tree, Protocol::ll128, kReduce), 14 + 2 * (7 * 1.25 + 3 * 8.5),
              1e-9);
  EXPECT_NEAR(latency_us("dgx-h100", kSparse, Algorithm::pat, Protocol::simple), 8 + 6 * 14 / 3.5 + 2.8 * 64, 1e-9);
  EXPECT_NEAR(latency_us("dgx-h100", kOneNode, Algorithm::nvls, Protocol::simple, kReduce), 25, 1e-9);
  EXPECT_NEAR(latency_us("dgx-h100", kEight, Algorithm::nvls_tree, Protocol::simple, kReduce), 25 + 6 * 20.9, 1e-9);
}

TEST(NcclTuning, RatesAreTheLinksByProtocol) {
  const config::Cluster h100 = load_cluster("dgx-h100");
  const auto gb_per_s = [&](const GroupShape& shape, Algorithm algorithm, Protocol protocol, Collective collective) {
    return 1e-9 / nccl_estimate(h100, collective, shape, algorithm, protocol).seconds_per_byte;
  };
  constexpr GroupShape kOneNode{8, 1, 8}, kFour{32, 4, 8};
  constexpr auto kRing = Algorithm::ring;
  constexpr auto kGather = Collective::all_gather, kReduce = Collective::all_reduce;
  EXPECT_NEAR(gb_per_s(kOneNode, kRing, Protocol::simple, kGather), 371 * 8 / 7.0, 1e-6);
  EXPECT_NEAR(gb_per_s(kOneNode, kRing, Protocol::simple, kReduce), 371 * 8 / 14.0, 1e-6);
  EXPECT_NEAR(gb_per_s(kOneNode, kRing, Protocol::ll128, kGather), 0.92 * 371 * 8 / 7.0, 1e-6);
  EXPECT_NEAR(gb_per_s(kOneNode, kRing, Protocol::ll, kGather), 141 * 8 / 7.0, 1) << "capped at 141 on one Hopper node";
  EXPECT_NEAR(gb_per_s(kFour, kRing, Protocol::ll, kGather), 20.4 * 32 / 31, 1e-6) << "what a processor posts";
  EXPECT_NEAR(gb_per_s({16, 2, 8}, kRing, Protocol::ll, kGather), 39.0 * 16 / 15, 1e-6) << "to one other node, more";
  EXPECT_NEAR(gb_per_s({24, 3, 8}, kRing, Protocol::ll, kGather), 20.4 * 24 / 23, 1e-6);
  EXPECT_NEAR(gb_per_s(kFour, Algorithm::tree, Protocol::simple, kReduce), 371 * 0.92 / 2, 1e-6);
  EXPECT_NEAR(gb_per_s(kOneNode, Algorithm::nvls, Protocol::simple, kReduce), 371 * 2 * 0.85 * 15 / 16 * 8 / 14, 1e-6);
  EXPECT_NEAR(gb_per_s({16, 2, 8}, Algorithm::nvls_tree, Protocol::simple, kReduce), 371 * 2 * 0.85 * 15 / 16 * 16 / 30,
              1e-6)
      << "two nodes exchange once";
  EXPECT_NEAR(gb_per_s(kFour, Algorithm::nvls_tree, Protocol::simple, kReduce), 371 * 32 / 62.0, 1e-6);
  EXPECT_NEAR(gb_per_s({16, 2, 8}, Algorithm::tree, Protocol::simple, kReduce), 371 * 0.92 / 2, 1e-6)
      << "twice the NICs would be more than the links of a node";
  const config::Cluster a100 = load_cluster("dgx-a100");
  EXPECT_LT(nccl_estimate(a100, kReduce, {16, 2, 8}, Algorithm::tree, Protocol::simple).seconds_per_byte,
            nccl_estimate(a100, kReduce, {24, 3, 8}, Algorithm::tree, Protocol::simple).seconds_per_byte)
      << "two nodes are rated by the links within, three by the NICs";
  EXPECT_NEAR(gb_per_s({4, 4, 1}, kRing, Protocol::simple, kGather), 48 * 4 / 3.0, 1e-6) << "one NIC a GPU";
  config::Cluster links = h100;  // 7 of a GPU: of four GPUs each uses three, of three they are one ring
  links.intra.kind = config::IntraKind::xgmi;
  const auto ring = [&](int ranks) {
    return 1e-9 / nccl_estimate(links, kGather, {ranks, 1, ranks}, kRing, Protocol::simple).seconds_per_byte;
  };
  EXPECT_NEAR(ring(4), 371 * 3 / 7.0 * 4 / 3, 1e-6);
  EXPECT_NEAR(ring(3), 371 / 7.0 * 3 / 2, 1e-6);
}

}  // namespace
}  // namespace fsdpbench::clock
