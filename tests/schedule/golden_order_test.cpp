// The exact orders of PyTorch's engines. FSDP1's follow its runtime code, FSDP2's are asserted by PyTorch's own
// tests (test_fully_shard_comm.py); a schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "schedule/print_schedule.h"
#include "support/presets.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::AllGatherLimit;
using config::Layout;
using config::Prefetch;
using config::ReshardAfterForward;
using config::Strategy;

config::RunConfig fsdp1(int blocks = 4) {
  config::RunConfig c = testing::decoder_config(blocks, 4);
  c.fsdp.preset = "fsdp1";
  c.fsdp.learn_execution_order = true;
  c.fsdp.layout = Layout::flat;
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 2, 0};
  c.fsdp.reduce_scatter_buffers = 0;
  c.fsdp.gradient_scaling = config::GradientScaling::pre_post_divide;
  c.fsdp.keep_unreduced = true;
  c.fsdp.gradients_after_views = true;
  return c;
}

config::RunConfig fsdp2(int blocks = 4) { return testing::decoder_config(blocks, 4); }

std::string collective_order_of(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  return collective_order(c.plan, c.schedules.steady());
}

std::string issue(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  return issue_order(c.plan, c.schedules.steady());
}

constexpr const char* kFullShardPre = "AGR AG0 AG1 AG2 AG3 | AG3* AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR";

TEST(Fsdp1Order, FullShardPre) {
  EXPECT_EQ(collective_order_of(fsdp1()), kFullShardPre);
  config::RunConfig without_limit = fsdp1();
  without_limit.fsdp.all_gather_limit = {AllGatherLimit::Mode::unlimited, 0, 0};
  EXPECT_EQ(collective_order_of(without_limit), kFullShardPre);
}

TEST(Fsdp1Order, TheNormOfClippingIsACollectiveToo) {
  config::RunConfig c = fsdp1();
  c.train.clip_norm = 1;
  EXPECT_EQ(collective_order_of(c), std::string(kFullShardPre) + " ARnorm");
}

TEST(Fsdp1Order, FullShardPost) {
  config::RunConfig c = fsdp1();
  c.fsdp.backward_prefetch = {Prefetch::Mode::post, 1};
  // The first gather of backward is on demand: post-backward prefetching has no unit before it to hang on.
  EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 AG2 AG3 | AG3 AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR");
}

TEST(Fsdp1Order, FullShardNone) {
  config::RunConfig c = fsdp1();
  c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
  EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 AG2 AG3 | AG3 RS3 AG2 RS2 AG1 RS1 AG0 RS0 RSR");
}

// Backward comes to a prefetched unit's views a block later: they were made before the block ahead of it computed.
TEST(Fsdp1Order, ForwardPrefetchShiftsReductionsByABlock) {
  const auto with_forward = [](Prefetch::Mode backward) {
    config::RunConfig c = fsdp1();
    c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
    c.fsdp.backward_prefetch = {backward, 1};
    return c;
  };
  const std::string forward = "AGR AG0 AG1 AG2 AG3 | ";
  EXPECT_EQ(collective_order_of(with_forward(Prefetch::Mode::pre)),
            forward + "AG3* AG2* AG1* RS3 AG0* RS2 RS1 RS0 RSR");
  // The unit that a reduction could prefetch has been gathered on demand before it.
  for (Prefetch::Mode mode : {Prefetch::Mode::post, Prefetch::Mode::none}) {
    EXPECT_EQ(collective_order_of(with_forward(mode)), forward + "AG3 AG2 RS3 AG1 RS2 AG0 RS1 RS0 RSR");
  }
  EXPECT_EQ(issue(with_forward(Prefetch::Mode::pre)),
            "UR U0 U1 S0 U2 S1 U3 S2 S3 | U3 U2 U1 S3 P3 U0 S2 P2 S1 P1 S0 P0 SR PR");
  config::RunConfig own = with_forward(Prefetch::Mode::pre);
  own.fsdp.gradients_after_views = false;
  EXPECT_EQ(collective_order_of(own), kFullShardPre);
}

