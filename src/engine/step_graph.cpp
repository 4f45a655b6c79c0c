#include "engine/step_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace fsdpbench::engine {
namespace {

/// The keys because of which the host may wait in a step, each with what is valid instead.
std::string why_the_host_waits(const config::RunConfig& config) {
  using Mode = config::AllGatherLimit::Mode;
  std::string keys;
  const auto add = [&](const std::string& key, const char* expected) {
    keys += fmt::format("{}{} (expected {})", keys.empty() ? "" : ", ", key, expected);
  };
  const Mode limit = config.fsdp.all_gather_limit.mode;
  if (limit != Mode::unlimited && limit != Mode::fsdp2_event && limit != Mode::buffers) {
    add("fsdp.all_gather_limit", "\"unlimited\", \"fsdp2_event\" or \"buffers:COUNT\"");
  }
  if (config.fsdp.reduce_bucket > 0 && config.fsdp.reductions_in_flight > 0) {
    add(fmt::format("fsdp.reductions_in_flight = {}", config.fsdp.reductions_in_flight), "0");
  }
  if (config.fsdp.host_sync_at_group_shard) add("fsdp.host_sync_at_group_shard = true", "false");
  if (config.inject.host_sync_after_layer >= 0) {
    add(fmt::format("inject.host_sync_after_layer = {}", config.inject.host_sync_after_layer), "-1");
  }
  return keys;
}

}  // namespace

bool launches_graphs(const config::RunConfig& config) {
  return config.device.graphs == config::Graphs::step && config.device.backend == config::BackendKind::cuda;
}

std::int64_t laid_out_steps(const config::RunConfig& config, const schedule::Schedules& schedules) {
  const std::int64_t all = config.train.warmup + config.train.steps;
  const bool copies = config.checkpoint.asynchronous && !config.checkpoint.folder.empty();
  if (!launches_graphs(config) || copies) return all;
  return std::min(all, static_cast<std::int64_t>(schedules.steps.size()) + 1);
}

void check_step_graph(const config::RunConfig& config, const schedule::Schedules& schedules) {
  if (!launches_graphs(config)) return;
  if (std::ranges::any_of(schedules.steady().ops, &schedule::Op::is_host)) {
    throw ConfigError(fmt::format(
        "device.graphs = \"step\" needs steps in which the host waits for nothing, and here it waits because "
        "of {}.",
        why_the_host_waits(config)));
  }
  const auto needed = static_cast<std::int64_t>(schedules.steps.size()) + 1;
  if (config.train.warmup < needed) {
    throw ConfigError(fmt::format(
        "train.warmup = {} is too little for device.graphs = \"step\": the step that repeats is step {}, it is "
        "issued op by op once and captured the next time; expected at least {}.",
        config.train.warmup, needed - 1, needed));
  }
}

}  // namespace fsdpbench::engine
