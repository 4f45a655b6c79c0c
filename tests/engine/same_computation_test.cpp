// FSDP changes where bytes live, never what is computed: the digest of all parameters after five steps is one and the
// same, whatever the strategy, layout, prefetch mode, limit, wrapping, or speed of any lane.
#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

struct Variant {
  const char* name;
  std::function<void(RunConfig&)> change;
};

/// Every `n`th of them, beginning with number `first`: where all policies are asked elsewhere, as with whole layers.
std::vector<Variant> every(std::size_t n, std::size_t first, const std::vector<Variant>& variants) {
  std::vector<Variant> some;
  for (std::size_t i = first; i < variants.size(); i += n) some.push_back(variants[i]);
  return some;
}

void expect_one_digest(const RunConfig& base, const std::vector<Variant>& variants) {
  const std::string expected = testing::run_tiny(base).parameters_digest.value();
  for (const Variant& v : variants) {
    RunConfig c = base;
    v.change(c);
    EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << v.name;
  }
}

const std::vector<Variant> kPolicies{
    {"no_shard", [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; }},
    {"no_shard flat",
     [](RunConfig& c) {
       c.fsdp.strategy = Strategy::no_shard;
       c.fsdp.layout = Layout::flat;
     }},
    {"shard_grad_op", [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; }},
    {"shard_grad_op flat",
     [](RunConfig& c) {
       c.fsdp.strategy = Strategy::shard_grad_op;
       c.fsdp.layout = Layout::flat;
     }},
    {"flat", [](RunConfig& c) { c.fsdp.layout = Layout::flat; }},
    {"reshard always", [](RunConfig& c) { c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::always; }},
    {"reshard never", [](RunConfig& c) { c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::never; }},
    {"reshard to 2",
     [](RunConfig& c) {
       c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
     }},
    {"reshard to 2 flat",
     [](RunConfig& c) {
       c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
       c.fsdp.layout = Layout::flat;
     }},
    {"forward none", [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; }},
    {"forward 2",
     [](RunConfig& c) {
       c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
     }},
    {"backward none", [](RunConfig& c) { c.fsdp.backward_prefetch.mode = Prefetch::Mode::none; }},
    {"backward post", [](RunConfig& c) { c.fsdp.backward_prefetch.mode = Prefetch::Mode::post; }},
    {"backward 3",
     [](RunConfig& c) {
       c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 3};
     }},
    {"unlimited", [](RunConfig& c) { c.fsdp.all_gather_limit.mode = AllGatherLimit::Mode::unlimited; }},
    {"fsdp1_queue",
     [](RunConfig& c) {
       c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 2, 0};
     }},
    {"strict 1 flat",
     [](RunConfig& c) {
       c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 1, 0};
       c.fsdp.layout = Layout::flat;
     }},
    {"strict 2",
     [](RunConfig& c) {
       c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 2, 0};
     }},
    {"bytes",
     [](RunConfig& c) {
       c.fsdp.all_gather_limit = {AllGatherLimit::Mode::bytes, 0, 40000};
     }},
    {"three reduce-scatter buffers", [](RunConfig& c) { c.fsdp.reduce_scatter_buffers = 3; }},
    {"unbounded reduce-scatter buffers", [](RunConfig& c) { c.fsdp.reduce_scatter_buffers = 0; }},
    {"separate communicator", [](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }},
    {"blocks:2",
     [](RunConfig& c) {
       c.fsdp.wrap = {Wrap::Mode::blocks, 2, 0};
     }},
    {"whole model", [](RunConfig& c) { c.fsdp.wrap.mode = Wrap::Mode::model; }},
    {"checkpointing", [](RunConfig& c) { c.fsdp.activation_checkpointing = true; }},
    {"small parameters replicated", [](RunConfig& c) { c.fsdp.shard_threshold = 600; }},
    {"all parameters replicated", [](RunConfig& c) { c.fsdp.shard_threshold = 1 << 30; }},
    {"sums, divided after", [](RunConfig& c) { c.fsdp.gradient_scaling = GradientScaling::sum; }},
    {"divided before and after", [](RunConfig& c) { c.fsdp.gradient_scaling = GradientScaling::pre_post_divide; }},
    {"fsdp1",
     [](RunConfig& c) {
       c.fsdp.learn_execution_order = true;
       c.fsdp.layout = Layout::flat;
       c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 2, 0};
       c.fsdp.reduce_scatter_buffers = 0;
       c.fsdp.gradient_scaling = GradientScaling::pre_post_divide;
     }},
};

