// Stages that ranks measure in rounds, on ranks whose ops take the times that are written here.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "accept/scripted_ranks.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/stages/measure_devices.h"
#include "base/clock.h"
#include "engine/setup.h"
#include "launch/local_job.h"
#include "support/tiny_run.h"

namespace fsdpbench::app {
namespace {

using fsdpbench::testing::on_scripted_ranks;
using fsdpbench::testing::ScriptedDevice;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

using Lines = std::vector<std::string>;
using DeviceRounds = accept::DeviceRounds;

/// Times of the ops of each round of two ranks, the first of which warms up; what is measured of them on rank 0.
struct Rounded {
  DeviceRounds rates;
  Lines log;
  int rounds = 0;
  double round_s = -1;
};

Rounded rounded(const std::vector<std::int64_t>& us, const std::function<DeviceRounds(const Rounds&)>& measure,
                int rounds_left = 99, bool begins = true, bool emulated = false) {
  Rounded all;
  RankMeeting meeting(2, nullptr);
  on_scripted_ranks(2, [&](backend::RankContext& context, ScriptedDevice& device) {
    device.is_emulated = emulated;
    device.takes_us = [&us, rank = context.rank, next = std::size_t{0}](const std::string&) mutable {
      return us.at(next++) * (rank + 1);
    };
    int left = rounds_left;
    const auto begin = [&](double round_s, int rounds) {
      if (context.rank == 0) {
        all.round_s = round_s;
        all.rounds = rounds;
      }
      return begins;
    };
    DeviceRounds rates = measure({3, context, meeting, begin, [&] { return left-- > 0; }});
    if (context.rank != 0) return;
    all.rates = std::move(rates);
    all.log = device.log;
  });
  return all;
}

TEST(ScriptedDevices, ProductsAreRatedByTheMedianOfThreeInEachRound) {
  const auto products = [](const Rounds& rounds) { return measure_products(16, rounds); };
  // 2 x 16 x 16 x 16 = 8192 operations in 2, 4 and 8 us, and in twice as long.
  const std::int64_t began_ns = now_ns();
  const Rounded all = rounded({9, 9, 9, 1, 2, 99, 4, 4, 4, 9, 8, 1}, products);
  EXPECT_EQ(all.rates, (DeviceRounds{{4.096e9, 2.048e9}, {2.048e9, 1.024e9}, {1.024e9, 0.512e9}}));
  EXPECT_EQ(all.rounds, 3);
  EXPECT_GT(all.round_s, 0);
  EXPECT_LT(all.round_s, static_cast<double>(now_ns() - began_ns) * 1e-9);
  Lines expected, one{"compute gemm, timed", "  block 2 = block 0 x block 1, 16 x 16 x 16, float to float"};
  for (const char* block : {"0", "1", "2"}) {
    expected.insert(expected.end(), {"compute of 1024 B for activations", "compute clear",
                                     fmt::format("  block {} = 0, 1024 B", block)});
  }
  expected.emplace_back("synchronize");
  for (int round = 0; round < 4; ++round) {
    if (round > 0) expected.emplace_back("world: barrier");
    for (int op = 0; op < 3; ++op) expected.insert(expected.end(), one.begin(), one.end());
    expected.insert(expected.end(), {"synchronize", "settle"});
  }
  expected.insert(expected.end(), {"world: barrier", "world: barrier", "compute frees block 0", "compute frees block 1",
                                   "compute frees block 2"});
  EXPECT_THAT(all.log, ElementsAreArray(expected));
  EXPECT_TRUE(rounded({1, 1, 1}, products, 99, false).rates.empty()) << "they are not to begin";
  EXPECT_EQ(rounded(std::vector<std::int64_t>(9, 2), products, 1).rates.size(), 2U);
  EXPECT_EQ(rounded(std::vector<std::int64_t>(6, 2), products, 0).rates.size(), 1U) << "the first needs no leave";
  EXPECT_EQ(rounded(std::vector<std::int64_t>(12, 0), products).rates, DeviceRounds(3, {0, 0}))
      << "of no time, no rate";
}

TEST(ScriptedDevices, MemoryIsReadAndWritten) {
  const auto memory = [](const Rounds& rounds) { return measure_memory(4096, rounds); };
  const Rounded all = rounded({9, 9, 9, 2, 2, 2, 4, 4, 4, 8, 8, 8}, memory);
  EXPECT_EQ(all.rates, (DeviceRounds{{4.096e9, 2.048e9}, {2.048e9, 1.024e9}, {1.024e9, 0.512e9}}));
  EXPECT_EQ(std::ranges::count(all.log, "compute copy, timed"), 12);
  EXPECT_EQ(std::ranges::count(all.log, "  block 1 = 1 x block 0, 1024 elements"), 12);
  EXPECT_EQ(std::ranges::count(all.log, "compute of 4096 B for activations"), 2);
  const Rounded emulated = rounded({}, memory, 99, true, true);
  EXPECT_TRUE(emulated.rates.empty() && emulated.log.empty());
}

TEST(ScriptedDevices, ALaunchIsTimedByTheHostUntilItKnowsTheEnd) {
  const std::int64_t began_ns = now_ns();
  const Rounded all = rounded({}, measure_launches);
  const double elapsed_us = static_cast<double>(now_ns() - began_ns) * 1e-3;
  Lines expected{"compute of 4 B for activations", "compute clear", "  block 0 = 0, 4 B", "synchronize"};
  for (int round = 0; round < 4; ++round) {
    if (round > 0) expected.emplace_back("world: barrier");
    for (int launch = 0; launch < 20; ++launch) {
      expected.insert(expected.end(),
                      {"compute launch", "  block 0 = 0, 4 B", "compute records 0", "host waits for 0"});
    }
  }
  expected.insert(expected.end(), {"world: barrier", "world: barrier", "compute frees block 0"});
  EXPECT_THAT(all.log, ElementsAreArray(expected));
  ASSERT_EQ(all.rates.size(), 3U);
  for (const std::vector<double>& round : all.rates) {
    ASSERT_EQ(round.size(), 2U);
    for (const double us : round) {
      EXPECT_GT(us, 0);
      EXPECT_LT(us, elapsed_us);
    }
  }
}

TEST(ScriptedDevices, AScaleIsAsLongAsItsSlowestRank) {
  const ScaleEffort effort{
      .count = 64, .gathered = DType::bf16, .reduced = DType::f32, .iterations = 2, .link_bytes_per_s = 256};
  RankMeeting meeting(4, nullptr);
  std::vector<CollectiveRow> rows;
  Lines log;
  std::vector<std::string> stages;
  on_scripted_ranks(4, [&](backend::RankContext& context, ScriptedDevice& device) {
    // A rank's n-th iteration takes 10 n us, those of rank 2 as long again, those of rank 1 of the last scale thrice.
    device.takes_us = [rank = context.rank, next = 0](const std::string& name) mutable {
      const int n = ++next;
      return 10 * n * (rank == 2 ? 2 : rank == 1 && name == "reduce_scatter 0 1 2 3" ? 3 : 1);
    };
    std::vector<CollectiveRow> mine = measure_scales({.nodes = 1, .gpus_per_node = 4}, effort, context, meeting,
                                                     [&](const std::string& name, auto seconds) {
                                                       if (context.rank == 3)
                                                         stages.push_back(fmt::format("{}: {}", name, *seconds));
                                                       return true;
                                                     });
    if (context.rank == 0) rows = std::move(mine);
    if (context.rank == 3) log = device.log;
  });
  // A rank holds 64 elements of 4 bytes: a second; three iterations, in each of which a link carries 2 (ranks - 1)
  // times as much.
  EXPECT_THAT(stages, ElementsAre("collectives in groups of 2: 6", "collectives in groups of 4: 18"));
  Lines expected;
  for (const char* block : {"0", "1", "2"}) {  // four ranks' elements of the larger type
    expected.insert(expected.end(), {"all_gather of 1024 B for communication_buffers", "all_gather clear",
                                     fmt::format("  block {} = 0, 1024 B", block)});
  }
  expected.emplace_back("synchronize");
  for (const auto& [part, own] : {std::pair{"part 1", " + 128"}, {"part 0", " + 384"}}) {
    expected.push_back(fmt::format("world: split {} by 3", std::string(part).back()));
    for (const std::string& call :
         {fmt::format("{}: all_gather on all_gather, 64 x bfloat16, block 0{} to block 0", part, own),
          fmt::format("{}: reduce_scatter on reduce_scatter, 64 x float, block 1 to block 2", part)}) {
      expected.insert(expected.end(), {call, "synchronize", "world: barrier", call + ", timed", call + ", timed",
                                       "synchronize", "settle", "world: barrier", "world: barrier"});
    }
  }
  for (const char* block : {"0", "1", "2"}) expected.push_back(fmt::format("all_gather frees block {}", block));
  EXPECT_THAT(log, ElementsAreArray(expected));
  Lines told;
  for (const CollectiveRow& row : rows) {
    told.push_back(fmt::format("{} {} {}: {} {}, {}", to_string(row.message.op), row.message.ranks,
                               row.in_place ? "in place" : "apart", row.timing().iterations_us.at(0),
                               row.timing().iterations_us.at(1), row.timing().time_us));
    EXPECT_EQ(row.reduction.has_value(), row.message.reduces());
    EXPECT_EQ(row.timing().time_us, row.timing().scatter.mean_us);
  }
  EXPECT_THAT(told, ElementsAre("all_gather 2 in place: 20 40, 30", "reduce_scatter 2 apart: 60 80, 70",
                                "all_gather 4 in place: 100 120, 110", "reduce_scatter 4 apart: 210 240, 225"));
  EXPECT_EQ(scale_bytes(effort, 4), 3 * 1024);
}

/// Measurements of rank 0 on scripted ranks, and what its clock has to say.
struct Measured0 {
  AcceptanceMeasurements m;
  std::vector<Stage> stages;
  Lines log;  ///< of the last rank
};

/// Ranks on `hosts`; the stages of the lead are by a clock that stands still, with `left_s` on it.
struct Machine {
  std::vector<std::string> hosts;
  std::function<std::int64_t(int rank, const std::string& name, int nth)> us;
  double left_s = 1e9;
  bool emulated = false;
  config::BackendKind backend = config::BackendKind::cpu;
  std::optional<double> link_gb_per_s{};
  AcceptanceEffort effort{.matrix = 16, .device_rounds = 2, .iterations = 20, .pair_bytes = 4096, .memory_bytes = 4096};
  std::string stop{};

