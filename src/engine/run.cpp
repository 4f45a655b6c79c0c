#include "engine/run.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/digest.h"
#include "model/initialize.h"
#include "schedule/build_schedules.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"

namespace fsdpbench::engine {
namespace {

/// One decision a step, the same for all ranks: whoever asks first decides.
class StepGate {
 public:
  explicit StepGate(const std::function<bool()>& stop) : stop_(stop) {}
  bool stops_before(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    const auto [decision, fresh] = decisions_.try_emplace(step, false);
    if (fresh && stop_) decision->second = stop_();
    return decision->second;
  }

 private:
  std::mutex mutex_;
  const std::function<bool()>& stop_;
  std::map<std::int64_t, bool> decisions_;
};

/// Ranks' losses of each step; the mean is there when all ranks have reported.
class LossBoard {
 public:
  LossBoard(int ranks, std::size_t steps) : ranks_(ranks), losses_(steps, std::vector<float>(static_cast<std::size_t>(ranks))), reported_(steps) {}
  void report(std::int64_t step, int rank, float loss) {
    const std::lock_guard lock(mutex_);
    losses_[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)] = loss;
    ++reported_[static_cast<std::size_t>(step)];
  }
  /// Summed in rank order; absent while ranks are missing.
  std::optional<double> mean(std::int64_t step) const {
    const std::lock_guard lock(mutex_);
    if (reported_[static_cast<std::size_t>(step)] < ranks_) return std::nullopt;
    double sum = 0;
    for (float loss : losses_[static_cast<std::size_t>(step)]) sum += static_cast<double>(loss);
    return sum / ranks_;
  }

 private:
  mutable std::mutex mutex_;
  int ranks_;
  std::vector<std::vector<float>> losses_;
  std::vector<int> reported_;
};

backend::BackendOptions backend_options(const config::RunConfig& config) {
  backend::BackendOptions options;
  const auto ranks = static_cast<std::size_t>(config.mesh.ranks);
  options.ranks = static_cast<int>(config.mesh.ranks);
  if (config.emulate.link_gb_per_s) {
    options.link = backend::LinkModel{*config.emulate.link_gb_per_s * 1e9, config.emulate.link_latency_us * 1e-6};
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

}  // namespace

Preparation prepare(const config::RunConfig& config) {
  Preparation p;
  p.config = config;
  p.plan = plan::make_plan(config);
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  p.model = model::make_model(config.model, p.plan.shapes,
                              {config.train.batch_per_rank, decoder ? config.train.seq_len : 1, config.fsdp.param_dtype});
  p.sizes = p.model->sizes();
  p.schedules = schedule::build_schedules(p.plan, schedule::make_policy(config), p.sizes);
  // Packing the range may take a few steps to settle; more than these have not been seen to change anything.
  constexpr std::int64_t kMostSteps = 32;
  p.memory = schedule::memory_walk(p.schedules,
                                   static_cast<int>(std::min(config.train.warmup + config.train.steps, kMostSteps)));
  return p;
}

RunResult run(backend::Backend& backend, const Preparation& preparation, const BatchSource& batches,
              const RunHooks& hooks) {
  const config::RunConfig& config = preparation.config;
  const std::int64_t warmup = config.train.warmup;
  const std::int64_t total = warmup + config.train.steps;
  const auto ranks = static_cast<std::size_t>(config.mesh.ranks);
  const bool computes = !config.emulate.compute_tflops.has_value();

  RunResult result;
  result.traces.resize(ranks);
  result.memory.resize(ranks);
  result.wire_bytes.resize(ranks);
  StepGate gate(hooks.stop);
  LossBoard board(static_cast<int>(ranks), static_cast<std::size_t>(total));
  const FillParameter fill = hooks.fill ? hooks.fill : [&](int parameter, std::int64_t begin, std::span<float> out) {
    model::initialize_parameter(preparation.plan.shapes.parameters[static_cast<std::size_t>(parameter)], parameter,
                                config.train.seed, begin, begin + static_cast<std::int64_t>(out.size()), out.data());
  };

  backend.run(backend_options(config), [&](backend::RankContext& context) {
    const auto rank = static_cast<std::size_t>(context.rank);
    Executor executor(context, config, preparation.plan, preparation.schedules, *preparation.model, batches);
    executor.initialize(fill);
    context.world.barrier();
    backend::WireBytes before{};
    std::int64_t step = 0;
    for (; step < total && !gate.stops_before(step); ++step) {
      if (step == warmup) {
        executor.start_recording(config.train.steps);
        before = executor.wire_bytes();
        context.world.barrier();
      }
      const float loss = executor.run_step(step);
      board.report(step, context.rank, loss);
      if (context.rank == 0 && hooks.progress) hooks.progress(step + 1, computes ? board.mean(step) : std::nullopt);
    }
    if (step > warmup) {
      result.wire_bytes[rank] = executor.wire_bytes();
      for (std::size_t i = 0; i < before.size(); ++i) result.wire_bytes[rank][i] -= before[i];
    }
    result.traces[rank] = executor.trace();
    result.memory[rank] = executor.memory();
    if (computes) {
      std::vector<std::vector<float>> parameters = executor.collect_parameters();
      if (context.rank == 0) {
        result.parameters_digest = parameters_digest(parameters);
        result.parameters = std::move(parameters);
      }
    }
    if (context.rank == 0) {
      result.steps_done = step;
      result.interrupted = step < total;
    }
  });
  if (computes) {
    for (std::int64_t step = 0; step < result.steps_done; ++step) result.losses.push_back(board.mean(step).value());
  }
  return result;
}

}  // namespace fsdpbench::engine
