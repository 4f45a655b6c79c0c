#include "clock/host_issue.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "clock/cluster_times.h"
#include "clock/forecast.h"
#include "config/cluster.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

using Overrides = std::vector<std::string>;

/// 27 million parameters on 8 ranks: any GPU is quicker than any host.
config::RunConfig small(Overrides set) {
  for (const char* key :
       {"model.kind=decoder", "model.layers=6", "model.width=512", "model.heads=8", "model.kv_heads=8",
        "model.ffn_width=2048", "model.vocab=8192", "model.feed_forward=plain", "model.norm=layer", "model.bias=true",
        "mesh.ranks=8", "train.seq_len=256", "train.batch_per_rank=2", "fsdp.param_dtype=bf16"}) {
    set.insert(set.begin(), key);
  }
  config::RunConfig config =
      config::load_profile((config::home_folder() / "profiles/runs/quickstart.toml").string(), set);
  config::validate(config);
  return config;
}

schedule::Training training(const Overrides& set) { return testing::make_case(small(set)); }

OpTimes times_of(const schedule::Training& training) {
  return cluster_times(training, config::load_cluster("roce-a100-40gb"));
}

double step_ms(const Overrides& set) {
  const schedule::Training one = training(set);
  return forecast(one, times_of(one)).slowest_ns() * 1e-6;
}

double host_ms(const Overrides& set) {
  const std::vector<double> ns = times_of(training(set)).own_issue.back();
  return std::accumulate(ns.begin(), ns.end(), 0.0) * 1e-6;
}

TEST(HostIssue, EnginesRankAsMeasured) {
  const double ddp = step_ms({"fsdp.preset=fsdp1", "fsdp.strategy=no_shard"}), fsdp1 = step_ms({"fsdp.preset=fsdp1"}),
               zero2 = step_ms({"fsdp.preset=deepspeed-z2"}), zero3 = step_ms({"fsdp.preset=deepspeed-z3"});
  EXPECT_LT(ddp, fsdp1);
  EXPECT_LT(ddp, zero2);
  EXPECT_LT(zero2, fsdp1);
  EXPECT_LT(fsdp1, zero3);
}

TEST(HostIssue, WhatIsRecomputedCostsItsHooks) {
  const Overrides ddp{"fsdp.preset=fsdp2", "fsdp.strategy=no_shard"};
  const auto with = [&](const char* key) {
    return step_ms({ddp[0], ddp[1], "fsdp.activation_checkpointing=true", key}) - step_ms(ddp);
  };
  const double apart = with("fsdp.checkpoint_reentrant=false");
  EXPECT_GT(apart, 6 * 1.2 * 1.2);
  EXPECT_LT(with("fsdp.checkpoint_reentrant=true"), apart);
}

TEST(HostIssue, RanksThatSplitALayerPayForEachExchange) {
  const schedule::Training split = training({"mesh.tensor=2", "mesh.sequence_parallel=true"});
  const OpTimes times = times_of(split);
  const std::vector<schedule::Op>& ops = split.schedules.steady().ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool exchange = ops[i].is_collective() && ops[i].lane == Lane::tensor;
    EXPECT_GT(times.own_issue.back()[i], exchange ? 110e3 : -1) << i;
  }
}

TEST(HostIssue, NanotronCopiesEachRanksPartByItself) {
  const schedule::Training zero1 =
      training({"fsdp.preset=nanotron", "fsdp.strategy=shard_grad_op", "simulate.framework=nanotron"});
  const OpTimes times = times_of(zero1);
  const std::vector<schedule::Op>& ops = zero1.schedules.steady().ops;
  int copied = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != schedule::OpKind::copy_out) continue;
    const auto parts = 8.0 * static_cast<double>(zero1.plan.units[ops[i].unit].members.parameters.size());
    EXPECT_GT(times.steps.back()[i].run_ns, 2500 * parts);
    ++copied;
  }
  EXPECT_EQ(copied, 7);
}

TEST(HostIssue, OwnHostOnlyLaunches) {
  EXPECT_LT(4 * step_ms({"simulate.host=own"}), step_ms({"fsdp.preset=fsdp2"}));
  EXPECT_LT(step_ms({"simulate.compiled=true"}), step_ms({}));
  const char* const again = "fsdp.activation_checkpointing=true";
  EXPECT_GT(step_ms({"simulate.host=own", again}), step_ms({"simulate.host=own"}));
  EXPECT_LT(step_ms({"simulate.host=own", again}), step_ms({again}));
}

/// An eager rotation is some twenty operators more; flash-attn's is one.
TEST(HostIssue, BlocksThatRotateTakeTheHostLonger) {
  const auto issue_ms = [](const char* positions, const char* framework) {
    return host_ms({positions, framework, "fsdp.preset=fsdp2"});
  };
  const char *turns = "model.learned_positions=0", *learned = "model.learned_positions=256";
  const double more = issue_ms(turns, "simulate.framework=pytorch") - issue_ms(learned, "simulate.framework=pytorch");
  EXPECT_GT(more, 1);
  EXPECT_LT(issue_ms(turns, "simulate.framework=nanotron") - issue_ms(learned, "simulate.framework=nanotron"),
            more - 1);
}

