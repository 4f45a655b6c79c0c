#include "engine/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "clock/calibration.h"
#include "clock/cluster_times.h"
#include "clock/op_times.h"
#include "config/cluster.h"

#include "account/run_metrics.h"
#include "support/random_config.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;

account::RunMetrics metrics_of(const RunConfig& asked, const Measurement& m) {
  const engine::Setup p = set_up(testing::settled(asked));
  return account::run_metrics({p.schedules, m.traces, m.slowest_ns}, p.plan.groups, 1);
}

/// Both link and computation emulated, so that nothing is computed and no bytes move.
RunConfig emulated(RunConfig c, double tflops, double gb_per_s) {
  c.train.steps = 2;
  c.train.warmup = 1;
  c.emulate.compute_tflops = tflops;
  c.emulate.link_gb_per_s = gb_per_s;
  return c;
}

TEST(Simulate, NeedsTheMemoryOfARunToTheByteOnAnyPolicy) {
  std::mt19937 random(20261122);
  for (int round = 0; round < FSDPBENCH_MEMORY_POLICIES; ++round) {
    SCOPED_TRACE(round);
    RunConfig c = emulated(testing::random_config(random), 1e4, 1e4);
    std::mt19937 aside(static_cast<unsigned>(round));
    if (round % 6 == 0 && c.mesh.ranks <= 4) testing::split_layers(aside, c);
    const PoolStatistics planned = set_up(testing::settled(c)).memory;  // what explain shows
    const Measurement simulated = testing::simulate_tiny(c);
    const Measurement ran = testing::run_tiny(c);
    for (const PoolStatistics& rank : simulated.memory) EXPECT_EQ(rank, planned);
    for (const PoolStatistics& rank : ran.memory) {
      ASSERT_EQ(rank.peak_occupied, planned.peak_occupied);
      ASSERT_EQ(rank.peak_occupied_total, planned.peak_occupied_total);
      ASSERT_EQ(rank.reserved, planned.reserved);
    }
    const PoolStatistics on_host = set_up(testing::settled(c)).host_memory;
    for (const PoolStatistics& rank : ran.host_memory) {
      ASSERT_EQ(rank.peak_occupied, on_host.peak_occupied);
      ASSERT_EQ(rank.reserved, on_host.reserved);
    }
    // And the samples of the pool over a step are the same, one after another.
    const auto &mine = simulated.traces.front().memory, &its = ran.traces.front().memory;
    ASSERT_EQ(mine.size(), its.size());
    for (std::size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine[i].live, its[i].live) << i;
    EXPECT_EQ(simulated.wire_bytes, ran.wire_bytes);
  }
}

/// Emulated work takes at least as long as modelled, whatever else the machine does.
TEST(Simulate, ARealRunIsNeverFaster) {
  const RunConfig base = [] {
    RunConfig c = emulated(testing::tiny_decoder(), 1e-4, 0.01);
    c.emulate.link_latency_us = 100;
    return c;
  }();
  std::vector<RunConfig> cases(8, base);
  cases[1].inject.slow_rank = 2;
  cases[1].inject.slow_rank_factor = 3;
  cases[2].inject.slow_link_rank = 1;
  cases[2].inject.slow_link_factor = 3;
  cases[3].inject.host_delay_us = 300;
  cases[4].inject.delay_lane = "copy";
  cases[4].inject.delay_us = 700;
  cases[5].fsdp.separate_reduce_scatter_comm = true;  // two transfers share the link
  cases[6].mesh = {4, 2, 2};
  cases[6].fsdp.strategy = config::Strategy::hybrid_shard;
  cases[7].fsdp.cpu_offload = config::CpuOffload::all;
  cases[7].emulate.pcie_gb_per_s = 0.005;
  cases[7].emulate.pcie_latency_us = 50;
  const double plain = metrics_of(base, testing::simulate_tiny(base)).step_ms.median;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const double modelled = metrics_of(cases[i], testing::simulate_tiny(cases[i])).step_ms.median;
    const Measurement ran = testing::run_tiny(cases[i]);
    EXPECT_GE(metrics_of(cases[i], ran).step_ms.min, 0.999 * modelled);
    if ((i >= 1 && i <= 4) || i == 7) {
      EXPECT_GT(modelled, 1.02 * plain);  // else the case says nothing
    }
  }
}

