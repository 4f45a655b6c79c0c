#include "engine/backend_options.h"

namespace fsdpbench::engine {

backend::BackendOptions backend_options(const Setup& setup, launch::Session* session) {
  const config::RunConfig& config = setup.config;
  backend::BackendOptions options;
  options.session = session;
  options.pool_bytes = setup.pool_bytes;
  const auto ranks = static_cast<std::size_t>(config.mesh.ranks);
  options.ranks = static_cast<int>(config.mesh.ranks);
  if (config.emulate.link_gb_per_s) {
    options.link = LinkModel{*config.emulate.link_gb_per_s * 1e9, config.emulate.link_latency_us * 1e-6};
  }
  if (config.emulate.compute_tflops) options.compute_flops_per_s = *config.emulate.compute_tflops * 1e12;
  if (config.inject.slow_rank >= 0) {
    options.compute_slowdown.assign(ranks, 1.0);
    options.compute_slowdown[static_cast<std::size_t>(config.inject.slow_rank)] = config.inject.slow_rank_factor;
  }
  if (config.inject.slow_link_rank >= 0) {
    options.link_slowdown.assign(ranks, 1.0);
    options.link_slowdown[static_cast<std::size_t>(config.inject.slow_link_rank)] = config.inject.slow_link_factor;
  }
  options.poison_freed_memory = config.inject.poison_freed_memory;
  options.timer = static_cast<backend::Timer>(config.device.timer);
  options.nccl.registration = static_cast<backend::NcclOptions::Register>(config.nccl.register_buffers);
  options.nccl.cta_policy = static_cast<backend::NcclOptions::CtaPolicy>(config.nccl.cta_policy);
  options.nccl.min_ctas = config.nccl.min_ctas;
  options.nccl.max_ctas = config.nccl.max_ctas;
  options.nccl.timeout_s = config.nccl.timeout_s;
  return options;
}

}  // namespace fsdpbench::engine
