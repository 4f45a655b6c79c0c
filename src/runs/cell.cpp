#include "runs/cell.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/lane.h"
#include "clock/caching_allocator.h"
#include "clock/compute_cost.h"
#include "clock/op_times.h"
#include "config/cluster.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/spelling.h"
#include "config/validate.h"
#include "engine/simulate.h"
#include "hardware/other_work.h"
#include "model/outline.h"
#include "record/console.h"
#include "runs/simulated_machine.h"

namespace fsdpbench::app {
namespace {

/// Throws if a real device is asked for what only a computed clock can do.
void check_kernels(const config::RunConfig& config) {
  const bool real =
      config.device.backend == config::BackendKind::cpu || config.device.backend == config::BackendKind::cuda;
  const std::string_view key = real ? model::key_without_kernels(config) : std::string_view();
  if (key.empty()) return;
  throw ConfigError(fmt::format(
      "There are no kernels for {} = {}: it cannot be trained here. `fsdpbench simulate` predicts its step, `fsdpbench "
      "explain` shows its schedule and memory.",
      key, config::to_toml(config::find_field(key)->write(config))));
}

/// A GPU's pool is not in this memory (its device checks it), what is offloaded from it is; pools that nothing computes
/// in or moves are never touched.
std::int64_t memory_of_a_rank(const engine::Setup& setup) {
  const bool untouched = setup.config.emulate.compute_tflops && setup.config.emulate.link_gb_per_s;
  if (untouched) return setup.host_bytes;
  const bool pool_is_here = setup.config.device.backend != config::BackendKind::cuda;
  return checked_sum(setup.host_bytes, checked_sum(pool_is_here ? setup.pool_bytes : 0, setup.host_memory.reserved));
}

void check_memory(const engine::Setup& setup, int local_ranks) {
  const std::int64_t each = memory_of_a_rank(setup);
  const auto needed = static_cast<double>(each) * local_ranks;
  const AvailableMemory available = available_memory();
  if (needed <= static_cast<double>(available.bytes)) return;
  throw ResourceError(fmt::format(
      "{} ranks need {} of memory, {} each ({} of it beside the pool), and {} {} available. Use fewer "
      "ranks, a smaller model or batch, fewer steps, fsdp.activation_checkpointing = true, or emulate both computation "
      "(emulate.compute_tflops) and link (emulate.link_gb_per_s), which needs no pool; `fsdpbench explain` shows where "
      "the bytes go",
      local_ranks, needed < 0x1p63 ? format_bytes(static_cast<std::int64_t>(needed)) : "more than 8 EiB",
      format_bytes(each), format_bytes(setup.host_bytes), available.limit, format_bytes(available.bytes)));
}

std::ptrdiff_t lanes_of(const engine::Setup& setup) {
  return std::ranges::count_if(kLanes, [&](Lane lane) { return !is_offload_lane(lane) || setup.uses_offload_lanes(); });
}

/// Raises the soft limit of open files as far as `ranks` of this process need it. A lane on CPUs keeps one open
/// (backend::cpu::CoreWait), a rank that saves another one.
void check_open_files(const engine::Setup& setup, int ranks) {
  const std::ptrdiff_t lanes = setup.config.device.backend == config::BackendKind::cpu ? lanes_of(setup) : 0;
  constexpr rlim_t kOthers = 32;  // profiles, data, results, libraries
  const rlim_t needed = kOthers + static_cast<rlim_t>(ranks) * (lanes + 1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= needed) return;
  if (files.rlim_max >= needed) {
    files.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &files) == 0) return;
  }
  throw ResourceError(
      fmt::format("{} ranks need {} open files, and `ulimit -n` allows {}. Raise it, or use fewer ranks", ranks, needed,
                  files.rlim_max));
}