TEST(Simulate, AnyRankMayBeTheSlowOne) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.inject.slow_rank_factor = 3;
  c.inject.slow_link_factor = 2;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    c.inject.slow_rank = c.inject.slow_link_rank = static_cast<std::int64_t>(rank);
    const clock::OpTimes times = simulated_times(set_up(testing::settled(c)), nullptr);
    std::vector<double> computation(4, 1), links(4, 1);
    computation[rank] = 3;
    links[rank] = 2;
    EXPECT_EQ(times.compute_factor, computation);
    EXPECT_EQ(times.link_factor, links);
  }
}

TEST(Simulate, EachSettingOfItsFrameworkChangesItsOpsOnACluster) {
  using config::Simulate;
  const config::Cluster cluster = config::load_cluster("dgx-h100");
  const auto ops_ns = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig c = testing::tiny_decoder();
    c.fsdp.param_dtype = DType::bf16;
    c.simulate.loss = Simulate::Loss::referenced;
    change(c);
    const clock::OpTimes times = simulated_times(set_up(testing::settled(c)), &cluster);
    double sum = 0;
    for (const clock::OpCost& cost : times.steps.back()) sum += cost.run_ns + cost.link_ns;
    return sum;
  };
  const double plain = ops_ns([](RunConfig&) {});
  const auto registered = [](RunConfig& c) { c.nccl.register_buffers = config::NcclRegister::window; };
  EXPECT_LT(ops_ns([](RunConfig& c) { c.simulate.compiled = true; }), plain);
  EXPECT_GT(ops_ns([](RunConfig& c) { c.simulate.fused_optimizer = false; }), plain);
  EXPECT_NE(ops_ns([](RunConfig& c) { c.simulate.attention = Simulate::Attention::flash1; }), plain);
  EXPECT_GT(ops_ns([](RunConfig& c) { c.simulate.efficiency.value = 0.01; }), plain);
  EXPECT_LT(ops_ns([](RunConfig& c) { c.simulate.loss = Simulate::Loss::fused; }), plain);
  EXPECT_EQ(ops_ns([](RunConfig& c) { c.simulate.loss = Simulate::Loss::chunked; }),
            ops_ns([](RunConfig& c) { c.simulate.loss = Simulate::Loss::fused; }));
  for (const auto loss : {Simulate::Loss::eager, Simulate::Loss::referenced_fp32}) {
    EXPECT_EQ(ops_ns([&](RunConfig& c) { c.simulate.loss = loss; }), plain) << "other memory, the same kernels";
  }
  EXPECT_NE(ops_ns([](RunConfig& c) { c.simulate.collectives = Simulate::Collectives::direct; }), plain);
  EXPECT_NE(ops_ns(registered), plain);
  EXPECT_NE(ops_ns([&](RunConfig& c) {
              registered(c);
              c.nccl.cta_policy = config::CtaPolicy::zero;
            }),
            ops_ns(registered));
}

