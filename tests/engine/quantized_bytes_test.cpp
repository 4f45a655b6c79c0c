// Fewer bits on the wire (ZeRO++) on a computed clock: the bytes that the formula says, and the memory that the
// schedule says, in whatever order.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/communication.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"
#include "schedule/prefetcher.h"
#include "support/random_config.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using ::fsdpbench::testing::pick;

RunConfig quantised(RunConfig c, Quantization gathers, Quantization reductions, int within) {
  c.fsdp.gather_quantization = gathers;
  c.fsdp.reduce_quantization = reductions;
  c.fsdp.reduce_within = within;
  return c;
}

/// What changes the order of ops and not what is sent.
void reorder(RunConfig& c, std::mt19937& random) {
  using namespace config;  // NOLINT: nothing here but settings
  Fsdp& f = c.fsdp;
  f.strategy = pick(random, {Strategy::shard_grad_op, Strategy::full_shard});
  testing::reorder(random, f);
  if (pick(random, {false, true})) testing::other_engines(random, f);
  f.reduce_by = ReduceBy::reduce_scatter;
  f.head_unit = false;  // it changes what lies in a block of numbers
}

TEST(QuantizedBytes, AreThoseOfTheFormulaInEveryOrderAndSoIsTheMemory) {
  std::mt19937 random(2306);
  for (const auto& [ranks, within] : {std::pair{2, 0}, {4, 2}, {4, 0}, {8, 4}}) {
    for (const config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
      for (int i = 0; i < 4; ++i) {
        RunConfig c = quantised(testing::tiny_decoder(), {8, 64}, {4, 32}, within);
        c.mesh.ranks = ranks;
        c.fsdp.layout = layout;
        c.train.warmup = 2;
        c.train.steps = 2;
        c.emulate.compute_tflops = c.emulate.link_gb_per_s = 1;
        reorder(c, random);
        c = testing::settled(c);
        const engine::Setup setup = set_up(c);
        const Measurement result = testing::simulate_tiny(c);
        const PoolStatistics memory = schedule::memory_walk(setup.schedules, 4);
        const plan::CommunicationVolume volume =
            plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan));
        for (std::size_t rank = 0; rank < result.memory.size(); ++rank) {
          EXPECT_EQ(result.memory[rank].peak_occupied, memory.peak_occupied) << "case " << i;
          EXPECT_EQ(result.memory[rank].peak_occupied_total, memory.peak_occupied_total) << "case " << i;
          const backend::WireBytes& bytes = result.wire_bytes[rank];
          EXPECT_EQ(bytes[0], std::llround(2 * volume.all_gather)) << "case " << i;
          EXPECT_EQ(bytes[1], 0) << "case " << i;
          EXPECT_EQ(bytes[4], std::llround(2 * volume.all_to_all)) << "case " << i;
        }
      }
    }
  }
}

TEST(QuantizedBytes, EachKeyDoesWhatItSays) {
  const RunConfig base = testing::tiny_decoder();
  const auto sent = [](const RunConfig& asked) {
    const RunConfig c = testing::settled(asked);
    const engine::Setup s = set_up(c);
    return plan::communication_volume(s.plan, c, schedule::regathers(s.policy, s.plan));
  };
  const plan::CommunicationVolume plain = sent(base);
  const RunConfig gathers = quantised(base, {8, 64}, {}, 0), reductions = quantised(base, {}, {8, 64}, 0);
  EXPECT_NEAR(sent(gathers).all_gather / plain.all_gather, (1 + 4.0 / 64) / 4, 0.01);
  EXPECT_EQ(sent(gathers).reduce_scatter, plain.reduce_scatter);
  EXPECT_NEAR(sent(reductions).all_to_all / plain.reduce_scatter, (1 + 4.0 / 64) / 4, 0.01);
  EXPECT_EQ(sent(reductions).reduce_scatter, 0);
  EXPECT_EQ(sent(reductions).all_gather, plain.all_gather);
  // In nodes as many bytes are sent, but not as far: of 8 ranks in two nodes, 6 of 7 parts stay inside.
  RunConfig eight = base;
  eight.mesh.ranks = 8;
  EXPECT_EQ(sent(quantised(eight, {}, {8, 64}, 4)).all_to_all, sent(quantised(eight, {}, {8, 64}, 0)).all_to_all);
  const engine::Setup nodes = set_up(testing::settled(quantised(eight, {}, {8, 64}, 4)));
  std::int64_t inside = 0, outside = 0;
  for (const schedule::Op& op : nodes.schedules.steady().ops) {
    if (op.group() == plan::Group::reduce_within) inside += 3 * op.collective()->bytes();
    if (op.group() == plan::Group::reduce_across) outside += 1 * op.collective()->bytes();
  }
  EXPECT_GT(outside, 0);
  EXPECT_EQ(inside, 6 * outside);
}

}  // namespace
}  // namespace fsdpbench::engine
