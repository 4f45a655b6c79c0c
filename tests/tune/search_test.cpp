#include "tune/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>

#include "support/emulated_machine.h"
#include "tune/emulated_search.h"

namespace fsdpbench::tune {
namespace {

using config::RunConfig;
using ::fsdpbench::testing::all_but;
using ::fsdpbench::testing::EmulatedMachine;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;

TEST(Search, OtherEnginesAreTried) {
  RunConfig config = tunable_config();
  config.fsdp.forward_prefetch.mode = config.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  const Space space(valid(config), {.any_engine = true});
  SearchOptions options;
  options.evaluations = 300;
  const SearchResult result = search_in(space, options);
  std::set<std::string> faster;
  for (const Tried& tried : result.tried) {
    for (std::size_t a = 0; a < tried.point.size(); ++a) {
      const Axis& axis = space.axes()[a];
      if (axis.name == "fsdp.preset" && tried.point[a] != 0 && tried.step_ns < result.start().step_ns) {
        faster.insert(axis.choices[tried.point[a]].text);
      }
    }
  }
  EXPECT_GT(faster.size(), 3U);
}

TEST(Search, OfEquallyGoodPoliciesTheOneWithLeastMemoryIsTheAnswer) {
  RunConfig config = tunable_config();
  config.emulate.link_gb_per_s = 1000;
  config.emulate.link_latency_us = 0;
  config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::unlimited, 2, 0};
  const Space space(valid(config), {.fixed = all_but({"fsdp.all_gather_limit", "fsdp.reduce_scatter_buffers"})});
  const SearchResult result = search_in(space, {});
  for (const Tried& tried : result.tried) {
    if (tried.step_ns <= shortest_ms(result) * 1e6) {
      EXPECT_GE(tried.need.live, result.tried[*result.best].need.live);
    }
  }
}

TEST(Search, IsTheSameForOneSeedOnAnyNumberOfThreads) {
  RunConfig config = tunable_config();
  config.emulate.link_gb_per_s = 0.1;
  const Space space(valid(config), {});
  SearchOptions options;
  options.evaluations = 200;
  options.threads = 1;
  const SearchResult one = search_in(space, options);
  options.threads = 3;
  const SearchResult three = search_in(space, options);
  ASSERT_EQ(one.tried.size(), three.tried.size());
  for (std::size_t i = 0; i < one.tried.size(); ++i) {
    EXPECT_EQ(one.tried[i].point, three.tried[i].point);
    EXPECT_EQ(one.tried[i].step_ns, three.tried[i].step_ns);
  }
  EXPECT_EQ(one.best, three.best);
  EXPECT_EQ(one.bound, three.bound);
}

TEST(Search, AMemoryBudgetThatNothingElseMeetsIsMetByOffload) {
  RunConfig config = tunable_config();
  const Space without(valid(config), {.fixed = all_but({})});
  SearchOptions options;
  const std::int64_t least = search_in(without, options).start().need.live;
  options.budget.bytes = least - 1;
  EXPECT_FALSE(search_in(without, options).best) << "no PCIe is named, so offload is not proposed";

  config.emulate.pcie_gb_per_s = 10;
  const Space with(valid(config), {.fixed = all_but({})});
  const SearchResult result = search_in(with, options);
  ASSERT_TRUE(result.best);
  EXPECT_NE(with.config_at(result.tried[*result.best].point)->fsdp.cpu_offload, config::CpuOffload::none);
  options.budget.bytes = least;
  const SearchResult enough = search_in(with, options);
  EXPECT_EQ(with.config_at(enough.tried[*enough.best].point)->fsdp.cpu_offload, config::CpuOffload::none);
}

TEST(Search, TheConfigurationInForceComesFirst) {
  const Space space(valid(tunable_config()), {});
  SearchOptions options;
  options.evaluations = 1;
  const SearchResult result = search_in(space, options);
  EXPECT_EQ(result.start().point, space.origin());
  EXPECT_EQ(result.start().step_ns, evaluate(space.start(), EmulatedMachine(), {}).step_ns);
}

TEST(Search, SingleChangesOfWhatIsInForceAreTriedBeforeAllElse) {
  RunConfig config = tunable_config();
  config.emulate.link_gb_per_s = 0.1;
  config.fsdp.forward_prefetch.mode = config.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  const Space space(valid(config), {});
  std::set<std::uint64_t> changes;  // by their schedules, of which some are alike
  for (std::size_t a = 0; a < space.axes().size(); ++a) {
    Point point = space.origin();
    for (point[a] = 1; point[a] < space.axes()[a].choices.size(); ++point[a]) {
      if (!space.holds(point)) continue;
      if (const auto changed = space.config_at(point))
        changes.insert(evaluate(*changed, EmulatedMachine(), {}).fingerprint);
    }
  }
  SearchOptions options;
  options.evaluations = 1 + static_cast<std::int64_t>(changes.size());
  for (const Tried& tried : search_in(space, options).tried) changes.erase(tried.fingerprint);
  EXPECT_EQ(changes.size(), 0U);
}

TEST(Search, ChangesAreCombinedWhereNothingFarFromThemFits) {
  RunConfig config = tunable_config();
  config.fsdp.forward_prefetch.mode = config.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  const Space space(valid(config), {});
  SearchOptions options;
  options.evaluations = 150;
  // Only prefetching is within the budget.
  options.budget = {.bytes = std::int64_t{1} << 40};
  options.budget.need_of = [&](const schedule::Training& training, std::int64_t) {
    RunConfig other = training.config;
    other.fsdp.forward_prefetch = config.fsdp.forward_prefetch;
    other.fsdp.backward_prefetch = config.fsdp.backward_prefetch;
    return MemoryNeed{options.budget.bytes + (other == space.start() ? 0 : 1), 0};
  };
  const SearchResult result = search_in(space, options);
  ASSERT_TRUE(result.best);
  const config::Fsdp best = space.config_at(result.tried[*result.best].point)->fsdp;
  EXPECT_NE(best.forward_prefetch.mode, config::Prefetch::Mode::none);
  EXPECT_NE(best.backward_prefetch.mode, config::Prefetch::Mode::none);
}

TEST(Search, OnlyWhatIsInForceMayLiveFromAnAllocatorThatReturnsItsCache) {
  const Space space(valid(tunable_config()), {});
  SearchOptions options;
  options.evaluations = 50;
  options.budget = {.bytes = 1000, .kind = MemoryKind::reserved};
  // Whatever is asked: 1200 bytes, or 900 if the cache goes back.
  options.budget.need_of = [](const schedule::Training&, std::int64_t capacity) {
    return MemoryNeed{0, capacity == 0 ? 1200 : 900};
  };
  const SearchResult tight = search_in(space, options);
  EXPECT_TRUE(tight.start().fits);
  EXPECT_TRUE(tight.start().retries);
  EXPECT_EQ(tight.start().need.reserved, 1200);
  ASSERT_TRUE(tight.best);
  EXPECT_EQ(*tight.best, 0U);
  options.budget.need_of = [](const schedule::Training&, std::int64_t) { return MemoryNeed{0, 1200}; };
  EXPECT_FALSE(search_in(space, options).start().fits);
  EXPECT_FALSE(search_in(space, options).best);
}

TEST(Search, WhatIsAskedToStopEndsWithTheBestSoFar) {
  const Space space(valid(tunable_config()), {});
  SearchOptions options;
  int asked = 0;
  options.threads = 1;
  options.stop = [&] { return ++asked > 300; };
  const SearchResult result = search_in(space, options);
  EXPECT_TRUE(result.stopped);
  ASSERT_TRUE(result.best);
  EXPECT_GT(result.left, 0);
  EXPECT_LE(result.tried[*result.best].step_ns, result.start().step_ns);
}

/// A machine that counts how often it is asked.
class CountingMachine final : public clock::Machine {
 public:
  std::vector<plan::ModuleSizes> sizes(const RunConfig& config) const override { return machine_.sizes(config); }
  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& changes = {}) const override {
    return machine_.forecast(training, changes);
  }
  clock::LeastTimes least_times(const schedule::Training& training) const override {
    ++bounded;
    return machine_.least_times(training);
  }
  bool in_doubt() const override { return false; }