/// Counts the stacks of threads where `ulimit -v` limits addresses: a lane is a thread.
void check_address_space(const engine::Setup& setup, int local_ranks) {
  const std::optional<std::int64_t> left = address_space_left();
  if (!left) return;
  rlimit stack{};
  const bool known = getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
  const auto stack_bytes = known ? static_cast<std::int64_t>(stack.rlim_cur) : std::int64_t{8} << 20;
  const std::int64_t threads = local_ranks * (lanes_of(setup) + 1) + 4;
  constexpr std::int64_t kLibraries = std::int64_t{64} << 20;  // their own threads, compiled kernels
  const double needed = static_cast<double>(threads) * static_cast<double>(stack_bytes) + kLibraries +
                        static_cast<double>(memory_of_a_rank(setup)) * local_ranks;
  if (needed <= static_cast<double>(*left)) return;
  throw ResourceError(fmt::format(
      "the ranks need {} of address space, {} of it for the stacks (`ulimit -s`) of {} threads, and `ulimit -v` leaves "
      "{}. Raise it, or use fewer ranks or a smaller model.",
      needed < 0x1p62 ? format_bytes(static_cast<std::int64_t>(needed)) : "more than 4 EiB",
      format_bytes(threads * stack_bytes), threads, format_bytes(*left)));
}

/// A run that nobody can wait for; its times would not fit the clock either. `times`: engine::simulated_times().
void check_modelled_time(const config::RunConfig& c, const clock::OpTimes& times) {
  if (!clock::too_long(times)) return;
  throw ConfigError(fmt::format(
      "emulate.compute_tflops = {}, emulate.link_gb_per_s = {}, emulate.link_latency_us = {}: the ops of one "
      "step would take over 104 days; expected rates that are faster, or a smaller model or batch.",
      c.emulate.compute_tflops ? fmt::format("{}", *c.emulate.compute_tflops) : "\"none\"",
      c.emulate.link_gb_per_s ? fmt::format("{}", *c.emulate.link_gb_per_s) : "\"none\"", c.emulate.link_latency_us));
}

/// Its machine instead of its data. That a rank's memory would not suffice there is said, and simulated all the same.
void open_simulation(Cell& cell) {
  const config::RunConfig& c = cell.setup.config;
  const SimulatedMachine machine(c);
  SimulatedTimes simulated = machine.times(cell.setup);
  cell.times = std::move(simulated.times);
  cell.basis = {machine.basis(), std::move(simulated.uncertainty)};
  if (machine.calibration() != nullptr) {
    cell.notes.push_back(fmt::format("calibrated on {}: half of the ops measured there lie within {:.1f} % of it",
                                     machine.calibration()->machine, simulated.spread_pct));
    if (simulated.crowded > 1) {
      cell.notes.push_back(fmt::format(
          "the calibration is of at most {} ranks on {} cores, and nobody measured how {} take turns on "
          "these: the step may be up to {:.1f} times as long, and the interval says so; calibrate with as many ranks",
          machine.calibration()->ranks, machine.calibration()->cores, c.mesh.ranks, simulated.crowded));
    } else if (simulated.crowded < 1) {
      cell.notes.push_back(
          fmt::format("the calibration is of {} ranks on {} cores, and {} share them less: the step may take as little "
                      "as {:.2f} of what it says, and the interval says so; calibrate with as many ranks",
                      machine.calibration()->ranks, machine.calibration()->cores, c.mesh.ranks, simulated.crowded));
    }
  }
  if (!cell.basis.uncertainty) check_modelled_time(c, cell.times);
  if (machine.cluster() == nullptr) return;
  const config::ClusterGpu& gpu = machine.cluster()->gpu;
  cell.gpu = {gpu.memory_bytes(), clock::gpu_rates(*machine.cluster(), c.fsdp.param_dtype).peak_flops * 1e-12};
  const double bf16_tflops = clock::gpu_rates(*machine.cluster(), DType::bf16).peak_flops * 1e-12;
  if (bf16_tflops > 2 * cell.gpu->peak_tflops) {
    cell.notes.push_back(
        fmt::format("products are in {}, at {:.0f} TFLOP/s; in bf16 a {} has {:.0f}: trainings on it set "
                    "fsdp.param_dtype = \"bf16\"",
                    to_string(c.fsdp.param_dtype), cell.gpu->peak_tflops, gpu.name, bf16_tflops));
  }
  cell.caching_allocator = clock::allocator_forecast(cell.setup, cell.times, cell.gpu->memory_bytes);
  if (cell.caching_allocator->failures > 0) {
    cell.notes.push_back(
        fmt::format("it would not fit: a rank needs {} beside what the framework takes, and a {} has {} GiB",
                    format_bytes(cell.caching_allocator->peak_reserved), gpu.name, gpu.memory_gib));
    return;
  }
  // Memory that is not in reserved (the CUDA context, NCCL) takes a few percent of a GPU, too.
  constexpr double kNear = 0.95;
  const auto reserved = static_cast<double>(cell.caching_allocator->peak_reserved);
  cell.near_memory_limit =
      cell.caching_allocator->retries > 0 || reserved > kNear * static_cast<double>(cell.gpu->memory_bytes);
  if (cell.caching_allocator->retries > 0) {
    cell.notes.push_back(fmt::format(
        "it fits the {} GiB of a {} only if PyTorch's allocator returns memory to the driver in the middle of a step; "
        "the host then waits for the device, which is not in these times",
        gpu.memory_gib, gpu.name));
  } else if (cell.near_memory_limit) {
    cell.notes.push_back(fmt::format(
        "a rank reserves {:.1f} % of the {} GiB of a {}: near the limit PyTorch's allocator frees and retries, which "
        "costs time that is not predicted; the step's interval reaches further up",
        100 * reserved / static_cast<double>(cell.gpu->memory_bytes), gpu.memory_gib, gpu.name));
  }
}

}  // namespace