/// Backwards of modules, and reductions: "B blocks.1" or "RS1".
std::string backward_and_reductions(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  std::string text;
  for (const Op& op : c.schedules.steady().ops) {
    const plan::Unit& unit = c.plan.units[static_cast<std::size_t>(std::max(op.unit, 0))];
    if (op.kind == OpKind::backward) text += " B " + c.plan.shapes.modules[static_cast<std::size_t>(op.module)].name;
    if (op.kind == OpKind::reduce_scatter) text += " RS" + unit.label();
    if (op.kind == OpKind::all_reduce) text += " AR" + unit.label();
  }
  return text;
}

TEST(Fsdp1Order, ForwardPrefetchShiftsReductionsInEveryStrategy) {
  config::RunConfig c = fsdp1(2);
  c.fsdp.strategy = Strategy::shard_grad_op;
  EXPECT_EQ(backward_and_reductions(c), " B head B blocks.1 RS1 B blocks.0 RS0 B embedding RSR");
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  EXPECT_EQ(backward_and_reductions(c), " B head B blocks.1 B blocks.0 RS1 B embedding RS0 RSR");
  c.fsdp.strategy = Strategy::no_shard;
  c.mesh = {4, 1, 4};
  EXPECT_EQ(backward_and_reductions(c), " B head B blocks.1 B blocks.0 AR1 B embedding AR0 ARR");
}

TEST(Fsdp1Order, ALearnedOrderIsKnownAfterTheFirstBackward) {
  config::RunConfig c = fsdp1(2);
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  c.train.accumulate = 2;
  const testing::ScheduleCase made = testing::make_case(c);
  const std::string first = issue_order(made.plan, made.schedules.steps.front());
  EXPECT_TRUE(first.starts_with("UR U0 S0 U1 S1 |")) << first;
  EXPECT_NE(first.find("|| UR U0 U1 S0 S1 |"), std::string::npos) << first;
}

TEST(Fsdp1Order, ALearnedOrderHasNoRootWithoutParameters) {
  config::RunConfig c = fsdp1(3);
  c.model.kind = config::ModelKind::mlp;
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  const testing::ScheduleCase made = testing::make_case(c);
  std::vector<bool> prefetched;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::all_gather && op.phase == Phase::forward) prefetched.push_back(op.prefetch);
  }
  EXPECT_EQ(prefetched, (std::vector{false, true, true}));
}

TEST(Fsdp1Order, NoSyncFreesOnlyWhatForwardFrees) {
  for (const auto& [strategy, line] :
       {std::pair{Strategy::shard_grad_op, "UR U0 U1 | P1 P0 PR || | S1 P1 S0 P0 SR PR"},
        {Strategy::full_shard,
         "UR U0 S0 U1 S1 | U1 U0 S1 P1 S0 P0 SR PR || UR U0 S0 U1 S1 | U1 U0 S1 P1 S0 P0 SR PR"}}) {
    config::RunConfig c = fsdp1(2);
    c.fsdp.strategy = strategy;
    c.train.accumulate = 2;
    c.train.accumulate_mode = config::AccumulateMode::no_sync;
    EXPECT_EQ(issue(c), line);
    c.train.accumulate_mode = config::AccumulateMode::reduce_each;  // reduced, so freed
    EXPECT_EQ(issue(c).find("| P1"), std::string::npos);
  }
  config::RunConfig c = fsdp1(2);
  c.fsdp.strategy = Strategy::shard_grad_op;
  c.train.accumulate = 2;
  c.train.accumulate_mode = config::AccumulateMode::no_sync;
  c.fsdp.keep_unreduced = false;  // as FSDP2
  EXPECT_EQ(issue(c), "UR U0 U1 | S1 P1 S0 P0 SR PR || UR U0 U1 | S1 P1 S0 P0 SR PR");
}