TEST(Simulate, TellsTheClusterWhatTheConfigurationSays) {
  using config::Simulate;
  using Loss = Simulate::Loss;
  const config::Cluster cluster = config::load_cluster("dgx-h100");
  struct Case {
    std::function<void(RunConfig&)> change;
    std::function<void(clock::ClusterUse&)> expected;
  };
  const auto window = [](RunConfig& c) { c.nccl.register_buffers = config::NcclRegister::window; };
  const std::vector<Case> cases{
      {[](RunConfig&) {}, [](clock::ClusterUse&) {}},
      {[](RunConfig& c) { c.simulate.compiled = true; }, [](clock::ClusterUse& u) { u.framework.compiled = true; }},
      {[](RunConfig& c) { c.simulate.loss = Loss::fused; },
       [](clock::ClusterUse& u) { u.framework.fused_loss = true, u.framework.eager_loss = false; }},
      {[](RunConfig& c) { c.simulate.loss = Loss::eager; }, [](clock::ClusterUse&) {}},
      {[](RunConfig& c) { c.simulate.loss = Loss::chunked, c.simulate.compiled = true; },
       [](clock::ClusterUse& u) {
         u.framework.fused_loss = true, u.framework.eager_loss = false, u.framework.compiled = true;
       }},
      {[](RunConfig& c) { c.simulate.loss = Loss::referenced_fp32, c.simulate.compiled = true; },
       [](clock::ClusterUse& u) { u.framework.compiled = true; }},
      {[](RunConfig& c) { c.simulate.loss = Loss::referenced, c.simulate.compiled = true; },
       [](clock::ClusterUse& u) { u.framework.compiled = true; }},
      {[](RunConfig& c) { c.simulate.fused_optimizer = false; },
       [](clock::ClusterUse& u) { u.framework.fused_optimizer = false; }},
      {[](RunConfig& c) { c.simulate.attention = Simulate::Attention::current; },
       [](clock::ClusterUse& u) { u.framework.attention = clock::Attention::current; }},
      {[](RunConfig& c) { c.simulate.efficiency.value = 0.5; },
       [](clock::ClusterUse& u) { u.framework.efficiency = 0.5; }},
      {[](RunConfig& c) { c.simulate.collectives = Simulate::Collectives::tree; },
       [](clock::ClusterUse& u) { u.algorithm = clock::Algorithm::tree; }},
      {[](RunConfig& c) { c.simulate.placement = Simulate::Placement::spread, c.mesh.ranks = 16; },
       [](clock::ClusterUse& u) { u.placement = clock::Placement::spread; }},
      {window, [](clock::ClusterUse& u) { u.algorithm = clock::Algorithm::symmetric; }},
      {[&](RunConfig& c) { window(c), c.nccl.cta_policy = config::CtaPolicy::zero; },
       [](clock::ClusterUse& u) { u.algorithm = clock::Algorithm::copy_engine; }},
      {[&](RunConfig& c) { window(c), c.simulate.collectives = Simulate::Collectives::ring; },
       [](clock::ClusterUse& u) { u.algorithm = clock::Algorithm::ring; }},
      {[](RunConfig& c) { c.nccl.register_buffers = config::NcclRegister::local; }, [](clock::ClusterUse&) {}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    RunConfig c = testing::tiny_decoder();
    c.fsdp.param_dtype = DType::bf16;
    c.simulate.loss = Loss::referenced;
    cases[i].change(c);
    const engine::Setup setup = set_up(testing::settled(c));
    for (const bool contention : {false, true}) {
      clock::ClusterUse use;
      use.framework.eager_loss = true;
      use.framework.attention = clock::Attention::flash2;
      use.contention = contention;
      cases[i].expected(use);
      const clock::OpTimes is = simulated_times(setup, &cluster, contention);
      const clock::OpTimes expected = clock::cluster_times(setup, cluster, use);
      EXPECT_EQ(is.choices, expected.choices) << i;
      ASSERT_EQ(is.steps.size(), expected.steps.size());
      for (std::size_t step = 0; step < is.steps.size(); ++step) {
        for (std::size_t op = 0; op < is.steps[step].size(); ++op) {
          const clock::OpCost &mine = is.steps[step][op], &its = expected.steps[step][op];
          ASSERT_EQ(std::pair(mine.run_ns, mine.link_ns), std::pair(its.run_ns, its.link_ns)) << i << ", op " << op;
        }
      }
    }
  }
}

TEST(Simulate, AddsItsHostToWhatTheHostTakes) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  const clock::HostCosts plain = simulated_times(set_up(testing::settled(c)), nullptr).host;
  c.simulate.host_issue_us = 1.5;
  c.simulate.launch_us = 2;
  c.simulate.wake_us = 3.0004;
  const clock::HostCosts host = simulated_times(set_up(testing::settled(c)), nullptr).host;
  EXPECT_EQ(host.issue_ns, plain.issue_ns + 1500);
  EXPECT_EQ(host.launch_ns, plain.launch_ns + 2000);
  EXPECT_EQ(host.wake_ns, plain.wake_ns + 3000);
  EXPECT_EQ(host.start_ns, 1e6);
}

