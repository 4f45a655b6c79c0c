#include "engine/setup.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/bytes.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "engine/executor.h"
#include "engine/masters.h"
#include "launch/placement.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::engine {

Setup set_up(const config::RunConfig& config) {
  Setup s;
  static_cast<schedule::Training&>(s) = schedule::make_training(config, [&](const plan::Plan& plan) {
    s.model = model::make_model(config, plan.shapes);
    return s.model->sizes();
  });
  const std::int64_t steps = config.train.warmup + config.train.steps;
  s.memory = schedule::memory_walk(s.schedules, steps);
  s.host_memory = schedule::memory_walk(s.schedules, steps, MemorySpace::host);
  s.pool_bytes = checked_sum(s.memory.reserved, Masters::collection_bytes(s.plan));
  s.host_bytes = Executor::recording_bytes(s.schedules, config.train.steps);
  if (!config.emulate.compute_tflops) {
    s.host_bytes += Masters::staging_bytes(s.plan) + Masters::whole_bytes(s.plan);
  }
  return s;
}
namespace {

using config::RunConfig;

/// For how long ranks that are processes wait for each other: FSDPBENCH_STALL_S, 0 for ever. By default longer than any
/// op takes that somebody would wait for. Throws ConfigError if it is no such number.
std::optional<double> stall_s(const launch::Environment& environment) {
  constexpr double kDefault_s = 1800, kMost_s = 1e7;
  const char* text = environment("FSDPBENCH_STALL_S");
  if (text == nullptr || *text == '\0') return kDefault_s;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds >= 0 && seconds <= kMost_s)) {
    throw ConfigError(
        fmt::format("FSDPBENCH_STALL_S is '{}'; expected seconds, from 0 (for ever) to {:g}.", text, kMost_s));
  }
  return seconds > 0 ? std::optional(seconds) : std::nullopt;
}

backend::CpuOptions cpu_options(const RunConfig& config, const launch::Session* session) {
  backend::CpuOptions options;
  if (session != nullptr) {
    options.stall_s = stall_s(launch::process_environment());
    options.share_memory = share_memory(launch::process_environment());
  }
  const std::size_t ranks = config.mesh.ranks;
  options.link = config.emulate.link();
  options.pcie = config.emulate.pcie();
  if (config.emulate.compute_tflops) options.compute_flops_per_s = *config.emulate.compute_tflops * 1e12;
  if (config.inject.slow_rank >= 0) {
    options.compute_slowdown.assign(ranks, 1.0);
    options.compute_slowdown[config.inject.slow_rank] = config.inject.slow_rank_factor;
  }
  if (config.inject.slow_link_rank >= 0) {
    options.link_slowdown.assign(ranks, 1.0);
    options.link_slowdown[config.inject.slow_link_rank] = config.inject.slow_link_factor;
  }
  return options;
}

using Registration = backend::NcclOptions::Register;
using CtaPolicy = backend::NcclOptions::CtaPolicy;

constexpr EnumTable<config::Timer, backend::Timer> kTimers{backend::Timer::automatic, backend::Timer::cupti,
                                                           backend::Timer::events};
constexpr EnumTable<config::NcclRegister, Registration> kRegistrations{Registration::none, Registration::local,
                                                                       Registration::window};
constexpr EnumTable<config::CtaPolicy, CtaPolicy> kCtaPolicies{CtaPolicy::library, CtaPolicy::efficiency,
                                                               CtaPolicy::zero};

backend::CudaOptions cuda_options(const RunConfig& config) {
  backend::CudaOptions options;
  options.arithmetic = {config.device.deterministic};
  options.timer = kTimers[config.device.timer];
  options.nccl.registration = kRegistrations[config.nccl.register_buffers];
  options.nccl.cta_policy = kCtaPolicies[config.nccl.cta_policy];
  options.nccl.max_ctas = config.nccl.max_ctas;
  options.nccl.blocking = config.nccl.blocking;
  options.nccl.timeout_s = config.nccl.timeout_s;
  options.monitor = config.device.monitor;
  return options;
}

CategoryBytes category_bytes(const Setup& setup) {
  CategoryBytes bytes = schedule::category_walk(setup.schedules, setup.config.train.warmup + setup.config.train.steps);
  std::int64_t& buffers = bytes[index_of(MemoryCategory::communication_buffers)];
  buffers = checked_sum(buffers, Masters::collection_bytes(setup.plan));
  return bytes;
}

}  // namespace

bool share_memory(const launch::Environment& environment) {
  const char* text = environment("FSDPBENCH_SHARE_MEMORY");
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty() || value == "1") return true;
  if (value != "0") {
    throw ConfigError(
        fmt::format("FSDPBENCH_SHARE_MEMORY is '{}'; expected 1 (ranks of one host read each other's memory) "
                    "or 0 (they exchange messages).",
                    value));
  }
  return false;
}

void check_environment(const launch::Environment& environment) {
  (void)stall_s(environment);
  (void)share_memory(environment);
}

backend::BackendOptions backend_options(const Setup& setup, launch::Session* session) {
  const RunConfig& config = setup.config;
  backend::BackendOptions options;
  options.ranks = static_cast<int>(config.mesh.ranks);
  options.session = session;
  options.pool_bytes = setup.pool_bytes;
  options.host_pool_bytes = setup.host_memory.reserved;
  options.offload_lanes = setup.uses_offload_lanes();
  options.poison_freed_memory = config.inject.poison_freed_memory;
  switch (config.device.backend) {
    case config::BackendKind::cpu: options.own = cpu_options(config, session); break;
    case config::BackendKind::cuda:
      options.own = cuda_options(config);
      if (config.nccl.register_buffers != config::NcclRegister::none) options.category_bytes = category_bytes(setup);
      break;
    case config::BackendKind::virtual_: throw std::logic_error("backend_options: a computed clock has no backend");
  }
  return options;
}

}  // namespace fsdpbench::engine