TEST(SameComputation, EveryPolicyInFp32) { expect_one_digest(testing::tiny_decoder(), kPolicies); }

TEST(SameComputation, EveryPolicyWithFp32Gradients) {
  RunConfig base = testing::tiny_decoder();
  base.fsdp.param_dtype = DType::bf16;
  const std::string rounded = testing::run_tiny(base).parameters_digest.value();
  base.fsdp.fp32_gradients = true;
  EXPECT_NE(testing::run_tiny(base).parameters_digest.value(), rounded);
  expect_one_digest(base, kPolicies);
}

TEST(SameComputation, EveryPolicyInBf16) {
  RunConfig base = testing::tiny_decoder();
  base.fsdp.param_dtype = DType::bf16;
  base.fsdp.reduce_dtype = DType::bf16;
  expect_one_digest(base, kPolicies);
}

TEST(SameComputation, EveryPolicyOnAnMlpWhoseRootIsEmpty) {
  RunConfig base = testing::tiny_decoder();
  base.model.kind = ModelKind::mlp;
  base.model.in_features = 13;
  base.model.out_features = 7;
  base.train.optimizer = Optimizer::sgd;
  expect_one_digest(base, kPolicies);
}

TEST(SameComputation, EveryPolicyWithClippingAndATiedHead) {
  RunConfig base = testing::tiny_decoder();
  base.model.tied_head = true;
  base.train.clip_norm = 0.05;
  expect_one_digest(base, kPolicies);
}

RunConfig ranks_split_layers(bool tokens) {
  RunConfig config = testing::splittable_decoder();
  config.mesh.ranks = 8;
  config.mesh.tensor = 2;
  config.mesh.sequence_parallel = tokens;
  config.train.clip_norm = 0.05;
  return config;
}

RunConfig with_a_tied_head_in_bf16(RunConfig config) {
  config.model.tied_head = true;
  config.fsdp.param_dtype = DType::bf16;
  config.train.accumulate = 2;
  return config;
}

TEST(SameComputation, PoliciesWhereRanksSplitLayers) {
  expect_one_digest(ranks_split_layers(false), every(3, 0, kPolicies));
}

TEST(SameComputation, PoliciesWhereRanksSplitLayersAndTokensWithATiedHeadInBf16) {
  RunConfig base = with_a_tied_head_in_bf16(ranks_split_layers(true));
  base.mesh.ranks = 4;
  expect_one_digest(base, every(3, 1, kPolicies));
}

TEST(SameComputation, AccumulationWithinItsMode) {
  for (AccumulateMode mode : {AccumulateMode::reduce_each, AccumulateMode::no_sync}) {
    RunConfig base = testing::tiny_decoder();
    base.train.accumulate = 2;
    base.train.accumulate_mode = mode;
    std::vector<Variant> variants = every(2, mode == AccumulateMode::no_sync, kPolicies);
    variants.push_back({"kept between microbatches", [](RunConfig& c) { c.fsdp.reshard_after_backward = false; }});
    expect_one_digest(base, variants);
  }
}

TEST(SameComputation, HybridHasItsOwnDigestTheSameForAllItsModes) {
  RunConfig base = testing::tiny_decoder();
  base.mesh = {6, 2, 3};
  base.fsdp.strategy = Strategy::hybrid_shard;
  base.train.accumulate = 2;
  for (AccumulateMode mode : {AccumulateMode::reduce_each, AccumulateMode::reduce_scatter_only}) {
    base.train.accumulate_mode = mode;
    std::vector<Variant> variants;
    for (const Variant& v : every(2, mode == AccumulateMode::reduce_scatter_only, kPolicies)) {
      const std::string name = v.name;
      if (name.starts_with("no_shard") || name.starts_with("shard_grad_op")) continue;
      // Six ranks: dividing by two and by three is not dividing by six. Replicated parameters are reduced each time.
      if (name.starts_with("sums") || name.starts_with("divided") || name == "fsdp1") continue;
      if (mode == AccumulateMode::reduce_scatter_only && name.find("replicated") != std::string::npos) continue;
      variants.push_back(v);
    }
    variants.push_back(
        {"hybrid_shard_grad_op", [](RunConfig& c) { c.fsdp.strategy = Strategy::hybrid_shard_grad_op; }});
    expect_one_digest(base, variants);
  }
}

