// mesh.context_method = ring on plan, schedule and computed clock: exact order, bytes, memory, work, and what it hides.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/step_view.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/small_simulation.h"

namespace fsdpbench::engine {
namespace {

using config::ContextMethod;
using config::RunConfig;
using schedule::Op;
using schedule::OpKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One block with two heads of queries and one of keys, on as many ranks as split each sequence.
RunConfig split_sequences(std::int64_t context, ContextMethod method,
                          const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::small_simulation();
  c.model.kv_heads = 1;
  c.mesh.ranks = context;
  c.mesh.context = context;
  c.mesh.context_method = method;
  c.train.seq_len = 16;
  c.emulate.link_latency_us = 0;
  if (change) change(c);
  config::validate(c);
  return c;
}

RunConfig ring_of(std::int64_t context, const std::function<void(RunConfig&)>& change = {}) {
  return split_sequences(context, ContextMethod::ring, change);
}

/// The block's parts and sends in the host's order, and what of them each waits for: "B2 after S4".
std::vector<std::string> parts_and_sends(const engine::Setup& p) {
  std::vector<std::string> names;
  std::vector<std::pair<schedule::EventId, std::string>> recorded;
  int sends = 0;
  for (const Op& op : p.schedules.steady().ops) {
    const bool sent = op.kind == OpKind::context_send_recv;
    const char* pass = op.kind == OpKind::forward     ? "F"
                       : op.kind == OpKind::recompute ? "R"
                       : op.kind == OpKind::backward  ? "B"
                                                      : nullptr;
    if (op.module != 1 || !(sent || pass != nullptr)) continue;
    const std::string own =
        sent ? "S" + std::to_string(++sends) : std::string(pass) + std::to_string(schedule::part_of(op));
    std::string name = own;
    for (const schedule::Wait& wait : op.waits) {
      for (const auto& [event, text] : recorded) {
        if (event != wait.event) continue;
        name += " after " + text + (wait.reason == schedule::WaitReason::limit ? " (limit)" : "");
      }
    }
    if (op.record != schedule::kNoEvent) recorded.emplace_back(op.record, own);
    names.push_back(name);
  }
  return names;
}

/// The order of AttnFuncWithCPAndKVP2P: in forward a send is issued before the step that runs beside it, and needs what
/// the send before brought; in backward it needs the sums of the step before.
TEST(ContextRing, EachSendRunsBesideAStepOfAttention) {
  EXPECT_THAT(parts_and_sends(set_up(ring_of(2))),
              ElementsAre("F0", "S1 after F0", "F1", "F2 after S1",  //
                          "B0", "S2 after B0", "B1", "B2 after S2", "S3 after B2", "B3", "B4 after S3"));
  EXPECT_THAT(parts_and_sends(set_up(ring_of(4))),
              ElementsAre("F0", "S1 after F0", "F1", "S2", "F2 after S1", "S3 after F1 (limit)", "F3 after S2",
                          "F4 after S3", "B0", "S4 after B0", "B1", "B2 after S4", "S5 after B2", "B3", "B4 after S5",
                          "S6 after B4", "B5", "B6 after S6", "S7 after B6", "B7", "B8 after S7"));
  const std::vector<std::string> again =
      parts_and_sends(set_up(ring_of(2, [](RunConfig& c) { c.fsdp.activation_checkpointing = true; })));
  EXPECT_EQ(std::vector(again.begin() + 4, again.begin() + 8),
            (std::vector<std::string>{"R0", "S2 after R0", "R1", "R2 after S2"}));
}

TEST(ContextRing, ForwardSendsKeysAndValuesAndBackwardTheirGradientsBehindThem) {
  const engine::Setup p = set_up(ring_of(4));
  std::vector<std::int64_t> counts;
  for (const Op& op : p.schedules.steady().ops) {
    EXPECT_NE(op.kind, OpKind::tensor_all_gather);
    if (!op.exchanges_parts()) continue;
    EXPECT_EQ(op.group(), schedule::Group::context);
    EXPECT_EQ(op.lane, Lane::tensor);
    counts.push_back(op.collective()->count);
  }
  constexpr std::int64_t kOne = 2 * 4 * 8;  // keys and values of 4 tokens, a head of 8
  EXPECT_THAT(counts, ElementsAre(kOne, kOne, kOne, kOne, 2 * kOne, 2 * kOne, kOne));
}

TEST(ContextRing, NoWaitCanBeTakenOutButLimits) {
  for (const std::int64_t context : {2, 4, 8}) {
    const engine::Setup p = set_up(ring_of(context, [](RunConfig& c) {
      c.fsdp.activation_checkpointing = true;
      c.train.accumulate = 2;
    }));
    const std::vector<schedule::Fault> faults = schedule::check_schedules(p.schedules);
    ASSERT_TRUE(faults.empty()) << context << ": " << faults.front().message;
    const std::vector<Op>& ops = p.schedules.steady().ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (std::size_t w = 0; w < ops[i].waits.size(); ++w) {
        const auto recorded = std::ranges::find(ops, ops[i].waits[w].event, &Op::record);
        const bool of_ring = ops[i].kind == OpKind::context_send_recv ||
                             (recorded != ops.end() && recorded->kind == OpKind::context_send_recv);
        if (!of_ring) continue;
        schedule::Schedules without = p.schedules;
        std::vector<schedule::Wait>& waits = without.steps.back().ops[i].waits;
        const bool limits = waits[w].reason == schedule::WaitReason::limit;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        EXPECT_EQ(schedule::check_schedules(without, 1).empty(), limits) << schedule::op_name(p.plan, ops[i]);
      }
    }
  }
}

TEST(ContextRing, SendsTheBytesOfTheFormulaWhichAreThoseOfGathering) {
  for (const bool recomputes : {false, true}) {
    const auto change = [&](RunConfig& c) {
      c.fsdp.activation_checkpointing = recomputes;
      c.train.accumulate = 2;
    };
    const auto volume = [&](const RunConfig& c) {
      const engine::Setup p = set_up(c);
      return plan::communication_volume(p.plan, c, schedule::regathers(p.policy, p.plan));
    };
    const RunConfig c = ring_of(4, change);
    const plan::CommunicationVolume ring = volume(c),
                                    gather = volume(split_sequences(4, ContextMethod::all_gather, change));
    const double one = 2 * 4 * 8 * 4;  // bytes of a rank's keys and values
    EXPECT_EQ(ring.send_recv, 2 * (recomputes ? 4 : 3) * 3 * one);
    EXPECT_EQ(ring.total(), gather.total());
    EXPECT_EQ(gather.send_recv, 0);
    const engine::Setup p = set_up(c);
    const Measurement m = simulate(p, simulated_times(p, nullptr));
    const auto sent = m.wire_bytes.front()[static_cast<std::size_t>(backend::Collective::send_recv)];
    EXPECT_EQ(static_cast<double>(sent), static_cast<double>(c.train.steps) * ring.send_recv);
  }
}

/// Forward keeps what came from each rank, and each step's output until all are known; backward has two buffers of keys
/// and values with their gradients, however many ranks there are.
TEST(ContextRing, MemoryIsThatOfItsBuffers) {
  constexpr std::int64_t kOne = 2 * 4 * 8 * 4;
  const engine::Setup ring = set_up(ring_of(4)), gather = set_up(split_sequences(4, ContextMethod::all_gather));
  std::vector<std::int64_t> bytes;
  for (const schedule::Buffer& buffer : ring.schedules.steady().buffers) {
    if (buffer.role == schedule::BufferRole::exchange) bytes.push_back(buffer.bytes);
  }
  EXPECT_THAT(bytes, ElementsAre(kOne, kOne, kOne, kOne, 2 * kOne, 2 * kOne));
  EXPECT_EQ(gather.sizes[1].backward_parts[1].bytes(4), 2 * 4 * kOne);
  const plan::ModuleSizes &around = ring.sizes[1], &whole = gather.sizes[1];
  const std::int64_t output = 4 * 16 * 4 + 4 * 2 * 4;  // of 4 tokens, 16 numbers and a sum for each of 2 heads
  EXPECT_GE(around.forward_workspace_bytes, 4 * output);
  EXPECT_GT(around.forward_workspace_bytes, whole.forward_workspace_bytes);
  EXPECT_GT(around.backward_workspace_bytes, whole.backward_workspace_bytes);
  EXPECT_EQ(around.saved_bytes, whole.saved_bytes);
}

TEST(ContextRing, StepsOfAttentionAreEqualAndAddUpToTheSameWork) {
  for (const std::int64_t context : {2, 4, 8}) {
    const plan::ModuleSizes ring = set_up(ring_of(context)).sizes[1],
                            gather = set_up(split_sequences(context, ContextMethod::all_gather)).sizes[1];
    EXPECT_EQ(ring.forward_flops, gather.forward_flops);
    EXPECT_EQ(ring.recompute_flops, gather.recompute_flops);
    EXPECT_EQ(ring.backward_flops, gather.backward_flops);
    const auto check = [&](const std::vector<plan::ModulePart>& parts, double whole, double attention) {
      double sum = 0;
      for (const plan::ModulePart& part : parts) sum += part.flops;
      EXPECT_NEAR(sum, whole, 1e-9 * whole);
      EXPECT_NEAR(parts[1].flops, attention / static_cast<double>(context), 1e-9 * attention);
    };
    const double attention = 4.0 * (16.0 / static_cast<double>(context)) * 8 * 16;  // tokens, mean span, queries' width
    check(ring.forward_parts, gather.forward_flops, attention);
    check(ring.recompute_parts, gather.recompute_flops, attention);
    check(ring.backward_parts, gather.backward_flops, 2.5 * attention);
  }
}

/// Sequences long enough for attention to be most of a step: 1024 tokens a rank, whose keys and values are 64 KiB.
double long_step_ms(ContextMethod method, double gb_per_s, double latency_us = 0) {
  return testing::median_step_ms(split_sequences(4, method, [&](RunConfig& c) {
    c.train.seq_len = 4096;
    c.emulate.link_gb_per_s = gb_per_s;
    c.emulate.link_latency_us = latency_us;
  }));
}
constexpr double kExchangedBytes = 3.0 * 3 * 1024 * 16 * 4;  // three times three parts

TEST(ContextRing, WithoutTimeOnLinksItTakesWhatGatheringTakes) {
  constexpr double kNoTime = 1e6;
  EXPECT_NEAR(long_step_ms(ContextMethod::ring, kNoTime) / long_step_ms(ContextMethod::all_gather, kNoTime), 1, 1e-6);
}

TEST(ContextRing, HidesWhatGatheringExposes) {
  const double ring = long_step_ms(ContextMethod::ring, 0.1), gather = long_step_ms(ContextMethod::all_gather, 0.1);
  const double exchanged_ms = kExchangedBytes / 0.1e9 * 1e3;
  EXPECT_NEAR(gather - ring, exchanged_ms, 0.02 * exchanged_ms);
}

/// A send is one message, where a gather is C - 1 of them one after another: of latency alone a ring has as much or
/// less.
TEST(ContextRing, PaysALatencyForEachSend) {
  const auto instant = [](ContextMethod method, double latency_us) {
    return testing::median_step_ms(split_sequences(4, method, [&](RunConfig& c) {
      c.emulate.compute_tflops = 1e6;
      c.emulate.link_gb_per_s = 1e6;
      c.emulate.link_latency_us = latency_us;
    }));
  };
  const double ring = instant(ContextMethod::ring, 1000) - instant(ContextMethod::ring, 0),
               gather = instant(ContextMethod::all_gather, 1000) - instant(ContextMethod::all_gather, 0);
  EXPECT_NEAR(gather - ring, 9 - 7, 0.1) << "3 + 4 sends, 3 times 3 hops";
}

TEST(ContextRing, IsSlowerOverSlowerLinksAndNeverSlowerThanGathering) {
  double before = 0;
  for (const double gb_per_s : {1.0, 0.1, 0.01, 1e-3, 1e-4}) {
    const double ring = long_step_ms(ContextMethod::ring, gb_per_s);
    EXPECT_GT(ring, before) << gb_per_s;
    EXPECT_LE(ring, long_step_ms(ContextMethod::all_gather, gb_per_s)) << gb_per_s;
    before = ring;
  }
}

TEST(ContextRing, WhatOfItIsExposedIsTheCauseTensorGroup) {
  const auto exposed_share = [](double gb_per_s) {
    const engine::Setup p = set_up(ring_of(4, [&](RunConfig& c) {
      c.train.seq_len = 4096;
      c.emulate.link_gb_per_s = gb_per_s;
    }));
    Measurement m = simulate(p, simulated_times(p, nullptr));
    account::fill_peers_arrived(p.schedules, p.plan.groups, m.traces);
    const account::RunView view(p.schedules, m.traces);
    const account::CauseReport report = account::report_causes(view, p, account::run_metrics(view, p.plan.groups, 1));
    double share = 0;
    for (const account::CauseShare& cause : report.causes) {
      if (cause.cause == account::Cause::tensor_group) share += cause.share_pct;
    }
    return share;
  };
  EXPECT_LT(exposed_share(0.1), 1);
  EXPECT_GT(exposed_share(1e-3), 20);
}

TEST(ContextRing, RefusesAndTellsWhatDoesNotGoWithIt) {
  try {
    ring_of(2, [](RunConfig& c) { c.model.attention_sinks = true; });
    FAIL() << "sinks were taken";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("mesh.context_method = \"ring\" does not go with model.attention_sinks"));
  }
  RunConfig alone;
  alone.mesh.context_method = ContextMethod::ring;
  EXPECT_THAT(config::validate(alone), Contains(HasSubstr("mesh.context_method = \"ring\" has no effect")));
}

}  // namespace
}  // namespace fsdpbench::engine