  engine::Setup setup() const {
    config::RunConfig config = fsdpbench::testing::tiny_decoder();
    config.mesh.ranks = static_cast<std::int64_t>(hosts.size());
    config = fsdpbench::testing::settled(config);
    config.device.backend = backend;
    config.emulate.link_gb_per_s = link_gb_per_s;
    return engine::set_up(config);
  }

  Measured0 measured() const {
    const engine::Setup set = setup();
    const int ranks = static_cast<int>(hosts.size());
    RankMeeting meeting(ranks, nullptr);
    Measured0 all;
    StageClock clock(
        left_s, [] { return 0.0; }, [](const std::string&) {});
    const AcceptanceLead lead{clock, 0, [this](const AcceptanceMeasurements&) { return stop; }, all.m};
    on_scripted_ranks(ranks, [&](backend::RankContext& context, ScriptedDevice& device) {
      const int rank = context.rank;
      const std::string& host = hosts[static_cast<std::size_t>(rank)];
      device.is_emulated = emulated;
      if (rank == 1) device.told = {{"timer", "x"}, {"collectives", "NET/IB"}};
      device.takes_us = [&, rank, times = std::map<std::string, int>{}](const std::string& name) mutable {
        return us(rank, name, times[name]++);
      };
      const RankFacts own{host,
                          {{"kernel", fmt::format("of {}", rank)}},
                          fmt::format("PCI {}", rank),
                          fmt::format("GPU-{}", rank),
                          fmt::format("mlx5_{}", rank),
                          "leaf of " + host};
      AcceptanceMeasurements of_no_use;
      measure_on_rank(set, effort, context, meeting, own, "usual", rank == 0 ? &lead : nullptr,
                      rank == 0 ? all.m : of_no_use);
      if (rank + 1 == ranks) all.log = device.log;
    });
    all.stages = clock.stages();
    return all;
  }
};

/// Times of two nodes with two ranks each. Broadcasts from the first node take 4, 16, 8 and 2 ms by rank, back twice as
/// long, and both at once 32 ms, on the second rail 64.
std::int64_t two_nodes(int rank, const std::string& name, int nth) {
  if (name == "gemm") return std::int64_t{1} << rank;
  if (name == "copy") return std::int64_t{2} << rank;
  constexpr std::int64_t kForth[]{4000, 16'000, 8000, 2000};
  if (name.starts_with("broadcast ")) return kForth[rank] * (nth % 10 < 5 ? 1 : 2);
  if (name == "all_gather 0 2") return 32'000;
  if (name == "all_gather 1 3") return 64'000;
  return 100 * (rank + 1);
}

TEST(ScriptedAcceptance, TwoNodesAreMeasuredStageByStage) {
  const Machine machine{.hosts = {"a", "a", "b", "b"}, .us = two_nodes};
  const Measured0 all = machine.measured();
  const AcceptanceMeasurements& m = all.m;
  EXPECT_EQ(m.hosts, machine.hosts);
  EXPECT_EQ(m.fingerprints.at(3), (Fingerprint{{"kernel", "of 3"}}));
  EXPECT_EQ(m.cluster.nodes, 2);
  EXPECT_EQ(m.cluster.gpus_per_node, 2);
  EXPECT_EQ(m.cluster.rails, 2);
  EXPECT_EQ(m.cluster.hosts, machine.hosts);
  EXPECT_THAT(m.cluster.devices, ElementsAre("PCI 0", "PCI 1", "PCI 2", "PCI 3"));
  EXPECT_THAT(m.cluster.uuids, ElementsAre("GPU-0", "GPU-1", "GPU-2", "GPU-3"));
  EXPECT_THAT(m.cluster.adapters, ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"));
  EXPECT_EQ(m.topology, "Slurm (SLURM_TOPOLOGY_ADDR): 2 switches");
  EXPECT_THAT(m.cluster.switches, ElementsAre("leaf of a", "leaf of b"));
  EXPECT_TRUE(m.cluster.on_processors && m.on_processors && m.computes);
  // 8192 operations, and as many bytes, in 1, 2, 4 and 8, and in 2, 4, 8 and 16 us.
  EXPECT_EQ(m.device_rates, DeviceRounds(2, {8.192e9, 4.096e9, 2.048e9, 1.024e9}));
  EXPECT_EQ(m.memory_rates, DeviceRounds(2, {4.096e9, 2.048e9, 1.024e9, 0.512e9}));
  EXPECT_TRUE(m.launch_us.empty());
  // 4.096 kB: on the first rail in 8 and 16 ms, on the second in 16 and 32; forth and back over the slower rail.
  ASSERT_EQ(m.links.one_way.size(), 2U);
  EXPECT_DOUBLE_EQ(m.links.one_way[0], 4.096 / 16'000);
  EXPECT_DOUBLE_EQ(m.links.one_way[1], 4.096 / 32'000);
  ASSERT_EQ(m.pairs.size(), 2U);
  EXPECT_THAT(m.pairs[0], ElementsAre(0, 4.096 / 16'000));
  EXPECT_THAT(m.pairs[1], ElementsAre(4.096 / 32'000, 0));
  EXPECT_THAT(m.transports, ElementsAre("usual", "NET/IB", "usual", "usual"));
  EXPECT_EQ(m.gpus.size(), 4U);
  EXPECT_EQ(m.stopped_because, "");
  Lines names;
  for (const Stage& stage : all.stages) {
    names.push_back(stage.name);
    EXPECT_FALSE(stage.skipped);
  }
  Lines expected{"inventory", "matrix products of all 4 ranks", "copies in memory of all 4 ranks",
                 "pairs of nodes: 1 measurements"};
  const double link = 192'000 * 1e-9 * 1e9;  // the mean of 256 and 128 kB/s
  const std::vector<Message> ladder = ladder_of(machine.setup());
  ASSERT_EQ(m.ladder.size(), ladder.size());
  for (std::size_t i = 0; i < ladder.size(); ++i) {
    const CollectiveRow& row = m.ladder[i];
    expected.push_back(fmt::format("{} of {}", to_string(ladder[i].op), format_bytes(ladder[i].bytes())));
    EXPECT_EQ(row.message.count, ladder[i].count);
    EXPECT_EQ(row.reduction.has_value(), ladder[i].op == backend::Collective::reduce_scatter);
    EXPECT_THAT(row.out_of_place->iterations_us, ElementsAreArray(std::vector<double>(20, 400)));
    EXPECT_THAT(row.in_place->iterations_us, ElementsAreArray(std::vector<double>(20, 400)));
    EXPECT_EQ(row.out_of_place->rank_wrong.size(), 4U) << "all elements are compared";
    EXPECT_NEAR(all.stages.at(4 + i).estimate_s.value(), 23 * 2 * 0.75 * static_cast<double>(ladder[i].bytes()) / link,
                1e-9);
  }
  expected.insert(expected.end(), {"collectives in groups of 2", "collectives in groups of 4"});
  EXPECT_EQ(names, expected);
  const auto gathers = [&](bool in_place) {  // of the first message; in place the last rank's part is the last one
    const std::string call = fmt::format("world: all_gather on all_gather, {} x float, block", ladder[0].count);
    return std::ranges::count_if(all.log, [&](const std::string& line) {
      return line.starts_with(call) && line.ends_with("timed") && (line.find(" + ") != std::string::npos) == in_place;
    });
  };
  EXPECT_EQ(gathers(false), 20);
  EXPECT_EQ(gathers(true), 20);
  ASSERT_EQ(m.scales.size(), 4U);
  EXPECT_EQ(m.scales[0].timing().iterations_us.size(), 20U);
  const double each = static_cast<double>(m.scales[0].message.part_bytes()) / link;
  EXPECT_NEAR(all.stages.back().estimate_s.value(), 2 * 3 * 21 * each, 1e-9);
  EXPECT_GT(all.stages[1].estimate_s.value(), 0);
  EXPECT_GT(all.stages[3].estimate_s.value(), 0);
  // On its first rail a rank's partner is of the other node; alone it only meets the others.
  EXPECT_EQ(std::ranges::count_if(all.log, [](const std::string& line) { return line == "world: split 1 by 3"; }), 3)
      << "for two measurements of the one pair, and for groups of two";
  EXPECT_EQ(std::ranges::count(all.log, "all_gather of 8192 B for communication_buffers"), 2) << "what both have";
  EXPECT_EQ(std::ranges::count(all.log, "part 1: barrier"), 2 * 3) << "once in each direction, and for both";
  const std::string call = "part 1: broadcast on all_gather, 1024 x float, block ";
  EXPECT_EQ(std::ranges::count_if(all.log, [&](const std::string& line) { return line.starts_with(call); }), 2 * 2 * 6)
      << "one more than is timed";
}

TEST(ScriptedAcceptance, CollectivesTakeThreeTenthsOfWhatIsLeft) {
  Machine machine{.hosts = {"a", "a", "b", "b"}, .us = two_nodes};
  double each_s = 0;  // in both arrangements three quarters of each message go over each link
  for (const Message& message : ladder_of(machine.setup()))
    each_s += 1.5 * static_cast<double>(message.bytes()) / 192e3;
  machine.left_s = 41 * each_s;
  const Measured0 all = machine.measured();
  ASSERT_FALSE(all.m.ladder.empty());
  EXPECT_EQ(all.m.ladder.front().in_place->iterations_us.size(), 12U);
  EXPECT_EQ(all.m.scales.front().timing().iterations_us.size(), 12U);
  machine.left_s = 0;
  EXPECT_TRUE(machine.measured().m.ladder.empty());
}

TEST(ScriptedAcceptance, WhoStopsItMeasuresNothingElse) {
  const Machine machine{.hosts = {"a", "a"}, .us = two_nodes, .stop = "too few came"};
  const Measured0 all = machine.measured();
  EXPECT_EQ(all.m.stopped_because, "too few came");
  EXPECT_EQ(all.stages.size(), 1U);
  EXPECT_TRUE(all.m.device_rates.empty() && all.m.ladder.empty() && all.m.scales.empty() && all.m.transports.empty());
}

TEST(ScriptedAcceptance, GpusLaunchAndEmulatedOnesMoveNothing) {
  const auto any = [](int, const std::string&, int) { return std::int64_t{100}; };
  const Measured0 gpus = Machine{.hosts = {"a", "a"}, .us = any, .backend = config::BackendKind::cuda}.measured();
  EXPECT_FALSE(gpus.m.on_processors || gpus.m.cluster.on_processors || gpus.m.shares_cores);
  EXPECT_EQ(gpus.m.launch_us.size(), 2U);
  EXPECT_EQ(gpus.stages.at(3).name, "launches of kernels");
  EXPECT_EQ(gpus.stages.at(4).name, "pairs of ranks: 1 measurements") << "two are a pair";
  EXPECT_EQ(gpus.m.topology, "");
  EXPECT_TRUE(gpus.m.cores_move_bytes);
  const Measured0 emulated = Machine{.hosts = {"a", "a"}, .us = any, .emulated = true, .link_gb_per_s = 1}.measured();
  EXPECT_FALSE(emulated.m.cores_move_bytes);
  EXPECT_FALSE(emulated.m.computes);
  EXPECT_TRUE(emulated.m.memory_rates.empty() && emulated.m.launch_us.empty());
  EXPECT_FALSE(emulated.m.ladder.at(0).in_place->wrong) << "there is nothing to compare";
  const std::size_t cores = std::min(16U, std::thread::hardware_concurrency());
  EXPECT_FALSE((Machine{.hosts = std::vector<std::string>(cores, "a"), .us = any}.measured().m.shares_cores));
  const Measured0 one = Machine{.hosts = {"a"}, .us = any}.measured();
  EXPECT_TRUE(one.m.pairs.empty());
  EXPECT_EQ(one.m.ladder.at(0).in_place->iterations_us.size(), 20U) << "nobody knows what a link carries";
}

/// Twelve ranks. Between the first three and the others an op takes twice as long; from 5 to 8 four times, and when it
/// is measured again half as long again.
TEST(ScriptedAcceptance, SlowPairsShowGroupsAndTheFirstMeasurementOfAPairIsKept) {
  const auto apart = [](int a, int b) { return (a < 3) != (b < 3); };
  const auto us = [&](int, const std::string& name, int nth) -> std::int64_t {
    std::istringstream words(name);
    std::string op;
    int a = 0, b = 0, more = 0;
    if (!(words >> op >> a >> b) || words >> more) return 100;
    if (a == 5 && b == 8) return nth < (op == "broadcast" ? 20 : 10) ? 4000 : 6000;
    return apart(a, b) ? 2000 : 1000;
  };
  const Measured0 all = Machine{.hosts = std::vector<std::string>(12, "a"), .us = us}.measured();
  const AcceptanceMeasurements& m = all.m;
  EXPECT_EQ(all.stages.at(3).name, "pairs of ranks: 66 measurements");
  for (int a = 0; a < 12; ++a) {
    for (int b = 0; b < 12; ++b) {
      const double ms = std::min(a, b) == 5 && std::max(a, b) == 8 ? 4 : apart(a, b) ? 2 : 1;
      EXPECT_DOUBLE_EQ(m.pairs[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)],
                       a == b ? 0 : 4.096 / (1000 * ms))
          << a << ' ' << b;
    }
  }
  EXPECT_GT(m.links.rounds, 11) << "the slow link was measured again";
  ASSERT_FALSE(m.links.inferred.empty());
  EXPECT_EQ(m.cluster.switch_of, m.links.inferred);
}

/// Who has no partner in a round only meets the others.
TEST(ScriptedAcceptance, OfThreeRanksOneIsAlone) {
  const auto us = [](int rank, const std::string& name, int) -> std::int64_t {
    return name.starts_with("broadcast ") ? 1000 * (rank + 1) : 100;
  };
  const Measured0 all = Machine{.hosts = {"a", "a", "a"}, .us = us}.measured();
  EXPECT_THAT(all.m.pairs,
              ElementsAre(ElementsAre(0, 4.096 / 2000, 4.096 / 3000), ElementsAre(4.096 / 2000, 0, 4.096 / 3000),
                          ElementsAre(4.096 / 3000, 4.096 / 3000, 0)));
  EXPECT_GE(std::ranges::count(all.log, "world: split 3 by 2"), 1) << "beyond the pair of the round";
}

TEST(ScriptedAcceptance, MemoryIsThatOfAllStages) {
  Machine machine{.hosts = {"a", "a", "a", "a"}, .us = {}};
  machine.effort = {.matrix = 16, .device_rounds = 1, .iterations = 1, .pair_bytes = 8192, .memory_bytes = 2048};
  engine::Setup setup = machine.setup();
  setup.config.device.backend = config::BackendKind::cuda;
  setup.config.nccl.register_buffers = config::NcclRegister::local;
  std::int64_t largest = 0;
  for (const Message& message : ladder_of(setup)) largest = std::max(largest, message.bytes());
  std::map<std::int64_t, int> shards;
  for (const plan::Unit& unit : setup.plan.units) ++shards[(unit.layout.gathered_numel() + 3) / 4];
  shards.erase(0);
  const std::int64_t usual = std::ranges::max_element(shards, {}, [](const auto& s) { return s.second; })->first;
  const auto rounded = [](std::int64_t bytes) { return (bytes + 511) / 512 * 512; };
  const backend::BackendOptions options = acceptance_options(setup, machine.effort, nullptr);
  EXPECT_EQ(options.pool_bytes, 2 * rounded(largest) + 3 * 1024 + 2 * 2048 + 2 * 16'384 + 3 * rounded(4 * 4 * usual));
  EXPECT_EQ(options.category_bytes, CategoryBytes{}) << "none lies apart, though the training registers some";
  EXPECT_EQ(options.ranks, 4);
}

TEST(ScriptedAcceptance, ProcessesTellTheirClocksAndHowTheyTalk) {
  config::RunConfig config = fsdpbench::testing::tiny_decoder();
  config.mesh.ranks = 2;
  config = fsdpbench::testing::settled(config);
  const engine::Setup setup = engine::set_up(config);
  AcceptanceMeasurements m;
  StageClock clock(
      1e9, [] { return 0.0; }, [](const std::string&) {});
  const AcceptanceLead lead{clock, 0, [](const AcceptanceMeasurements&) { return std::string(); }, m};
  const AcceptanceEffort effort{
      .matrix = 16, .device_rounds = 1, .iterations = 2, .pair_bytes = 4096, .memory_bytes = 4096};
  launch::testing::run_job(2, [&](launch::Session& session, int rank) {
    measure_acceptance(setup, effort, &session, rank == 0 ? &lead : nullptr);
  });
  EXPECT_EQ(m.clocks.size(), 2U);
  EXPECT_EQ(m.ready_s.size(), 2U);
  for (const double ready_s : m.ready_s) EXPECT_GT(ready_s, 0);
  EXPECT_THAT(m.transports, ::testing::Each("through shared memory"));
  EXPECT_EQ(m.hosts.size(), 2U);
}

}  // namespace
}  // namespace fsdpbench::app