TEST(SameComputation, DelayedAndPoisoned) {
  // Slow lanes and ranks, and freed memory full of NaN: a buffer freed one event too early would show.
  RunConfig base = testing::tiny_decoder();
  base.train.steps = 2;
  std::vector<Variant> variants;
  for (const char* lane : {"compute", "all_gather", "reduce_scatter", "copy"}) {
    for (int rank : {-1, 2}) {
      variants.push_back({lane, [lane, rank](RunConfig& c) {
                            c.inject.delay_lane = lane;
                            c.inject.delay_rank = rank;
                            c.inject.delay_us = 1500;
                            c.inject.poison_freed_memory = true;
                          }});
    }
  }
  for (Layout layout : {Layout::per_param, Layout::flat}) {
    base.fsdp.layout = layout;
    expect_one_digest(base, variants);
  }
}

TEST(SameComputation, DelaysOnTheAllReduceLane) {
  RunConfig base = testing::tiny_decoder();
  base.mesh = {4, 2, 2};
  base.fsdp.strategy = Strategy::hybrid_shard;
  base.train.steps = 2;
  expect_one_digest(base, {{"all_reduce", [](RunConfig& c) {
                              c.inject.delay_lane = "all_reduce";
                              c.inject.delay_us = 1500;
                              c.inject.poison_freed_memory = true;
                            }}});
}

TEST(SameComputation, DelaysOnTheTensorLane) {
  RunConfig base = testing::splittable_decoder();
  base.mesh.tensor = 2;
  base.train.steps = 2;
  base.fsdp.activation_checkpointing = true;
  for (const bool tokens : {false, true}) {
    base.mesh.sequence_parallel = tokens;
    std::vector<Variant> variants;
    for (const char* lane : {"tensor", "compute", "all_gather"}) {
      variants.push_back({lane, [lane](RunConfig& c) {
                            c.inject.delay_lane = lane;
                            c.inject.delay_rank = 1;
                            c.inject.delay_us = 1500;
                            c.inject.poison_freed_memory = true;
                          }});
    }
    expect_one_digest(base, variants);
  }
}

double relative_distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double difference = 0, norm = 0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      difference += std::pow(static_cast<double>(a[p][i]) - static_cast<double>(b[p][i]), 2);
      norm += std::pow(static_cast<double>(b[p][i]), 2);
    }
  }
  return std::sqrt(difference / norm);
}

TEST(SameComputation, AnyNumberOfRanksAgreesWithOneOnTheGlobalBatch) {
  constexpr double kTolerance = 1e-5;
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (Optimizer optimizer : {Optimizer::sgd, Optimizer::adamw}) {
      RunConfig many = testing::tiny_decoder();
      many.mesh.ranks = ranks;
      many.train.batch_per_rank = 2;
      many.train.optimizer = optimizer;
      many.fsdp.gradient_scaling = GradientScaling::pre_post_divide;  // differs from the mean for 3 and 5
      RunConfig one = many;
      one.mesh.ranks = 1;
      one.train.batch_per_rank = 2 * ranks;
      const Measurement a = testing::run_tiny(many);
      const Measurement b = testing::run_tiny(one);
      EXPECT_LT(relative_distance(a.parameters, b.parameters), kTolerance) << ranks << " ranks";
      for (std::size_t i = 0; i < a.losses.size(); ++i) {
        EXPECT_NEAR(a.losses[i], b.losses[i], kTolerance * b.losses[i]) << ranks << " ranks, step " << i;
      }
    }
  }
}

