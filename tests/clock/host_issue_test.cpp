#include "clock/host_issue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "clock/cluster_times.h"
#include "clock/forecast.h"
#include "config/cluster.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/presets.h"
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

TEST(HostIssue, EnginesRankAsMeasured) {
  const double ddp = step_ms({"fsdp.preset=fsdp1", "fsdp.strategy=no_shard"}), fsdp1 = step_ms({"fsdp.preset=fsdp1"}),
               zero2 = step_ms({"fsdp.preset=deepspeed-z2"}), zero3 = step_ms({"fsdp.preset=deepspeed-z3"});
  EXPECT_LT(ddp, fsdp1);
  EXPECT_LT(ddp, zero2);
  EXPECT_LT(zero2, fsdp1);
  EXPECT_LT(fsdp1, zero3);
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
  const auto host_ms = [](const Overrides& set) {
    const std::vector<double> ns = times_of(training(set)).own_issue.back();
    return std::accumulate(ns.begin(), ns.end(), 0.0) * 1e-6;
  };
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

/// Issue times of a training's ops, where the GPU takes no time for any: microseconds.
struct Issued {
  explicit Issued(const Overrides& set) : made(training(set)) {
    const config::RunConfig& c = made.config;
    work = plan::module_work(plan::tensor_part(c.model, made.plan.mesh.tensor), c.train.batch_per_rank, c.train.seq_len,
                             c.mesh.sequence_parallel ? made.plan.mesh.tensor : 1);
    for (const schedule::Schedule& schedule : made.schedules.steps) times.steps.emplace_back(schedule.ops.size());
    t = config::host_times(c);
    factor = c.simulate.host == config::Simulate::Host::own ? 1 : machine.host.framework_factor;
    launch = machine.host.kernel_issue_us + factor * t.launch;
  }
  const std::vector<schedule::Op>& ops() const { return made.schedules.steady().ops; }
  std::vector<std::vector<double>> issue() const { return host_issue(made, machine, work, compute, times); }
  /// The first such op of the first block, or of its unit, and not of the step.
  std::size_t find(schedule::OpKind kind) const {
    for (std::size_t i = 1; i < ops().size(); ++i) {
      if (ops()[i].kind == kind && (ops()[i].module == 1 || ops()[i].unit == 1)) return i;
    }
    ADD_FAILURE() << "no " << schedule::to_string(kind);
    return 0;
  }
  double us(schedule::OpKind kind) const { return issue().back()[find(kind)] * 1e-3; }
  void expect(schedule::OpKind kind, double expected) const {
    EXPECT_NEAR(us(kind), expected, 1e-3) << schedule::to_string(kind);
  }
  double parameters() const { return static_cast<double>(made.plan.units[1].members.parameters.size()); }
  /// Launches of a pass of the first block.
  double launches(Pass pass) const { return launch * compute.launches(work[1], pass); }

  schedule::Training made;
  config::Cluster machine = config::load_cluster("roce-a100-40gb");
  std::vector<plan::ModuleWork> work;
  ComputeCost compute{gpu_rates(machine, DType::bf16), {}, DType::bf16};
  OpTimes times;
  dialects::HostTimes t;
  double factor = 1, launch = 0;
};

TEST(HostIssue, EachOpTakesWhatItsEngineCalls) {
  using enum schedule::OpKind;
  const Issued two({"fsdp.preset=fsdp2", "simulate.fused_optimizer=false", "fsdp.shard_threshold=1000"});
  const dialects::HostTimes& t = two.t;
  ASSERT_GT(t.gather * t.gather_tensor * t.reduce * t.free * t.launch * t.update_tensor * t.update_sharded, 0);
  two.expect(all_gather, two.factor * (t.gather + t.gather_tensor * two.parameters()) + two.launch);
  two.expect(copy_out, two.launch);
  two.expect(reduce_scatter, two.factor * t.reduce + two.launch);
  two.expect(reshard, two.factor * t.free);
  two.expect(post_backward, 0);
  two.expect(copy_in, two.launch);
  const plan::ShardLayout& layout = two.made.plan.units[1].layout;
  ASSERT_GT(layout.replicated.size(), 0U);
  const auto tensors = static_cast<double>(layout.sharded.size() + layout.replicated.size());
  two.expect(optimizer,
             two.factor * (t.update_unit + t.update_tensor * tensors + t.update_sharded * tensors) + two.launch);
  two.expect(forward, two.launches(Pass::forward) + two.factor * (1 + t.rotation) * t.forward);
  two.expect(backward, two.launches(Pass::backward) + two.factor * (1 + t.rotation) * t.backward);
  two.expect(release, 0);
  // The step's own time comes before its first op.
  const double first = two.issue().back()[0] * 1e-3;
  EXPECT_EQ(two.ops()[0].kind, load_batch);
  EXPECT_NEAR(first, two.factor * (t.step + t.update) + two.launch, 1e-3);
  EXPECT_EQ(two.issue().size(), two.made.schedules.steps.size());
  const Issued fused({"fsdp.preset=fsdp2", "simulate.fused_optimizer=true"});
  EXPECT_NEAR(fused.issue().back()[0] * 1e-3, fused.factor * (t.step + t.fused_update * t.update) + fused.launch, 1e-3);
  const double whole = fused.parameters();
  fused.expect(optimizer,
               fused.factor * (t.fused_update * (t.update_unit + t.update_tensor * whole) + t.update_sharded * whole) +
                   fused.launch);

  const Issued one({"fsdp.preset=fsdp2", "mesh.ranks=1"});
  ASSERT_LT(one.t.alone, 1);
  one.expect(unshard, one.factor * one.t.alone * (t.gather + t.gather_tensor * one.parameters()));
  one.expect(post_backward, one.factor * one.t.alone * t.reduce);
  one.expect(reshard, one.factor * one.t.alone * t.free);

  const Issued own({"fsdp.preset=fsdp2", "simulate.host=own"});
  own.expect(forward, own.launches(Pass::forward));
  own.expect(all_gather, own.machine.host.kernel_issue_us);
  const Issued nanotron({"fsdp.preset=nanotron", "fsdp.strategy=shard_grad_op", "simulate.framework=nanotron"});
  ASSERT_GT(nanotron.t.part * nanotron.t.tensor, 0);
  nanotron.expect(copy_out, nanotron.launch + nanotron.factor * nanotron.t.part * nanotron.parameters() * 8);
  nanotron.expect(backward, nanotron.launches(Pass::backward) +
                                nanotron.factor * (nanotron.t.backward + nanotron.t.tensor * nanotron.parameters()));
  nanotron.expect(forward, nanotron.launches(Pass::forward) + nanotron.factor * nanotron.t.forward);
}

TEST(HostIssue, BlocksTakeWhatTheirPassesAre) {
  using enum schedule::OpKind;
  const Issued compiled({"fsdp.preset=fsdp2", "simulate.compiled=true"});
  ASSERT_NE(compiled.t.compiled, 1);
  compiled.expect(forward,
                  compiled.launches(Pass::forward) + compiled.factor * compiled.t.compiled * compiled.t.forward);
  for (const int positions : {0, 1, 256}) {
    const Issued one({"fsdp.preset=fsdp2", "model.learned_positions=" + std::to_string(positions), "train.seq_len=1"});
    const double turned = positions > 0 ? 1 : 1 + one.t.rotation;
    one.expect(forward, one.launches(Pass::forward) + one.factor * turned * one.t.forward);
  }
  // A checkpoint makes all passes of a block so many times as long: forward, again, and backward.
  for (const bool reentrant : {false, true}) {
    const Issued again({"fsdp.preset=fsdp2", "fsdp.activation_checkpointing=true",
                        reentrant ? "fsdp.checkpoint_reentrant=true" : "fsdp.checkpoint_reentrant=false"});
    const dialects::HostTimes& t = again.t;
    ASSERT_NE(t.checkpoint, t.reentrant_checkpoint);
    const double longer = (reentrant ? t.reentrant_checkpoint : t.checkpoint) * (1 + t.rotation) *
                          (t.forward + t.backward) / (2 * t.forward + t.backward);
    again.expect(forward, again.launches(Pass::forward) + again.factor * longer * t.forward);
    again.expect(recompute, again.launches(Pass::recompute) + again.factor * longer * t.forward);
    again.expect(backward, again.launches(Pass::backward) + again.factor * longer * t.backward);
  }
  // Ranks that split a block: each part has its share, each exchange a call.
  const Issued split({"fsdp.preset=fsdp2", "mesh.tensor=2", "fsdp.activation_checkpointing=true"});
  split.expect(tensor_all_reduce, split.launch + split.factor * split.t.exchange);
  for (const auto& [kind, pass, of] : {std::tuple{forward, Pass::forward, plan::ModuleWork::Pass::forward},
                                       {recompute, Pass::recompute, plan::ModuleWork::Pass::recompute},
                                       {backward, Pass::backward, plan::ModuleWork::Pass::backward}}) {
    const double share = split.work[1].share(of, schedule::part_of(split.ops()[split.find(kind)]));
    const dialects::HostTimes& t = split.t;
    const double all = split.launches(pass) + split.factor * t.checkpoint * (1 + t.rotation) *
                                                  (kind == backward ? t.backward : t.forward) *
                                                  (t.forward + t.backward) / (2 * t.forward + t.backward);
    EXPECT_LT(share, 1);
    split.expect(kind, share * all);
  }
}

/// Six blocks of twelve modules each: six products and what is around them; embedding and head are two calls each.
TEST(HostIssue, ZeRO3VisitsEachModule) {
  using enum schedule::OpKind;
  const Issued plain({"fsdp.preset=deepspeed-z3"});
  const dialects::HostTimes& t = plain.t;
  plain.expect(forward, plain.launches(Pass::forward) + plain.factor * ((1 + t.rotation) * t.forward + 12 * t.visit));
  for (std::size_t i = 1; i < plain.ops().size(); ++i) {
    if (plain.ops()[i].kind != forward || plain.ops()[i].module != 7) continue;
    EXPECT_NEAR(plain.issue().back()[i] * 1e-3,
                plain.launch * plain.compute.launches(plain.work[7], Pass::forward) + plain.factor * 2 * t.visit, 1e-3);
  }
  // Marks take nothing; nor does a host that only waits.
  EXPECT_GT(testing::count(plain.made.schedules.steady(), host_wait), 0);
  for (std::size_t i = 0; i < plain.ops().size(); ++i) {
    EXPECT_EQ(plain.issue().back()[i] == 0, !plain.ops()[i].has_work()) << i;
  }
  // The second step compares each call with those after it, as far as so many elements reach: half of the pairs, or of
  // a reach of half of all elements three eighths.
  double numel = 0;
  for (const plan::ParameterShape& parameter : plain.made.plan.shapes.parameters) {
    numel += static_cast<double>(parameter.numel());
  }
  struct Row {
    const char* checkpointing;
    double calls, passes, reach, pairs;
  };
  for (const Row& row : {Row{"fsdp.activation_checkpointing=false", 2 * (2 + 6 * 12 + 2), 2, 10, 0.5},
                         {"fsdp.activation_checkpointing=false", 2 * (2 + 6 * 12 + 2), 2, 0.5, 0.375},
                         {"fsdp.activation_checkpointing=true", 2 * (2 + 2) + 3 * 6 * 12, 0, 10, 0.5}}) {
    const auto reach = static_cast<std::int64_t>(row.reach * 2 * numel);
    const Issued zero3(
        {"fsdp.preset=deepspeed-z3", row.checkpointing, fmt::format("fsdp.max_reuse_distance={}", reach)});
    const std::vector<std::vector<double>> issue = zero3.issue();
    ASSERT_EQ(issue.size(), 3U);
    const double extra = zero3.factor * zero3.t.second_step * row.calls * row.calls * row.pairs;
    EXPECT_NEAR((issue[1][0] - issue[2][0]) * 1e-3, extra, 1e-6 * extra);
    EXPECT_EQ(issue[0][0], issue[2][0]);
  }
}

/// Time of the host beyond the GPU's comes before an op of the compute lane, the rest after it.
TEST(HostIssue, TheHostGoesOnWhileTheGpuBegins) {
  Issued run({"fsdp.preset=fsdp2"});
  const std::size_t op = run.find(schedule::OpKind::forward), gather = run.find(schedule::OpKind::all_gather);
  const std::vector<double> idle = run.issue().back();
  for (const double part : {0.25, 2.0}) {
    run.times.steps.back()[op].run_ns = run.times.steps.back()[gather].run_ns = part * idle[op];
    const std::vector<double> busy = run.issue().back();
    const double after = std::min(part, 1.0) * idle[op];
    ASSERT_FALSE(run.ops()[op + 1].is_host());
    EXPECT_NEAR(busy[op], idle[op] - after, 1);
    EXPECT_NEAR(busy[op + 1], idle[op + 1] + after, 1);
    EXPECT_EQ(busy[gather], idle[gather]) << "on another lane";
  }
}

}  // namespace
}  // namespace fsdpbench::clock