TEST(Fsdp1Order, ShardGradOp) {
  config::RunConfig c = fsdp1();
  c.fsdp.strategy = Strategy::shard_grad_op;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 AG2 AG3 | RS3 RS2 RS1 RS0 RSR");
}

TEST(Fsdp1Order, HybridShard) {
  config::RunConfig c = fsdp1();
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh = {4, 2, 2};
  EXPECT_EQ(collective_order_of(c),
            "AGR AG0 AG1 AG2 AG3 | AG3* AG2* RS3 AR3 AG1* RS2 AR2 AG0* RS1 AR1 RS0 AR0 RSR ARR");
}

TEST(Fsdp1Order, NoShard) {
  config::RunConfig c = fsdp1();
  c.fsdp.strategy = Strategy::no_shard;
  c.mesh = {4, 1, 4};
  EXPECT_EQ(collective_order_of(c), "| AR3 AR2 AR1 AR0 ARR");
}

TEST(Fsdp1Order, OneRankReducesOverItself) {
  config::RunConfig c = fsdp1();
  c.fsdp.strategy = Strategy::no_shard;
  c.mesh = {1, 1, 1};
  EXPECT_EQ(collective_order_of(c), "| AR3 AR2 AR1 AR0 ARR");
  EXPECT_EQ(issue(c), "| P3 P2 P1 P0 PR");
}

