#include "account/knobs.h"

#include <fmt/format.h>

#include <utility>

namespace fsdpbench::account {

using LimitMode = config::AllGatherLimit::Mode;
using PrefetchMode = config::Prefetch::Mode;

std::vector<Knob> knobs_of(const config::RunConfig& config) {
  std::vector<Knob> knobs;
  const auto add = [&](Cause cause, std::string set, auto change) {
    Knob knob{cause, std::move(set), config};
    change(knob.config);
    knobs.push_back(std::move(knob));
  };
  const config::Fsdp& fsdp = config.fsdp;
  if (fsdp.strategy == config::Strategy::no_shard || config.mesh.data_ranks() == 1) return knobs;

  if (fsdp.forward_prefetch.mode == PrefetchMode::none) {
    add(Cause::late_prefetch, "fsdp.forward_prefetch=implicit", [](config::RunConfig& c) {
      c.fsdp.forward_prefetch = {PrefetchMode::implicit, 1};
    });
  }
  if (fsdp.backward_prefetch.mode == PrefetchMode::none || fsdp.backward_prefetch.mode == PrefetchMode::post) {
    add(Cause::late_prefetch, "fsdp.backward_prefetch=pre", [](config::RunConfig& c) {
      c.fsdp.backward_prefetch = {PrefetchMode::pre, 1};
    });
  }
  const config::AllGatherLimit& limit = fsdp.all_gather_limit;
  const bool counts = limit.mode == LimitMode::strict || limit.mode == LimitMode::fsdp1_queue;
  if (counts) {
    const char* const mode = limit.mode == LimitMode::strict ? "strict" : "fsdp1_queue";
    add(Cause::all_gather_limit, fmt::format("fsdp.all_gather_limit={}:{}", mode, limit.count + 1),
        [](config::RunConfig& c) { ++c.fsdp.all_gather_limit.count; });
  } else if (limit.mode != LimitMode::unlimited) {
    add(Cause::all_gather_limit, "fsdp.all_gather_limit=unlimited", [](config::RunConfig& c) {
      c.fsdp.all_gather_limit = {LimitMode::unlimited, 2, 0};
    });
  }
  if (fsdp.reduce_scatter_buffers > 0) {
    add(Cause::reduce_scatter_buffers, fmt::format("fsdp.reduce_scatter_buffers={}", fsdp.reduce_scatter_buffers + 1),
        [](config::RunConfig& c) { ++c.fsdp.reduce_scatter_buffers; });
  }
  const bool separate = fsdp.separate_reduce_scatter_comm;
  add(separate ? Cause::contention : Cause::communicator_serialisation,
      fmt::format("fsdp.separate_reduce_scatter_comm={}", !separate),
      [](config::RunConfig& c) { c.fsdp.separate_reduce_scatter_comm ^= true; });
  if (config.mesh.expert > 1 && !config.mesh.expert_separate_comm) {
    add(Cause::communicator_serialisation, "mesh.expert_separate_comm=true",
        [](config::RunConfig& c) { c.mesh.expert_separate_comm = true; });
  }
  if (fsdp.wrap.mode == config::Wrap::Mode::block) {
    add(Cause::inefficient_collective, "fsdp.wrap=blocks:2", [](config::RunConfig& c) {
      c.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};
    });
  }
  if (fsdp.layout == config::Layout::per_param && config.mesh.expert == 1) {  // no engine lays out experts so under FSDP2's hooks
    add(Cause::copy, "fsdp.layout=flat", [](config::RunConfig& c) { c.fsdp.layout = config::Layout::flat; });
  }
  if (fsdp.strategy == config::Strategy::full_shard || fsdp.strategy == config::Strategy::hybrid_shard) {
    const bool full = fsdp.strategy == config::Strategy::full_shard;
    add(Cause::link_bound, full ? "fsdp.strategy=shard_grad_op" : "fsdp.strategy=hybrid_shard_grad_op",
        [full](config::RunConfig& c) {
          c.fsdp.strategy = full ? config::Strategy::shard_grad_op : config::Strategy::hybrid_shard_grad_op;
        });
  }
  if (fsdp.reduce_dtype == DType::f32) {
    add(Cause::link_bound, "fsdp.reduce_dtype=bf16", [](config::RunConfig& c) { c.fsdp.reduce_dtype = DType::bf16; });
  }
  return knobs;
}

config::RunConfig lifted(Cause cause, config::RunConfig config) {
  config::Fsdp& fsdp = config.fsdp;
  switch (cause) {
    case Cause::late_prefetch:
      if (fsdp.forward_prefetch.mode == PrefetchMode::none) fsdp.forward_prefetch = {PrefetchMode::implicit, 1};
      if (fsdp.backward_prefetch.mode == PrefetchMode::none) fsdp.backward_prefetch = {PrefetchMode::pre, 1};
      break;
    case Cause::all_gather_limit: fsdp.all_gather_limit = {LimitMode::unlimited, 2, 0}; break;
    case Cause::reduce_scatter_buffers: fsdp.reduce_scatter_buffers = 0; break;
    case Cause::communicator_serialisation:
      fsdp.separate_reduce_scatter_comm = true;
      config.mesh.expert_separate_comm = true;
      break;
    case Cause::host_sync:
      config.inject.host_sync_after_layer = -1;
      if (config.mesh.expert > 1) config.mesh.expert_sync = false;
      break;
    default: break;
  }
  return config;
}

}  // namespace fsdpbench::account