/// Ten million nanoseconds of six ranks in step 3, op 4.
std::vector<double> drawn(const clock::Jitter& jitter) {
  std::vector<double> by_rank(6, 1e7);
  jitter.apply(3, 4, 0, true, by_rank);
  return by_rank;
}

TEST(Simulate, DrawsFromTheDistributionsThatItsConfigurationNames) {
  using clock::Jitter;
  const std::vector<std::vector<double>> measured{{0.5, 2, 4}};
  clock::OpTimes undrawn;
  undrawn.measured_scatter = measured;
  struct Case {
    std::function<void(config::Simulate&)> change;
    Jitter expected;
  };
  for (const Case& c :
       {Case{[](config::Simulate&) {}, Jitter()},
        {[](config::Simulate& s) { s.jitter_pct = 5; }, Jitter(7, {Jitter::lognormal(0.05)})},
        {[](config::Simulate& s) { s.pause_chance = 0.5, s.pause_us = 250; },
         Jitter(7, {Jitter::lognormal(0)}, 0.5, 250'000)},
        {[](config::Simulate& s) { s.measured_jitter = true; }, Jitter(7, measured)},
        {[](config::Simulate& s) { s.measured_jitter = true, s.jitter_pct = 5; }, Jitter(7, measured)}}) {
    config::Simulate simulate;
    simulate.seed = 7;
    c.change(simulate);
    const clock::OpTimes times = with_draws(simulate, 6, undrawn);
    EXPECT_EQ(times.jitter.any(), c.expected.any());
    EXPECT_TRUE(times.compute_factor.empty());
    if (times.jitter.any()) {
      EXPECT_EQ(drawn(times.jitter), drawn(c.expected));
    }
  }
  config::Simulate nothing_was_measured;
  nothing_was_measured.measured_jitter = true;
  EXPECT_FALSE(with_draws(nothing_was_measured, 6, {}).jitter.any());
}

TEST(Simulate, RanksThatDifferDoSoInAllTheyCompute) {
  config::Simulate simulate;
  simulate.rank_jitter_pct = 5;
  const clock::OpTimes equal = with_draws(simulate, 3, {});
  ASSERT_EQ(equal.compute_factor.size(), 3U);
  std::vector<double> expected(3, 1e9);
  clock::Jitter(~simulate.seed, {clock::Jitter::lognormal(0.05)}).apply(0, 0, 0, false, expected);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(equal.compute_factor[rank], expected[rank] / 1e9);
    EXPECT_NE(equal.compute_factor[rank], 1);
  }
  clock::OpTimes slow;
  slow.compute_factor = {1, 4, 1};
  slow = with_draws(simulate, 3, slow);
  EXPECT_EQ(slow.compute_factor[0], equal.compute_factor[0]);
  EXPECT_EQ(slow.compute_factor[1], 4 * equal.compute_factor[1]);
}

TEST(Simulate, RecordsFewOfManyRanks) {
  const auto recorded = [](std::int64_t asked, int ranks) {
    config::Trace trace;
    trace.ranks = asked;
    return ranks_recorded(trace, ranks);
  };
  EXPECT_EQ(recorded(3, 64), 64);
  EXPECT_EQ(recorded(3, 65), 3);
  EXPECT_EQ(recorded(2, 65), 2);
  EXPECT_EQ(recorded(1, 65), 2);
  EXPECT_EQ(recorded(64, 65), 64);
  EXPECT_EQ(recorded(900, 65), 65);
  EXPECT_EQ(recorded(0, 65), 65);
}

TEST(Simulate, TheFirstRanksAreRecordedIfTheSlowestIsAmongThem) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.mesh.ranks = c.mesh.shard = 96;
  c.trace.ranks = 3;
  const auto ranks = [&] {
    std::vector<int> all;
    for (const trace::RankTrace& trace : testing::simulate_tiny(c).traces) all.push_back(trace.rank);
    return all;
  };
  EXPECT_EQ(ranks(), (std::vector<int>{0, 1, 2}));
  // All wait for the slow one, so that all are as long, and the first of equals is recorded anyhow.
  c.inject.slow_rank = 77;
  c.inject.slow_rank_factor = 2;
  EXPECT_EQ(ranks(), (std::vector<int>{0, 1, 2}));
}