/// Compares a training on `mesh` with one on one rank with the same global batch, by losses and parameters.
void expect_agreement_with_one_rank(RunConfig many, Mesh mesh) {
  constexpr double kTolerance = 1e-5;
  many.mesh = mesh;
  RunConfig one = many;
  one.mesh = {1};
  one.fsdp.strategy = Strategy::full_shard;
  one.train.batch_per_rank *= mesh.data_ranks();
  const Measurement a = testing::run_tiny(many);
  const Measurement b = testing::run_tiny(one);
  SCOPED_TRACE(::testing::Message() << mesh.data_ranks() << " x " << mesh.tensor
                                    << (mesh.sequence_parallel ? ", tokens" : ""));
  EXPECT_LT(relative_distance(a.parameters, b.parameters), kTolerance);
  ASSERT_EQ(a.losses.size(), 5U);
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], kTolerance * b.losses[i]);
}

TEST(SameComputation, RanksThatSplitLayersAgreeWithOneOnTheGlobalBatch) {
  for (const Mesh& mesh :
       {Mesh{4, 2, 1, 2}, Mesh{8, 4, 1, 2}, Mesh{8, 2, 1, 4}, Mesh{4, 1, 1, 4}, Mesh{2, 1, 1, 2},
        Mesh{4, 2, 1, 2, true}, Mesh{8, 4, 1, 2, true}, Mesh{8, 2, 1, 4, true}, Mesh{4, 1, 1, 4, true}}) {
    RunConfig base = testing::splittable_decoder();
    expect_agreement_with_one_rank(base, mesh);
    base.fsdp.activation_checkpointing = true;
    base.fsdp.layout = Layout::flat;
    base.model.tied_head = true;
    base.train.clip_norm = 0.05;
    expect_agreement_with_one_rank(base, mesh);
    base.train.optimizer = Optimizer::sgd;
    base.fsdp.shard_threshold = 600;
    expect_agreement_with_one_rank(base, mesh);
  }
  RunConfig hybrid = testing::splittable_decoder();
  hybrid.fsdp.strategy = Strategy::hybrid_shard;
  for (const bool tokens : {false, true}) expect_agreement_with_one_rank(hybrid, {8, 2, 2, 2, tokens});
  for (const std::int64_t replicated_below : {0, 600, 1 << 30}) {
    hybrid.fsdp.shard_threshold = replicated_below;
    expect_agreement_with_one_rank(hybrid, {4, 2, 2, 1});
  }
}

TEST(SameComputation, MicrobatchesAgreeWithOneLargeBatch) {
  RunConfig many = testing::tiny_decoder();
  many.mesh.ranks = 2;
  many.train.accumulate = 3;
  RunConfig one = many;
  one.mesh.ranks = 1;
  one.train.accumulate = 1;
  one.train.batch_per_rank = 2 * 2 * 3;
  EXPECT_LT(relative_distance(testing::run_tiny(many).parameters, testing::run_tiny(one).parameters), 1e-5);
}

TEST(SameComputation, DifferentComputationHasADifferentDigest) {
  const RunConfig base = testing::tiny_decoder();
  const std::string digest = testing::run_tiny(base).parameters_digest.value();
  const std::vector<Variant> variants{
      {"seed", [](RunConfig& c) { c.train.seed = 2; }},
      {"learning rate", [](RunConfig& c) { c.train.learning_rate *= 1.001; }},
      {"steps", [](RunConfig& c) { c.train.steps += 1; }},
      {"clipping", [](RunConfig& c) { c.train.clip_norm = 0.01; }},
      {"accumulation", [](RunConfig& c) { c.train.accumulate = 2; }},
      {"dtype", [](RunConfig& c) { c.fsdp.param_dtype = DType::bf16; }},
      {"reduce dtype", [](RunConfig& c) { c.fsdp.reduce_dtype = DType::bf16; }},
      {"optimizer", [](RunConfig& c) { c.train.optimizer = Optimizer::sgd; }},
  };
  for (const Variant& v : variants) {
    RunConfig c = base;
    v.change(c);
    EXPECT_NE(testing::run_tiny(c).parameters_digest.value(), digest) << v.name;
  }
}

}  // namespace
}  // namespace fsdpbench::engine
