// fsdp.cast_in_optimizer changes when shards are rounded, never to what.
#include <gtest/gtest.h>

#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Layout;
using config::Optimizer;
using config::ReshardAfterForward;
using config::RunConfig;
using config::Strategy;

TEST(CastInOptimizerRun, LeavesEveryBitOfTheParametersAsItIs) {
  int runs = 0;
  for (const Strategy strategy : {Strategy::no_shard, Strategy::full_shard, Strategy::hybrid_shard}) {
    for (const Layout layout : {Layout::per_param, Layout::flat}) {
      for (const int variant : {0, 1, 2, 3}) {
        RunConfig c = testing::tiny_decoder();
        c.train.steps = 3;  // what the first update wrote is gathered, and what a later one wrote over it
        c.fsdp.strategy = strategy;
        c.fsdp.layout = layout;
        c.fsdp.param_dtype = c.fsdp.reduce_dtype = DType::bf16;
        if (strategy == Strategy::hybrid_shard) c.mesh = {4, 2, 2};
        if (variant == 1) c.train.optimizer = Optimizer::sgd;
        if (variant == 2) c.train.clip_norm = 0.05;
        if (variant == 2) c.fsdp.shard_threshold = 600;  // some are replicated: their update writes no shard
        if (variant == 3) c.fsdp.persistence_threshold = 4000;
        const Measurement without = testing::run_tiny(c);
        c.fsdp.cast_in_optimizer = true;
        const Measurement with = testing::run_tiny(c);
        EXPECT_EQ(with.parameters_digest.value(), without.parameters_digest.value())
            << "strategy " << static_cast<int>(strategy) << ", layout " << static_cast<int>(layout) << ", variant "
            << variant;
        EXPECT_EQ(with.losses, without.losses);
        ++runs;
      }
    }
  }
  EXPECT_EQ(runs, 24);
}

TEST(CastInOptimizerRun, OneRankAndGroupsOfAReshardHaveTheSameBits) {
  for (const bool alone : {true, false}) {
    for (const Layout layout : {Layout::per_param, Layout::flat}) {
      RunConfig c = testing::tiny_decoder();
      c.train.steps = 3;
      c.fsdp.layout = layout;
      c.fsdp.param_dtype = DType::bf16;
      if (alone) c.mesh = {1, 1, 1};
      if (!alone) c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
      const std::string expected = testing::run_tiny(c).parameters_digest.value();
      c.fsdp.cast_in_optimizer = true;
      EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << alone << static_cast<int>(layout);
    }
  }
}

}  // namespace
}  // namespace fsdpbench::engine
