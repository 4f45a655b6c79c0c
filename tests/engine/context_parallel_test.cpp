// mesh.context on plan, schedule and computed clock: exact order, bytes, memory and work by hand.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/communication_formula.h"
#include "support/small_simulation.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using schedule::Op;
using schedule::OpKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One block with two heads of queries and one of keys, on four ranks, of which two split each sequence.
RunConfig long_sequences(const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::small_simulation();
  c.model.kv_heads = 1;
  c.mesh.ranks = 4;
  c.mesh.context = 2;
  if (change) change(c);
  config::validate(c);
  return c;
}

std::string context_error(const std::function<void(RunConfig&)>& change) {
  return testing::refusal([&] { long_sequences(change); });
}

TEST(ContextParallel, KeysAndValuesAreGatheredInEachPassAndTheirGradientsAddedUp) {
  const engine::Setup p = set_up(long_sequences());
  EXPECT_TRUE(schedule::check_schedules(p.schedules).empty());
  std::vector<std::string> of_block;
  for (const Op& op : p.schedules.steady().ops) {
    const bool pass = op.kind == OpKind::forward || op.kind == OpKind::backward;
    if (op.module == 1 && (pass || op.exchanges_parts())) of_block.push_back(schedule::op_name(p.plan, op));
    if (!op.exchanges_parts()) continue;
    EXPECT_EQ(op.group(), schedule::Group::context);
    EXPECT_EQ(op.collective()->count, 2 * 4 * 8);  // keys and values of 4 tokens, a head of 8
  }
  EXPECT_THAT(of_block, ElementsAre("forward blocks.0/0", "tensor_all_gather blocks.0", "forward blocks.0/1",
                                    "backward blocks.0/0", "tensor_all_gather blocks.0", "backward blocks.0/1",
                                    "tensor_reduce_scatter blocks.0", "backward blocks.0/2"));
}

TEST(ContextParallel, ParametersAreShardedOverAllRanksAndNeighboursSplitSequences) {
  const engine::Setup p = set_up(long_sequences());
  EXPECT_EQ(p.plan.units.front().layout.shards, 4);
  EXPECT_THAT(p.plan.groups.members(plan::Group::context, 3).ranks(), ElementsAre(2, 3));
}

TEST(ContextParallel, ItsBytesAreThoseOfKeysAndValues) {
  const auto volume = [](std::int64_t context) {
    const RunConfig c = long_sequences([&](RunConfig& config) { config.mesh.context = context; });
    const engine::Setup p = set_up(c);
    return plan::communication_volume(p.plan, c, schedule::regathers(p.policy, p.plan));
  };
  const plan::CommunicationVolume without = volume(1), with = volume(2);
  const double half = 2 * 8 * 8 * 4 / 2;  // of all keys and values in fp32
  EXPECT_EQ(with.all_gather - without.all_gather, 2 * half);
  EXPECT_EQ(with.reduce_scatter - without.reduce_scatter, half);
}

TEST(ContextParallel, EachRankHasItsPartOfTheWorkAndOfWhatIsKept) {
  const engine::Setup without = set_up(long_sequences([](RunConfig&c) { c.mesh.context = 1; })),
                      with = set_up(long_sequences());
  const plan::ModuleSizes &whole = without.sizes[1], &part = with.sizes[1];
  EXPECT_EQ(part.output_bytes * 2, whole.output_bytes);
  EXPECT_LT(part.saved_bytes, whole.saved_bytes);
  EXPECT_DOUBLE_EQ(part.forward_flops * 2, whole.forward_flops);
  EXPECT_DOUBLE_EQ(part.backward_flops * 2, whole.backward_flops);
  EXPECT_EQ(part.backward_parts[1].bytes(2), 2 * 2 * 8 * 8 * 4);  // all keys and values, and their gradients
}

/// Attention waits for keys and values in forward and backward, and backward's end for the sum of their gradients.
TEST(ContextParallel, AStepIsItsPartOfTheWorkAndItsExchanges) {
  const auto step_ms = [](std::int64_t context, double gb_per_s) {
    return testing::median_step_ms(long_sequences([&](RunConfig& c) {
      c.mesh.context = context;
      c.emulate.link_latency_us = 0;
      c.emulate.link_gb_per_s = gb_per_s;
    }));
  };
  constexpr double kNoTime = 1e6, kSlow = 1e-4;
  EXPECT_NEAR(step_ms(2, kNoTime) / step_ms(1, kNoTime), 0.5, 0.01);
  // Over slow links a step is what is sent one after the other: besides parameters and their gradients, as large for
  // both, 2 * 4 * 8 numbers of 4 bytes three times. But for computation that these hide.
  const double exchanges = 3 * 2 * 4 * 8 * 4 / (kSlow * 1e9) * 1e3;
  const double one = step_ms(1, kSlow) - step_ms(1, kNoTime), two = step_ms(2, kSlow) - step_ms(2, kNoTime);
  EXPECT_NEAR(two - one, exchanges, 0.02 * exchanges);
}

TEST(ContextParallel, RefusesWhatItDoesNotGoWith) {
  EXPECT_THAT(context_error([](RunConfig& c) { c.train.seq_len = 6; }),
              HasSubstr("4 does not divide train.seq_len = 6"));
  EXPECT_THAT(context_error([](RunConfig& c) { c.mesh.ranks = 3; }),
              HasSubstr("does not divide the shard group of 3 ranks"));
  EXPECT_THAT(context_error([](RunConfig& c) { c.model.kv_heads = c.mesh.tensor = 2; }),
              HasSubstr("does not go with mesh.tensor"));
}

}  // namespace
}  // namespace fsdpbench::engine