TEST(Fsdp2Order, OneShardIsCopiedAndFreedAllTheSame) {
  config::RunConfig c = fsdp2(3);
  c.mesh = {1, 1, 1};
  EXPECT_EQ(collective_order_of(c), "|");
  EXPECT_EQ(issue(c), "UR U0 S0 U1 S1 U2 S2 | U2 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh = {2, 1, 2};
  EXPECT_EQ(collective_order_of(c), "| AR2 AR1 AR0 ARR");
  EXPECT_EQ(issue(c), "UR U0 S0 U1 S1 U2 S2 | U2 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp1Order, HybridReducesAcrossOneReplicaToo) {
  for (config::RunConfig c : {fsdp1(2), fsdp2(2)}) {
    c.fsdp.strategy = Strategy::hybrid_shard;
    c.mesh = {2, 2, 1};
    EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 | AG1* AG0* RS1 AR1 RS0 AR0 RSR ARR");
  }
}

TEST(Fsdp1Order, RootWithoutParameters) {
  config::RunConfig c = fsdp1();
  c.model.kind = config::ModelKind::mlp;
  // Nobody's pre-backward can prefetch unit 3: its gather is on demand.
  EXPECT_EQ(collective_order_of(c), "AG0 AG1 AG2 AG3 | AG3 AG2* RS3 AG1* RS2 AG0* RS1 RS0");
}

TEST(Fsdp1Order, GrowsByRule) {
  for (int blocks : {2, 5, 9}) {
    std::string forward = "AGR", backward;
    for (int u = 0; u < blocks; ++u) forward += " AG" + std::to_string(u);
    for (int u = blocks - 1; u >= 0; --u) {
      const std::string prefetch = " AG" + std::to_string(u) + "*";
      // Reductions lag one prefetch behind.
      backward += u == blocks - 1 ? prefetch : prefetch + " RS" + std::to_string(u + 1);
    }
    EXPECT_EQ(collective_order_of(fsdp1(blocks)), forward + " |" + backward + " RS0 RSR");
    EXPECT_EQ(collective_order_of(fsdp2(blocks)), forward + " |" + backward + " RS0 RSR");
  }
}

TEST(Fsdp1Order, ForwardPrefetchStartsWhenTheOrderIsKnown) {
  config::RunConfig c = fsdp1();
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  const auto issue_of = [](const testing::ScheduleCase& made, std::size_t step) {
    const std::string line = issue_order(made.plan, made.schedules.of_step(step));
    return line.substr(0, line.find(" |"));
  };
  const std::string on_demand = "UR U0 S0 U1 S1 U2 S2 U3 S3";
  const std::string ahead = "UR U0 U1 S0 U2 S1 U3 S2 S3";
  const testing::ScheduleCase learns = testing::make_case(c);
  EXPECT_EQ(issue_of(learns, 0), on_demand);
  EXPECT_EQ(issue_of(learns, 1), ahead);
  c.fsdp.learn_execution_order = false;  // whatever the preset's name
  const testing::ScheduleCase told = testing::make_case(c);
  EXPECT_EQ(issue_of(told, 0), ahead);
}

/// Host trace with the host's waits: which free event is waited for before which gather.
std::string host_trace(const testing::ScheduleCase& c, const Schedule& schedule) {
  std::map<EventId, std::string> names;
  for (const Schedule& step : c.schedules.steps) {
    names[step.ops.back().record] = "step";
    for (const Op& op : step.ops) {
      if (op.kind == OpKind::reshard) {
        names[op.record] =
            (op.phase == Phase::forward ? "f" : "b") + c.plan.units[static_cast<std::size_t>(op.unit)].label();
      }
    }
  }
  std::string text;
  for (const Op& op : schedule.ops) {
    const std::string label = op.unit < 0 ? "" : c.plan.units[static_cast<std::size_t>(op.unit)].label();
    if (op.kind == OpKind::host_wait) text += " sync(" + names[op.waits.front().event] + ")";
    if (op.kind == OpKind::all_gather) text += " AG" + label;
    if (op.kind == OpKind::reshard) text += " free" + label;
  }
  return text;
}

TEST(Fsdp1Order, FreeEventQueueCarriesOverStepsAndAddsOneToItsLimit) {
  const testing::ScheduleCase c = testing::make_case(fsdp1());
  EXPECT_EQ(host_trace(c, c.schedules.steady()),
            " sync(b2) AGR sync(b1) AG0 free0 sync(b0) AG1 free1 sync(bR) AG2 free2 sync(f0) AG3 free3"
            " sync(f1) sync(f2) AG3 AG2 free3 sync(f3) AG1 free2 sync(b3) AG0 free1 free0 freeR");
  // The first iteration starts with an empty queue: gather i waits for free i-2, as the nominal limit says.
  EXPECT_EQ(host_trace(c, c.schedules.steps.front()).substr(0, 62),
            " AGR AG0 free0 AG1 free1 sync(f0) AG2 free2 sync(f1) AG3 free3");
}

/// Calls ("c", with the unit that it gathers) and frees ("f" in forward, "b" in backward) of a step.
using HostCalls = std::vector<std::string>;

/// The rule itself, over many steps: a call pops the oldest free if the queue holds `limit`. A free that the same
/// unit's next one has replaced is as over as its step.
void expect_queue(config::RunConfig config, const HostCalls& host) {
  config.fsdp.learn_execution_order = false;
  for (int limit : {1, 2, 8, 9, 10, 11, 18, 20, 27, 40}) {
    config.fsdp.all_gather_limit.count = limit;
    const testing::ScheduleCase c = testing::make_case(config);
    std::vector<std::pair<std::string, std::size_t>> queue;  // free, and its step
    std::map<std::string, std::size_t> last_free;            // by name: step
    int waits = 0;
    for (std::size_t step = 0; step < 12; ++step) {
      std::string expected;
      waits = 0;
      for (const std::string& what : host) {
        if (what[0] != 'c') {
          expected += " free" + what.substr(1);
          queue.emplace_back(what, step);
          last_free[what] = step;
          continue;
        }
        if (queue.size() >= static_cast<std::size_t>(limit)) {
          const auto [name, freed] = queue.front();
          queue.erase(queue.begin());
          expected += " sync(" + (last_free[name] == freed ? name : "step") + ")";
          ++waits;
        }
        if (what != "c") expected += " AG" + what.substr(1);
      }
      EXPECT_EQ(host_trace(c, c.schedules.of_step(step)), expected) << "limit " << limit << ", step " << step;
    }
    EXPECT_EQ(waits, 9) << limit;  // as many as there are frees, once the queue is full
  }
}

TEST(Fsdp1Order, FreeEventQueueOfAnyLengthSettles) {
  config::RunConfig c = fsdp1();
  expect_queue(c, {"cR", "c0", "f0", "c1", "f1", "c2", "f2", "c3", "f3", "c", "c3", "c2", "b3", "c1", "b2", "c0", "b1",
                   "b0", "bR"});
  // Reductions lag a block behind: what they could prefetch has had its backward, and is not called for.
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  c.fsdp.backward_prefetch = {Prefetch::Mode::post, 1};
  expect_queue(c, {"cR", "c0", "c1", "f0", "c2", "f1", "c3", "f2", "f3", "c", "c3", "c2", "b3", "c1", "b2", "c0", "b1",
                   "b0", "bR"});
}

TEST(Fsdp2Order, DefaultIsFsdp1Pre) { EXPECT_EQ(collective_order_of(fsdp2()), kFullShardPre); }

TEST(Fsdp2Order, IssueDefault) {
  EXPECT_EQ(issue(fsdp2()), "UR U0 S0 U1 S1 U2 S2 U3 S3 | U3 U2 S3 P3 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp2Order, ARootThatPrefetchesNothingLeavesTheLastUnitToItsHook) {
  config::RunConfig c = fsdp2();
  c.fsdp.root_prefetches_backward = false;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 AG2 AG3 | AG3 AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR");
}

TEST(Fsdp2Order, IssueReshardTrue) {
  config::RunConfig c = fsdp2();
  c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::always;
  EXPECT_EQ(issue(c), "UR U0 S0 U1 S1 U2 S2 U3 S3 SR | UR U3 U2 S3 P3 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp2Order, IssueReshardGroupIsAsTrue) {
  config::RunConfig c = fsdp2();
  c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
  EXPECT_EQ(issue(c), "UR U0 S0 U1 S1 U2 S2 U3 S3 SR | UR U3 U2 S3 P3 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp2Order, IssueReshardFalse) {
  config::RunConfig c = fsdp2();
  c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::never;
  EXPECT_EQ(issue(c), "UR U0 U1 U2 U3 | S3 P3 S2 P2 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp2Order, IssueForwardDepth) {
  config::RunConfig c = fsdp2();
  const std::string backward = " | U3 U2 S3 P3 U1 S2 P2 U0 S1 P1 S0 P0 SR PR";
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 1};
  EXPECT_EQ(issue(c), "UR U0 U1 S0 U2 S1 U3 S2 S3" + backward);
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
  EXPECT_EQ(issue(c), "UR U0 U1 U2 S0 U3 S1 S2 S3" + backward);
}

TEST(Fsdp2Order, IssueBackwardDepth) {
  config::RunConfig c = fsdp2();
  const std::string forward = "UR U0 S0 U1 S1 U2 S2 U3 S3 | ";
  c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 1};
  EXPECT_EQ(issue(c), forward + "U3 U2 S3 P3 U1 S2 P2 U0 S1 P1 S0 P0 SR PR");
  c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 2};
  EXPECT_EQ(issue(c), forward + "U3 U2 U1 S3 P3 U0 S2 P2 S1 P1 S0 P0 SR PR");
}

TEST(Fsdp2Order, ActivationCheckpointingDoesNotChangeIt) {
  config::RunConfig c = fsdp2();
  const std::string without = issue(c);
  c.fsdp.activation_checkpointing = true;
  EXPECT_EQ(issue(c), without);
}

/// A reentrant checkpoint's first hook gathers on demand; only after the recomputation one can prefetch for backward.
TEST(Fsdp2Order, AReentrantCheckpointPrefetchesAfterItsRecomputation) {
  config::RunConfig c = fsdp2();
  c.fsdp.activation_checkpointing = c.fsdp.checkpoint_reentrant = true;
  EXPECT_EQ(collective_order_of(c), kFullShardPre);
  const testing::ScheduleCase made = testing::make_case(c);
  std::string line;
  for (const Op& op : made.schedules.steady().ops) {
    const bool gathers = op.kind == OpKind::all_gather && op.phase == Phase::backward;
    if (gathers || op.kind == OpKind::recompute || op.kind == OpKind::backward) line += op_name(made.plan, op) + ", ";
  }
  EXPECT_TRUE(line.starts_with("all_gather 3*, backward head, recompute blocks.3, all_gather 2*, backward blocks.3, "))
      << line;
  c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
  EXPECT_EQ(collective_order_of(c), "AGR AG0 AG1 AG2 AG3 | AG3 RS3 AG2 RS2 AG1 RS1 AG0 RS0 RSR");
}

TEST(Fsdp2Order, EveryOtherBlockIsRecomputed) {
  config::RunConfig c = fsdp2();
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_every = 2;
  const testing::ScheduleCase made = testing::make_case(c);
  std::vector<int> recomputed;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::recompute) recomputed.push_back(op.module);
  }
  EXPECT_EQ(recomputed, (std::vector{3, 1}));  // blocks 2 and 0; module 0 is the embedding
}

TEST(Fsdp2Order, CollectiveCounts) {
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  using Reshard = ReshardAfterForward::Mode;
  for (const auto& [mode, backward_gathers] :
       {std::pair{Reshard::automatic, 4}, {Reshard::always, 5}, {Reshard::never, 0}}) {
    config::RunConfig c = fsdp2();
    c.fsdp.reshard_after_forward.mode = mode;
    const std::string line = collective_order_of(c);
    const std::size_t bar = line.find('|');
    EXPECT_EQ(count(line.substr(0, bar), "AG"), 5);
    EXPECT_EQ(count(line.substr(bar), "AG"), backward_gathers);
    EXPECT_EQ(count(line.substr(bar), "RS"), 5);
  }
}

/// FSDP2's hook hangs on a unit's inputs, and comes last where these need no gradient; FSDP1's on its gradient, a
/// frozen unit's behind the hook that gathers the unit before it.
TEST(FrozenOrder, HooksComeWhereGradientsGo) {
  using Row = std::tuple<const char*, int, int, const char*>;
  for (const auto& [preset, first, last, backward] : {Row{"fsdp1", 0, 1, "U2 U1 U0 S2 P2 S1 P1 S0 P0 SR"},
                                                      {"fsdp1", 1, 1, "U2 U1 S2 P2 S1 P1 SR"},
                                                      {"fsdp2", 0, 1, "U2 U1 S2 P2 U0 S1 P1 SR PR S0 P0"},
                                                      {"fsdp2", 1, 2, "U2 U1 S2 P2 U0 SR PR P0 S1 P1"}}) {
    config::RunConfig c = testing::with_preset(testing::decoder_config(3, 4), preset);
    c.model.trainable = {config::Trainable::Mode::blocks, first, last};
    EXPECT_EQ(issue(c), std::string("UR U0 S0 U1 S1 U2 S2 | ") + backward);
  }
}

TEST(Accumulation, NoSyncReducesOnceAndReduceScatterOnlyAllReducesOnce) {
  config::RunConfig c = fsdp1(1);
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh = {4, 2, 2};
  c.train.accumulate = 2;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 | AG0* RS0 AR0 RSR ARR || AGR AG0 | AG0* RS0 AR0 RSR ARR");
  c.train.accumulate_mode = config::AccumulateMode::no_sync;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 | AG0* || AGR AG0 | AG0* RS0 AR0 RSR ARR");
  c.train.accumulate_mode = config::AccumulateMode::reduce_scatter_only;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 | AG0* RS0 RSR || AGR AG0 | AG0* RS0 AR0 RSR ARR");
  c.fsdp.reshard_after_backward = false;
  EXPECT_EQ(collective_order_of(c), "AGR AG0 | AG0* RS0 RSR || | AG0* RS0 AR0 RSR ARR");
}

}  // namespace
}  // namespace fsdpbench::schedule
