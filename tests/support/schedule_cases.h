#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "schedule/training.h"

namespace fsdpbench::testing {

/// A decoder of `blocks` equal blocks under `fsdp`, on ranks = shard x replicate; activation sizes are made up but
/// distinct, so that mixing them up shows.
using ScheduleCase = schedule::Training;

inline config::RunConfig decoder_config(int blocks, int shard, int replicate = 1) {
  config::RunConfig config;
  config.model.layers = blocks;
  config.model.width = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.ffn_width = 64;
  config.model.vocab = 64;
  config.mesh.ranks = shard * replicate;
  config.mesh.shard = shard;
  config.mesh.replicate = replicate;
  return config;
}

/// `by_tokens`: in the parts that mesh.sequence_parallel makes.
inline std::vector<plan::ModuleSizes> made_up_sizes(const plan::Plan& plan, bool by_tokens = false) {
  std::vector<plan::ModuleSizes> sizes(plan.shapes.modules.size());
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    plan::ModuleSizes& s = sizes[m];
    const bool loss = m + 1 == sizes.size();
    s.output_bytes = loss ? 0 : 4096;
    s.saved_bytes = m == 0 ? 0 : 20000 + 512 * static_cast<std::int64_t>(m);
    s.forward_workspace_bytes = 3000;
    s.backward_workspace_bytes = 5000;
  }
  sizes.front().batch_input_bytes = 1024;
  sizes.front().batch_target_bytes = 1024;
  if (plan.mesh.tensor > 1) {
    using Exchange = plan::ModulePart::Exchange;
    const plan::ModulePart sum{1e6, Exchange::sum, 1024, DType::f32};
    for (plan::ModuleSizes& s : sizes) {
      s.forward_parts = {sum, sum, {2e6}};
      s.recompute_parts = {sum, {1e6}};
      s.backward_parts = {sum, sum, {1e6}};
    }
    sizes.front().forward_parts = {sum};
    sizes.front().backward_parts = {};
    sizes.back().forward_parts = {{3e6, Exchange::gather, 96, DType::f32}, {}};
    sizes.back().backward_parts = {sum, {}};
    const std::int64_t rows = 1024 / plan.mesh.tensor;
    const plan::ModulePart gather{0, Exchange::gather, rows, DType::f32}, last{};
    const plan::ModulePart scatter{1e6, Exchange::scatter, rows, DType::f32}, norms{0, Exchange::sum, 64, DType::f32};
    for (plan::ModuleSizes& s : sizes) {
      if (!by_tokens) break;
      s.output_bytes /= plan.mesh.tensor;
      s.forward_parts = {gather, scatter, gather, scatter, last};
      s.recompute_parts = {gather, scatter, gather, {1e6}};
      s.backward_parts = {gather, gather, scatter, gather, gather, scatter, norms, last};
    }
    if (by_tokens) {
      sizes.front().forward_parts = {scatter, last};
      sizes.front().backward_parts = {gather, last};
      sizes.back().forward_parts = {gather, {3e6, Exchange::gather, 96, DType::f32}, last};
      sizes.back().backward_parts = {gather, scatter, norms, last};
    }
  }
  if (plan.mesh.expert > 1) {
    using Exchange = plan::ModulePart::Exchange;
    const plan::ModulePart away{1e6, Exchange::dispatch, 256, DType::f32},
        back{1e6, Exchange::combine, 256, DType::f32};
    for (std::size_t m = 0; m < sizes.size(); ++m) {
      if (plan.shapes.modules[m].kind != plan::ModuleKind::block) continue;
      sizes[m].forward_parts = sizes[m].recompute_parts = sizes[m].backward_parts = {away, back, {1e6}};
    }
  }
  return sizes;
}

inline ScheduleCase make_case(const config::RunConfig& config) {
  return schedule::make_training(
      config, [&](const plan::Plan& plan) { return made_up_sizes(plan, config.mesh.sequence_parallel); });
}

inline std::int64_t count(const schedule::Schedule& schedule, schedule::OpKind kind) {
  return std::ranges::count(schedule.ops, kind, &schedule::Op::kind);
}

}  // namespace fsdpbench::testing