TEST(Simulate, TellsOfEveryStepAndAsksBeforeEach) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  const engine::Setup p = set_up(testing::settled(c));
  for (const int last : {0, 1, 2, 3, 9}) {
    RunHooks hooks;
    int asked = 0;
    std::vector<std::int64_t> told;
    hooks.stop = [&] { return asked++ == last; };
    hooks.progress = [&](std::int64_t done, const std::optional<StepLoss>& loss) {
      EXPECT_FALSE(loss);
      told.push_back(done);
    };
    const Measurement m = simulate(p, simulated_times(p, nullptr), hooks);
    const int done = std::min(last, 3);
    EXPECT_EQ(m.steps_done, done);
    EXPECT_EQ(m.interrupted, done < 3);
    EXPECT_EQ(told.size(), static_cast<std::size_t>(done));
    EXPECT_EQ(asked, last < 3 ? last + 1 : 3);
    EXPECT_TRUE(m.slowest_ns.empty());
    EXPECT_EQ(m.wire_bytes.size(), 4U);
    EXPECT_EQ(m.wire_bytes[0] == backend::WireBytes{}, done < 2) << "a step of warm-up does not count";
  }
}

TEST(Simulate, DrawsWhereAnyTimeScatters) {
  EXPECT_FALSE(draws({}));
  for (double config::Simulate::*key :
       {&config::Simulate::jitter_pct, &config::Simulate::rank_jitter_pct, &config::Simulate::pause_chance}) {
    config::Simulate one;
    one.*key = 0.1;
    EXPECT_TRUE(draws(one));
  }
  config::Simulate measured;
  measured.measured_jitter = true;
  EXPECT_TRUE(draws(measured));
}

TEST(Simulate, TheSameSeedGivesTheSameNanoseconds) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.simulate.jitter_pct = 5;
  c.simulate.rank_jitter_pct = 2;
  const auto steps = [&] { return metrics_of(c, testing::simulate_tiny(c)).steps_ms; };
  const std::vector<double> first = steps();
  EXPECT_EQ(steps(), first);
  c.simulate.seed = 2;
  EXPECT_NE(steps(), first);
}

TEST(Simulate, WithoutJitterAllStepsAreAlikeAndTheBoundIsReached) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.train.steps = 4;
  const account::RunMetrics m = metrics_of(c, testing::simulate_tiny(c));
  EXPECT_EQ(m.step_ms.min, m.step_ms.max);
  EXPECT_EQ(m.bound_ratio, 1.0);
}