config::RunConfig load_config(const std::string& profile, const std::vector<std::string>& overrides,
                              const launch::Placement* placement, std::vector<std::string>* notes) {
  config::RunConfig config = config::load_profile(profile, overrides, notes);
  if (placement == nullptr || config.mesh.ranks == placement->ranks) return config;
  for (const std::string& text : overrides) {
    if (config::read_override(text).name != "mesh.ranks") continue;
    throw ConfigError(
        fmt::format("mesh.ranks = {} was asked for, but there are {} processes, one rank each, as {} says; "
                    "leave it out, or start {} processes.",
                    config.mesh.ranks, placement->ranks, placement->source, config.mesh.ranks));
  }
  console().info(fmt::format("mesh.ranks = {}, the number of processes; {} says {}", placement->ranks, profile,
                             config.mesh.ranks));
  config.mesh.ranks = placement->ranks;
  // A resolved configuration names these, too; but for hybrid strategies they follow from the ranks.
  if (!config::is_hybrid(config.fsdp.strategy)) config.mesh.shard = config.mesh.replicate = 0;
  return config;
}

Cell open_cell(config::RunConfig config, int local_ranks) {
  Cell cell;
  cell.notes = config::validate(config);
  check_kernels(config);
  cell.setup = engine::set_up(config);
  if (config.device.backend == config::BackendKind::virtual_) {
    open_simulation(cell);
    return cell;
  }
  if (config.emulate.compute_tflops || config.emulate.link_gb_per_s) {
    check_modelled_time(config, engine::simulated_times(cell.setup, nullptr));
  }
  check_memory(cell.setup, local_ranks > 0 ? local_ranks : cell.setup.plan.mesh.ranks());
  check_open_files(cell.setup, local_ranks > 0 ? 1 : cell.setup.plan.mesh.ranks());
  check_address_space(cell.setup, local_ranks > 0 ? local_ranks : cell.setup.plan.mesh.ranks());
  if (!config.checkpoint.resume.empty()) {
    cell.resume = std::make_unique<engine::Checkpoint>(config.checkpoint.resume);
    cell.resume->check(config);
  }
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  cell.data = std::make_unique<engine::ByteDataset>(
      config.data.path.empty() ? default_data_path() : std::filesystem::path(config.data.path),
      decoder ? config.train.seq_len + 1 : config.model.in_features + config.model.out_features);
  return cell;
}

std::filesystem::path default_data_path() { return config::home_folder(); }

}  // namespace fsdpbench::app