  mutable std::atomic<int> bounded{0};

 private:
  ::fsdpbench::testing::EmulatedMachine machine_;
};

TEST(Search, OfTooManyStructuresSomeAreBoundedAndThatIsSaid) {
  const Space space(valid(tunable_config()), {});
  SearchOptions options;
  options.evaluations = 300;
  const CountingMachine all;
  const SearchResult known = search(space, all, options);
  EXPECT_TRUE(known.bounded);
  ASSERT_GT(all.bounded, 300);
  options.structures = 10;  // fewer than evaluations, which count then
  const CountingMachine some;
  const SearchResult result = search(space, some, options);
  EXPECT_EQ(some.bounded, 300);
  EXPECT_FALSE(result.bounded);
  EXPECT_EQ(result.bound, 0);
  EXPECT_GT(result.left, 0);
  EXPECT_EQ(result.considered() + result.left, space.size());
  ASSERT_TRUE(result.best);
  EXPECT_LT(best_ms(result), result.start().step_ns / 1e6);
  options.seed = 2;  // others are drawn
  const SearchResult other = search(space, some, options);
  EXPECT_NE(other.pruned, result.pruned);
}

TEST(Search, ABudgetThatNothingFitsHasNoAnswer) {
  const Space space(valid(tunable_config()), {.fixed = all_but({"fsdp.wrap", "fsdp.strategy", "mesh.shard"})});
  SearchOptions options;
  options.budget.bytes = 1000;
  EXPECT_FALSE(search_in(space, options).best);

  options.objective = Objective::memory;
  options.any_step = true;
  options.budget.bytes = 0;
  const SearchResult least = search_in(space, options);
  ASSERT_TRUE(least.best);
  options.budget.bytes = least.tried[*least.best].need.live;
  options.objective = Objective::step;
  EXPECT_TRUE(search_in(space, options).best);
  --options.budget.bytes;
  EXPECT_FALSE(search_in(space, options).best);
}