TEST(Simulate, HostLaunchWakeAndPausesTakeTheirTime) {
  const RunConfig base = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  const double plain = metrics_of(base, testing::simulate_tiny(base)).step_ms.median;
  const auto with = [&](auto&& change) {
    RunConfig c = base;
    change(c.simulate);
    return metrics_of(c, testing::simulate_tiny(c)).step_ms.median;
  };
  EXPECT_GT(with([](config::Simulate& s) { s.host_issue_us = 50; }), plain);
  EXPECT_GT(with([](config::Simulate& s) { s.launch_us = 50; }), plain);
  EXPECT_GT(with([](config::Simulate& s) { s.wake_us = 50; }), plain);
  EXPECT_GT(with([](config::Simulate& s) { s.pause_chance = 0.5, s.pause_us = 500; }), plain);
  EXPECT_NE(with([](config::Simulate& s) { s.rank_jitter_pct = 5; }), plain);
}

/// Runs that scattered give simulations that do, if they are asked to.
TEST(Simulate, ScattersAsACalibrationMeasured) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.train.steps = 8;
  c.simulate.jitter_pct = 10;
  const engine::Setup scattered = set_up(testing::settled(c));
  const Measurement measured = simulate(scattered, simulated_times(scattered, nullptr));
  clock::Calibrator calibrator;
  calibrator.add({scattered, measured.traces, std::nullopt, true}, {});
  const config::Calibration calibration = calibrator.result();
  const auto steps = [&](auto&& change) {
    RunConfig other = emulated(testing::tiny_decoder(), 1e-3, 0.1);
    other.train.steps = 20;
    change(other.simulate);
    const engine::Setup p = set_up(testing::settled(other));
    const Measurement m = simulate(p, calibrated_times(p, calibration).times);
    return account::run_metrics({p.schedules, m.traces}, p.plan.groups, 1).step_ms;
  };
  const account::Summary still = steps([](config::Simulate&) {});
  const account::Summary moved = steps([](config::Simulate& s) { s.measured_jitter = true; });
  EXPECT_EQ(still.min, still.max);
  EXPECT_GT(moved.max, 1.01 * moved.min);
  EXPECT_EQ(steps([](config::Simulate& s) { s.measured_jitter = true; }).median, moved.median);
  EXPECT_NE(steps([](config::Simulate& s) { s.measured_jitter = true, s.seed = 2; }).median, moved.median);
}

TEST(Simulate, AProductBesideAGatherTakesAsMuchLongerAsACalibrationMeasured) {
  const engine::Setup p = set_up(testing::settled(emulated(testing::tiny_decoder(), 1e-4, 0.1)));
  clock::Calibrator calibrator;
  calibrator.add({p, simulate(p, simulated_times(p, nullptr)).traces, std::nullopt, true}, {});
  config::Calibration calibration = calibrator.result();
  const auto step_ms = [&](bool contention) {
    const Measurement m = simulate(p, calibrated_times(p, calibration, contention).times);
    return account::run_metrics({p.schedules, m.traces}, p.plan.groups, 1).step_ms.median;
  };
  const double alone = step_ms(true);
  calibration.slowdowns = {{"matrix_product", "all_gather", DType::f32, {{512, 512, 512, 1 << 20, 0, 2}}}};
  EXPECT_GT(step_ms(true), 1.01 * alone);
  EXPECT_EQ(step_ms(false), alone);
}

TEST(Simulate, AModuleThatIsRecomputedAloneFreesWhatItSaved) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.train.batch_per_rank = 8;  // activations are most of the memory
  using config::CheckpointKeeps;
  const auto activations = [&](bool checkpoints, CheckpointKeeps keeps) {
    c.fsdp.activation_checkpointing = checkpoints;
    c.fsdp.checkpoint_keeps = keeps;
    return set_up(testing::settled(c)).memory.peak_occupied[index_of(MemoryCategory::activations)];
  };
  const std::int64_t all = activations(false, CheckpointKeeps::nothing),
                     few = activations(true, CheckpointKeeps::nothing),
                     fed = activations(true, CheckpointKeeps::all_but_feed_forward),
                     attended = activations(true, CheckpointKeeps::all_but_attention);
  // In the last block's backward the first two blocks keep the rest: gate and up of 37 numbers for 96 tokens less.
  EXPECT_NEAR(static_cast<double>(all - fed), 2 * 2 * 37 * 96 * 4, 4096);
  EXPECT_LT(few, fed);
  EXPECT_LT(fed, attended);
  EXPECT_LE(attended, all);
}

