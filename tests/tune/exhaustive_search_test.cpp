#include <gtest/gtest.h>

#include "support/emulated_machine.h"
#include "tune/emulated_search.h"

// The search against walking everything: what it finds, what it says of the rest, and what it may prune.

namespace fsdpbench::tune {
namespace {

using config::RunConfig;
using ::fsdpbench::testing::all_but;
using ::fsdpbench::testing::EmulatedMachine;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;

/// A question that walking everything answers.
struct Scenario {
  RunConfig config;
  std::vector<std::string> turned;
  double budget = 0;  ///< of what the current configuration needs; 0: none
};

std::vector<Scenario> scenarios() {
  const std::vector<std::vector<std::string>> turned{
      {"fsdp.strategy", "mesh.shard", "mesh.replicate", "fsdp.forward_prefetch", "fsdp.all_gather_limit"},
      {"fsdp.wrap", "fsdp.activation_checkpointing", "fsdp.checkpoint_every", "fsdp.backward_prefetch",
       "fsdp.reduce_scatter_buffers"},
      {"fsdp.reshard_after_forward", "fsdp.activation_checkpointing", "fsdp.checkpoint_every",
       "fsdp.separate_reduce_scatter_comm", "fsdp.all_gather_limit"},
      {"train.batch_per_rank", "train.accumulate", "train.accumulate_mode", "fsdp.reshard_after_backward",
       "fsdp.forward_prefetch", "fsdp.backward_prefetch"}};
  const std::vector<std::vector<int>> regimes{{0, 2}, {1, 3}, {4}, {3}};
  std::vector<Scenario> all;
  for (std::size_t t = 0; t < turned.size(); ++t) {
    for (const int regime : regimes[t]) {
      RunConfig c = tunable_config();
      c.model.layers = 4;
      c.emulate.link_gb_per_s = std::vector<double>{0.05, 0.4, 4.0}.at(static_cast<std::size_t>(regime) % 3);
      c.emulate.link_latency_us = regime % 2 == 0 ? 5 : 100;
      if (t == 3) c.train.accumulate = 4;
      if (regime == 4) {
        c.model.kind = config::ModelKind::mlp;
        c.model.layers = 8;
        c.model.in_features = c.model.out_features = 64;
        c.emulate.compute_tflops = 0.001;
      }
      if (regime == 3) c.model.vocab = 4096;
      all.push_back({c, turned[t], regime < 3 ? 0.0 : regime == 3 ? 1.0 : 1.2});
    }
  }
  return all;
}

/// With a quarter of the evaluations that all take the answer is within six percent of the best; with as many as it
/// wants it is the best, whatever was pruned on the way.
TEST(ExhaustiveSearch, AnswersAreThoseOfAWalkOverEverything) {
  const EmulatedMachine machine;
  int number = 0;
  for (const Scenario& scenario : scenarios()) {
    const Space space(valid(scenario.config), {.fixed = all_but(scenario.turned)});
    SearchOptions options;
    if (scenario.budget > 0) {
      const Tried start = evaluate(space.start(), machine, {});
      options.budget.bytes = static_cast<std::int64_t>(scenario.budget * static_cast<double>(start.need.live));
    }
    options.exhaustive = true;
    const SearchResult all = search_in(space, options);
    EXPECT_EQ(all.left, 0) << number;
    EXPECT_EQ(all.pruned, 0) << number;
    EXPECT_EQ(all.considered(), space.size()) << number;
    options.exhaustive = false;
    options.evaluations = static_cast<std::int64_t>(all.evaluated / 4);
    const SearchResult found = search_in(space, options);
    ASSERT_TRUE(all.best && found.best) << number;
    EXPECT_LE(best_ms(found), best_ms(all) * 1.06) << number;
    EXPECT_LE(found.bound, shortest_ms(all) * 1e6) << number;  // what is said of the rest is true
    EXPECT_EQ(found.considered() + found.left, space.size()) << number;
    options.evaluations = 1'000'000;
    const SearchResult pruned = search_in(space, options);
    EXPECT_EQ(pruned.left, 0) << number;
    EXPECT_LE(optimality_gap(Objective::step, pruned), 0.001) << number;
    EXPECT_DOUBLE_EQ(shortest_ms(pruned), shortest_ms(all)) << number;
    EXPECT_LE(best_ms(pruned), shortest_ms(all) * 1.001) << number;
    ++number;
  }
  EXPECT_EQ(number, 6);
}

}  // namespace
}  // namespace fsdpbench::tune