/// A block that inductor compiled takes the host longer than the operators of a block without a rotation, and less than
/// those of a block with one, launches included.
TEST(HostIssue, CompiledBlocksTakeTheHostAsLongWhateverTheyRotate) {
  const char *compiled = "simulate.compiled=true", *learned = "model.learned_positions=256";
  EXPECT_NEAR(host_ms({compiled}), host_ms({compiled, learned}), 1);
  EXPECT_GT(host_ms({compiled, learned}), host_ms({learned}));
  EXPECT_LT(host_ms({compiled}), host_ms({}));
}

/// FSDP2 casts and copies each, and each is a DTensor of its own to the optimizer; FSDP1's are one.
TEST(HostIssue, GathersAndUpdatesOfFsdp2GrowWithTheParameters) {
  const char *alone = "mesh.ranks=1", *fused = "simulate.fused_optimizer=true", *no_bias = "model.bias=false";
  const auto biases = [&](const char* preset) {
    return host_ms({preset, alone, fused}) - host_ms({preset, alone, fused, no_bias});
  };
  constexpr int kBiases = 6 * 6;  // of blocks; forward and backward gather, and one updates
  const double factor = config::load_cluster("roce-a100-40gb").host.framework_factor;
  const double more = factor * kBiases * (2 * 0.7 * 0.06 + 0.023) - 0.1;
  for (const char* other : {"fsdp.preset=fsdp1", "fsdp.preset=xla"}) {
    EXPECT_GT(biases("fsdp.preset=fsdp2") - biases(other), more) << other;
  }
  const auto gathers = [&](const char* preset) { return host_ms({preset}) - host_ms({preset, no_bias}); };
  EXPECT_LT(gathers("fsdp.preset=deepspeed-z3"), gathers("fsdp.preset=fsdp2"));
}

/// Once; and the step that stands for all others comes after it.
TEST(HostIssue, ZeRO3sSecondStepGrowsWithTheSquareOfTheLayers) {
  const auto extra_ms = [](const char* layers) {
    const schedule::Training zero3 = training({"fsdp.preset=deepspeed-z3", layers});
    const OpTimes times = times_of(zero3);
    std::vector<double> steps_ms;
    forecast_run(zero3, times, 4, 4, {}, [&](std::size_t, const std::vector<double>& ns) {
      steps_ms.push_back(ns.front() * 1e-6);
      return true;
    });
    EXPECT_NEAR(forecast(zero3, times).slowest_ns() * 1e-6, steps_ms[3], 1e-3);
    return steps_ms[1] - steps_ms[3];
  };
  const double six = extra_ms("model.layers=6"), twelve = extra_ms("model.layers=12");
  EXPECT_GT(six, 50);
  EXPECT_GT(twelve, 3 * six);
  EXPECT_LT(twelve, 5 * six);
}

/// 0.28 ms of each of its ranks, before a collective of at least two.
TEST(HostIssue, CheckedCollectivesTakeLongerWithEachRank) {
  const std::string checked = "simulate.collective_checks=true";
  struct Case {
    Overrides set;
    int ranks;
  };
  for (const auto& [set, ranks] : {Case{{"mesh.ranks=8"}, 8}, {{"mesh.ranks=4"}, 4}, {{"mesh.ranks=1"}, 0}}) {
    int collectives = 0;
    const schedule::Training one = training(set);
    for (const schedule::Op& op : one.schedules.steady().ops) collectives += op.is_collective();
    Overrides with = set;
    with.push_back(checked);
    EXPECT_GT(collectives, ranks > 0 ? 10 : -1);
    EXPECT_NEAR(host_ms(with) - host_ms(set), 0.28 * ranks * collectives, 1e-3 * collectives) << set.front();
  }
  EXPECT_GT(step_ms({checked}), step_ms({}) + 20) << "the host holds the GPU up";
}

/// A GPU that takes longer than the host hides it, and the host is ahead.
TEST(HostIssue, LargeStepsAreTheGpus) {
  const Overrides large{"model.width=8192", "model.ffn_width=32768", "model.heads=64", "model.kv_heads=64",
                        "train.seq_len=4096"};
  Overrides own = large;
  own.emplace_back("simulate.host=own");
  EXPECT_NEAR(step_ms(large), step_ms(own), 0.02 * step_ms(own));
}

TEST(HostIssue, NoFrameworkRunsOnProcessorsAlone) {
  const schedule::Training one = training({});
  const std::vector<double> issue = cluster_times(one, config::load_cluster("cpu-2core")).own_issue.back();
  for (const double ns : issue) EXPECT_LT(ns, 100e3);
}

}  // namespace
}  // namespace fsdpbench::clock
