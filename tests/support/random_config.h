#pragma once

#include <initializer_list>
#include <random>

#include "support/schedule_cases.h"

namespace fsdpbench::testing {

template <typename T>
inline T pick(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

/// Draws settings that change the order of ops and no number, of the keys that FSDP1 and FSDP2 have.
inline void reorder(std::mt19937& random, config::Fsdp& f) {
  using namespace config;  // NOLINT: nothing here but settings
  f.forward_prefetch = {pick(random, {Prefetch::Mode::none, Prefetch::Mode::implicit, Prefetch::Mode::explicit_}),
                        pick(random, {1, 2})};
  f.backward_prefetch = {
      pick(random, {Prefetch::Mode::none, Prefetch::Mode::post, Prefetch::Mode::pre, Prefetch::Mode::explicit_}),
      pick(random, {1, 2})};
  f.all_gather_limit = {pick(random, {AllGatherLimit::Mode::unlimited, AllGatherLimit::Mode::fsdp1_queue,
                                      AllGatherLimit::Mode::fsdp2_event, AllGatherLimit::Mode::strict}),
                        pick(random, {1, 2, 3}), 0};
  f.reduce_scatter_buffers = pick(random, {0, 1, 2});
}

/// Words of engines other than PyTorch's.
inline void other_engines(std::mt19937& random, config::Fsdp& f) {
  using namespace config;  // NOLINT: this function is nothing but enumerators
  const auto coin = [&] { return pick(random, {false, true}); };
  const auto elements = [&] { return pick<std::int64_t>(random, {0, 7000, 20000, 1000000}); };
  const auto prefetch = pick(random, {0, 1, 2, 3});
  if (prefetch == 1) {
    f.forward_prefetch = f.backward_prefetch = {Prefetch::Mode::rate, 1, elements()};
    f.reshard_after_backward = true;
  }
  if (prefetch == 2) f.forward_prefetch = {Prefetch::Mode::window, 1, elements()};
  if (prefetch == 2) f.backward_prefetch = {Prefetch::Mode::window, 1, elements()};
  if (prefetch == 3) f.forward_prefetch = f.backward_prefetch = {Prefetch::Mode::ahead, pick(random, {1, 2}), 0};
  using Limit = AllGatherLimit::Mode;
  if (coin()) f.all_gather_limit = {pick(random, {Limit::buffers, Limit::fetched}), pick(random, {1, 2, 3}), 0};
  f.max_live_parameters = elements();
  f.max_reuse_distance = elements();
  f.persistence_threshold = elements();
  f.gathers_ascend = coin();
  f.gathers_follow_compute = coin();
  f.root_prefetches_backward = coin();
  f.free_lane = pick(random, {FreeLane::compute, FreeLane::all_gather});
  f.reduce_bucket = elements();
  f.reduce_by = pick(random, {ReduceBy::reduce_scatter, ReduceBy::all_reduce});
  f.reduce_lane = pick(random, {ReduceLane::reduce_scatter, ReduceLane::all_gather, ReduceLane::compute});
  f.reduce_lag = pick(random, {0, 1, 2, 100});
  f.reductions_in_flight = pick(random, {0, 1, 2});
  f.reduce_scatter_elements = pick<std::int64_t>(random, {0, 1, 50000});
  f.gradient_copy_in = coin();
  f.head_unit = coin();
  f.host_sync_at_group_shard = coin();
  f.keep_group_shard = coin();
}

/// Every rank of a drawn mesh becomes two or four that split layers, and half of the time the tokens, too.
inline void split_layers(std::mt19937& random, config::RunConfig& c) {
  c.model.kind = config::ModelKind::decoder;
  c.model.kv_heads = c.model.heads;
  c.mesh.tensor = pick(random, {2, 2, 4});
  c.mesh.ranks *= c.mesh.tensor;
  c.mesh.sequence_parallel = pick(random, {false, true});
}

/// Any policy on any mesh, on a small model. `engines`: also words that only engines other than PyTorch's have.
inline config::RunConfig random_config(std::mt19937& random, bool engines = true) {
  using namespace config;  // NOLINT: this function is nothing but enumerators
  const auto coin = [&] { return pick(random, {false, true}); };
  RunConfig c = decoder_config(pick(random, {1, 2, 3, 5, 7}), 1);
  Fsdp& f = c.fsdp;
  f.strategy = pick(random, {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard, Strategy::hybrid_shard,
                             Strategy::hybrid_shard_grad_op});
  const bool hybrid = f.strategy == Strategy::hybrid_shard || f.strategy == Strategy::hybrid_shard_grad_op;
  const int ranks = pick(random, {1, 2, 3, 4, 8});
  c.mesh.shard = f.strategy == Strategy::no_shard ? 1 : hybrid ? pick(random, {2, 4}) : ranks;
  c.mesh.replicate = f.strategy == Strategy::no_shard ? ranks : hybrid ? pick(random, {2, 3}) : 1;
  if (coin()) c.model.kind = ModelKind::mlp;
  f.learn_execution_order = coin();
  f.layout = pick(random, {Layout::flat, Layout::per_param});
  if (hybrid && f.layout == Layout::per_param && random() % 8 == 0) c.mesh.shard = 1;
  c.mesh.ranks = c.mesh.shard * c.mesh.replicate;
  using Reshard = ReshardAfterForward::Mode;
  f.reshard_after_forward.mode =
      pick(random, {Reshard::automatic, Reshard::automatic, Reshard::always, Reshard::never, Reshard::group});
  f.reshard_after_forward.group = c.mesh.shard % 2 == 0 ? 2 : static_cast<int>(c.mesh.shard);
  f.reshard_after_backward = coin();
  f.keep_unreduced = coin();
  f.wait_each_backward = coin();
  f.gradients_after_views = coin();
  f.forward_prefetch = {pick(random, {Prefetch::Mode::none, Prefetch::Mode::implicit, Prefetch::Mode::explicit_}),
                        pick(random, {1, 2, 3})};
  f.backward_prefetch = {
      pick(random, {Prefetch::Mode::none, Prefetch::Mode::post, Prefetch::Mode::pre, Prefetch::Mode::explicit_}),
      pick(random, {1, 2, 3})};
  using Limit = AllGatherLimit::Mode;
  f.all_gather_limit = {
      pick(random, {Limit::unlimited, Limit::fsdp1_queue, Limit::fsdp2_event, Limit::strict, Limit::bytes}),
      pick(random, {1, 2, 3, 13}), pick<std::int64_t>(random, {1, 60000, 1000000})};
  f.reduce_scatter_buffers = pick(random, {0, 1, 2, 3});
  f.separate_reduce_scatter_comm = coin();
  f.wrap = {pick(random, {Wrap::Mode::block, Wrap::Mode::blocks, Wrap::Mode::min_size, Wrap::Mode::model}), 2, 9000};
  f.param_dtype = pick(random, {DType::f32, DType::bf16});
  f.reduce_dtype = pick(random, {DType::f32, DType::bf16});
  f.gradient_scaling = pick(random, {GradientScaling::average, GradientScaling::sum, GradientScaling::pre_post_divide});
  f.activation_checkpointing = coin();
  f.shard_threshold = pick<std::int64_t>(random, {0, 100, 2000, 1000000});
  c.train.accumulate = pick(random, {1, 2, 3});
  c.train.accumulate_mode =
      pick(random, {AccumulateMode::reduce_each, AccumulateMode::no_sync, AccumulateMode::reduce_scatter_only});
  c.train.optimizer = pick(random, {Optimizer::sgd, Optimizer::adamw});
  c.train.clip_norm = coin() ? 1.0 : 0.0;
  c.inject.host_sync_after_layer = pick<std::int64_t>(random, {-1, -1, 0});
  f.checkpoint_every = pick<std::int64_t>(random, {1, 2});
  if (engines && coin()) other_engines(random, f);
  std::mt19937 aside = random;  // so that every other key stays what it was before there was this one
  f.cpu_offload = pick(aside, {CpuOffload::none, CpuOffload::none, CpuOffload::optimizer, CpuOffload::all});
  f.cast_in_optimizer = f.cpu_offload == CpuOffload::none && std::bernoulli_distribution(0.5)(aside);
  f.fp32_gradients = std::bernoulli_distribution(0.3)(aside);
  return c;
}

/// The same; in every third round of a test's on ranks that split layers.
inline config::RunConfig random_config_of_round(std::mt19937& random, int round) {
  config::RunConfig c = random_config(random);
  std::mt19937 aside(static_cast<unsigned>(round));
  if (round % 3 == 0) split_layers(aside, c);
  return c;
}

}  // namespace fsdpbench::testing