TEST(Search, TheLeastMemoryIsOfStepsNoLongerThanInForce) {
  RunConfig config = tunable_config();
  config.fsdp.strategy = config::Strategy::no_shard;
  config.emulate.link_gb_per_s = 10;
  const Space space(valid(config), {});
  SearchOptions options;
  options.objective = Objective::memory;
  options.evaluations = 500;
  const SearchResult result = search_in(space, options);
  ASSERT_TRUE(result.best);
  EXPECT_LT(result.tried[*result.best].need.live, result.start().need.live);
  EXPECT_LE(result.tried[*result.best].step_ns, result.start().step_ns);
}

TEST(Search, MoreTokensASecondMayTakeALargerBatch) {
  RunConfig config = tunable_config();
  config.emulate.link_gb_per_s = 0.05;
  const Space space(valid(config), {.fixed = all_but({"train.batch_per_rank"}), .free_batch = true});
  SearchOptions options;
  options.objective = Objective::tokens_per_s;
  const SearchResult result = search_in(space, options);
  EXPECT_EQ(space.config_at(result.tried[*result.best].point)->train.batch_per_rank, 64);
}

// ------------------------------------------------------------------------------------------------- every axis is used

struct Turned {
  const char* axis;
  std::vector<std::string> keys;
  std::function<void(RunConfig&)> start;  ///< where turning this axis is the answer
  std::vector<std::string> dtypes = {};
};

void PrintTo(const Turned& turned, std::ostream* out) { *out << turned.axis; }