TEST(Simulate, OfManyRanksTheFirstAndTheSlowestAreRecordedAndAllCount) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.mesh.ranks = 96;
  c.mesh.shard = 96;
  c.trace.ranks = 3;
  c.train.warmup = 0;        // all begin together
  c.inject.delay_rank = 77;  // and its updates end later than anybody's
  c.inject.delay_lane = "compute";
  c.inject.delay_us = 5;
  c.simulate.jitter_pct = 1;
  const Measurement m = testing::simulate_tiny(c);
  ASSERT_EQ(m.traces.size(), 3U);
  EXPECT_EQ(m.traces[0].rank, 0);
  ASSERT_EQ(m.slowest_ns.size(), 2U);
  const engine::Setup p = set_up(testing::settled(c));
  const account::RunView some(p.schedules, m.traces, m.slowest_ns);
  c.trace.ranks = 0;  // all of them
  const Measurement whole = testing::simulate_tiny(c);
  ASSERT_EQ(whole.traces.size(), 96U);
  const account::RunView all(p.schedules, whole.traces);
  for (std::size_t step = 0; step < 2; ++step) {
    EXPECT_EQ(some.steps()[step].slowest_ns(), all.steps()[step].slowest_ns());
    EXPECT_EQ(some.steps()[step].of(0).back().end_ns, all.steps()[step].of(0).back().end_ns);
  }
  int slowest = 0;
  const auto sum = [&](int rank) { return all.steps()[0].length_ns(rank) + all.steps()[1].length_ns(rank); };
  for (int rank = 1; rank < 96; ++rank) slowest = sum(rank) > sum(slowest) ? rank : slowest;
  EXPECT_EQ(slowest, 77);
  EXPECT_EQ(m.traces[2].rank, 77);
  EXPECT_EQ(m.memory.size(), 3U);
  EXPECT_EQ(m.host_memory.size(), 3U);
}

TEST(Simulate, NothingBeginsAtZeroWhichIsNever) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.train.warmup = 0;
  const engine::Setup p = set_up(testing::settled(c));
  const Measurement m = testing::simulate_tiny(c);
  std::size_t samples = 0;
  for (const trace::Record& record : m.traces.front().records) {
    const schedule::Op& op =
        p.schedules.of_step(static_cast<std::size_t>(record.step)).ops[static_cast<std::size_t>(record.op)];
    EXPECT_EQ(record.begin_ns > 0, op.has_work());
    if (op.allocates.empty() && op.frees.empty()) continue;
    const trace::MemorySample& sample = m.traces.front().memory.at(samples++);
    EXPECT_EQ(sample.time_ns, record.issued_ns) << "the pool changes when the host comes to an op";
    EXPECT_EQ(sample.reserved, p.memory.reserved);
  }
}

TEST(Simulate, EndsWhenItIsAskedTo) {
  RunConfig c = emulated(testing::tiny_decoder(), 1e-3, 0.1);
  c.train.steps = 10;
  const engine::Setup p = set_up(testing::settled(c));
  RunHooks hooks;
  int asked = 0;
  hooks.stop = [&] { return ++asked > 4; };
  const Measurement m = simulate(p, simulated_times(p, nullptr), hooks);
  EXPECT_TRUE(m.interrupted);
  EXPECT_EQ(m.steps_done, 4);
  EXPECT_EQ(m.traces.front().steps.size(), 3U);  // one was warm-up
}

}  // namespace
}  // namespace fsdpbench::engine