class EachAxis : public ::testing::TestWithParam<Turned> {};

TEST_P(EachAxis, IsTheAnswerWhereItHelps) {
  RunConfig config = tunable_config();
  GetParam().start(config);
  const Space space(valid(config), {.fixed = all_but(GetParam().keys), .dtypes = GetParam().dtypes});
  const SearchResult result = search_in(space, {});
  ASSERT_TRUE(result.best);
  const Tried& best = result.tried[*result.best];
  EXPECT_LT(best.step_ns, result.start().step_ns * 0.995);
  for (std::size_t a = 0; a < best.point.size(); ++a) {
    EXPECT_EQ(best.point[a] != 0, space.axes()[a].name == GetParam().axis) << space.axes()[a].name;
  }
}

void slow_link(RunConfig& c) { c.emulate.link_gb_per_s = 0.1; }
void accumulating(RunConfig& c) {
  slow_link(c);
  c.train.accumulate = 4;
}

INSTANTIATE_TEST_SUITE_P(
    All, EachAxis,
    ::testing::Values(Turned{"fsdp.strategy", {"fsdp.strategy", "mesh.shard", "mesh.replicate"}, slow_link},
                      Turned{"fsdp.reshard_after_forward", {"fsdp.reshard_after_forward"}, slow_link},
                      Turned{"fsdp.wrap", {"fsdp.wrap"}, [](RunConfig& c) { c.emulate.link_latency_us = 500; }},
                      Turned{"fsdp.head_unit",
                             {"fsdp.head_unit"},
                             [](RunConfig& c) {  // the head's gradients need not wait for the embedding's
                               c.emulate.link_gb_per_s = 1;
                               c.model.vocab = 8192;
                             }},
                      Turned{"fsdp.activation_checkpointing",
                             {"fsdp.activation_checkpointing", "fsdp.checkpoint_every"},
                             [](RunConfig& c) {
                               c.fsdp.activation_checkpointing = true;
                               c.emulate.link_gb_per_s = 10;
                             }},
                      Turned{"train.batch_per_rank", {"train.batch_per_rank", "train.accumulate"}, accumulating},
                      Turned{"train.accumulate_mode", {"train.accumulate_mode"}, accumulating},
                      Turned{"fsdp.reshard_after_backward", {"fsdp.reshard_after_backward"}, accumulating},
                      Turned{"fsdp.param_dtype", {"fsdp.param_dtype"}, slow_link, {"bf16"}},
                      Turned{"fsdp.reduce_dtype", {"fsdp.reduce_dtype"}, slow_link, {"bf16"}},
                      Turned{"fsdp.forward_prefetch",
                             {"fsdp.forward_prefetch"},
                             [](RunConfig& c) { c.fsdp.forward_prefetch.mode = config::Prefetch::Mode::none; }},
                      Turned{"fsdp.backward_prefetch",
                             {"fsdp.backward_prefetch"},
                             [](RunConfig& c) { c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none; }},
                      Turned{"fsdp.all_gather_limit",
                             {"fsdp.all_gather_limit"},
                             [](RunConfig& c) {
                               c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, 1, 0};
                             }},
                      Turned{"fsdp.reduce_scatter_buffers",
                             {"fsdp.reduce_scatter_buffers"},
                             [](RunConfig& c) {
                               c.emulate.link_latency_us = 0;
                               c.fsdp.separate_reduce_scatter_comm = true;
                               c.fsdp.backward_prefetch = {config::Prefetch::Mode::explicit_, 2};
                             }},
                      Turned{"fsdp.separate_reduce_scatter_comm",
                             {"fsdp.separate_reduce_scatter_comm"},
                             [](RunConfig& c) { c.emulate.link_latency_us = 300; }}),
    [](const auto& turned) {
      std::string name = turned.param.axis;
      std::ranges::replace(name, '.', '_');
      return name;
    });

}  // namespace
}  // namespace fsdpbench::tune
