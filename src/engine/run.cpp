#include "engine/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/executor.h"
#include "engine/run_board.h"
#include "engine/setup.h"
#include "launch/addresses.h"
#include "launch/run_ranks.h"

namespace fsdpbench::engine {
namespace {

/// State that all ranks of this process share.
struct Shared {
  const Setup& setup;
  const BatchSource& batches;
  const RunHooks& hooks;
  model::FillParameter fill;
  RunBoard& board;
  int first_rank;    ///< of this process
  int fill_threads;  ///< a rank may use, so that the ranks of this host use its cores

  std::int64_t warmup() const { return setup.config.train.warmup; }
  std::int64_t total_steps() const { return warmup() + setup.config.train.steps; }
  bool cut_short() const { return hooks.interrupt != nullptr && hooks.interrupt->is_set(); }
  DoneSteps* done(int rank) const { return hooks.done == nullptr ? nullptr : hooks.done + (rank - first_rank); }
  TrainingPosition start() const { return hooks.resume == nullptr ? TrainingPosition{} : hooks.resume->position(); }
  bool computes() const { return !setup.config.emulate.compute_tflops.has_value(); }
  bool wants_parameters() const { return computes() && (setup.config.train.params_digest || hooks.keep_parameters); }
};

/// The final parameters: their digest, and themselves if somebody wants them, both on rank 0.
void bring_parameters(const Shared& shared, int rank, Executor& executor, Measurement& result) {
  ParametersDigest digest;
  std::vector<std::vector<float>> kept;
  if (rank == 0 && shared.hooks.keep_parameters) kept.resize(shared.setup.plan.shapes.parameters.size());
  executor.masters().collect([&](int parameter, std::int64_t /*begin*/, std::span<const float> values) {
    digest.add(values);
    if (kept.empty()) return;
    std::vector<float>& whole = kept[parameter];
    whole.insert(whole.end(), values.begin(), values.end());
  });
  if (rank != 0) return;
  if (shared.setup.config.train.params_digest && shared.setup.config.device.repeats()) {
    result.parameters_digest = digest.text();
  }
  result.parameters_not_finite = digest.not_finite();
  result.parameters = std::move(kept);
}

/// One rank, from its first parameter to its last.
void run_rank(const Shared& shared, backend::RankContext& context, Measurement& result) {
  const Setup& p = shared.setup;
  Executor executor(context, p.config, p.plan, p.schedules, *p.model, shared.batches);
  executor.start_at(shared.start());
  std::optional<CheckpointSaver> saver;
  if (shared.computes() && !p.config.checkpoint.folder.empty()) {
    saver.emplace(p, context, executor.masters(), shared.start());
  }
  Publication publication(shared.done(context.rank));
  backend::WireBytes before{}, after{};
  std::int64_t step = 0;
  std::optional<PoolStatistics> memory;  // of the steps, without what bringing the parameters home needs
  try {
    if (shared.hooks.resume != nullptr) {
      shared.hooks.resume->load(p.plan, context.rank, executor.masters());
    } else {
      executor.initialize(shared.fill, shared.fill_threads);
    }
    context.world.barrier();
    for (; step < shared.total_steps() && !shared.board.stops_before(context.rank, step); ++step) {
      if (step == shared.warmup()) {
        executor.start_recording(p.config.train.steps);
        before = after = executor.wire_bytes();
        context.world.barrier();
      }
      if (shared.hooks.meet_before_steps) context.world.barrier();
      const float loss = executor.run_step(step);
      if (step >= shared.warmup()) after = executor.wire_bytes();
      publication.publish(executor.trace(), step + 1);
      if (saver) saver->after_step(step + 1);
      shared.board.report_loss(context.rank, step, loss);
      if (context.rank == 0 && shared.hooks.progress) {
        shared.hooks.progress(step + 1, shared.computes() ? shared.board.latest_loss() : std::nullopt);
      }
    }
    memory = context.device.memory();
    if (context.rank == shared.first_rank && shared.hooks.steps_over) shared.hooks.steps_over();
    if (saver) {
      saver->finish(step);
      if (context.rank == 0) result.checkpoints = saver->completed();
    }
    if (shared.wants_parameters()) bring_parameters(shared, context.rank, executor, result);
  } catch (...) {
    if (!shared.cut_short()) throw;  // else it brings the steps before
  }
  RankOutcome outcome;
  for (std::size_t i = 0; i < before.size(); ++i) outcome.wire_bytes[i] = after[i] - before[i];
  outcome.memory = memory.value_or(context.device.memory());
  outcome.host_memory = context.device.host_memory();
  outcome.trace = executor.trace();
  outcome.device = context.device.facts();
  outcome.gpu = context.device.health();
  outcome.early_ns = executor.early_ns();
  outcome.host = launch::host_name();
  shared.board.bring(context.rank, step, std::move(outcome));
}

/// As run_rank(), and notes it if this rank is the one that fails.
void run_noted(const Shared& shared, backend::RankContext& context, Measurement& result) {
  try {
    run_rank(shared, context, result);
  } catch (const launch::Stopped&) {
    throw;
  } catch (...) {
    if (DoneSteps* done = shared.done(context.rank)) done->fail();
    throw;
  }
}

/// Filling is arithmetic alone: a core for each thread.
int fill_threads(int ranks_on_host) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_on_host);
}

}  // namespace

void check_emulation(const config::RunConfig& config, const std::vector<launch::ClockOffset>& clocks) {
  const auto elsewhere = std::ranges::find(clocks, false, &launch::ClockOffset::same_clock);
  if (!config.emulate.link_gb_per_s || elsewhere == clocks.end()) return;
  throw BackendError(
      fmt::format("emulate.link_gb_per_s = {} is for ranks on one host, and rank {} is on another; "
                  "\"none\" uses the real network",
                  *config.emulate.link_gb_per_s, elsewhere - clocks.begin()));
}

Measurement run(backend::Backend& backend, const Setup& setup, const BatchSource& batches, const RunHooks& hooks,
                launch::Session* session) {
  const config::RunConfig& config = setup.config;
  const std::int64_t total = config.train.warmup + config.train.steps;
  const int ranks = static_cast<int>(config.mesh.ranks);
  std::unique_ptr<RunBoard> board;
  if (session == nullptr) {
    board = std::make_unique<ThreadBoard>(ranks, total, hooks.stop);
  } else {
    board = std::make_unique<ChannelBoard>(session->control(), total, hooks.stop);
  }
  const auto initial = [&](int parameter, std::int64_t begin, std::span<float> out) {
    model::initialize_parameter(setup.plan.shapes.parameters[parameter], config.train.seed, begin,
                                begin + static_cast<std::int64_t>(out.size()), out.data());
  };
  const model::FillParameter fill = hooks.fill ? hooks.fill : model::FillParameter(initial);
  const int first_rank = session == nullptr ? 0 : session->control().rank();
  const int ranks_here = session == nullptr ? ranks : session->placement().local_ranks;
  const Shared shared{setup, batches, hooks, fill, *board, first_rank, fill_threads(ranks_here)};

  Measurement result;
  std::vector<launch::ClockOffset> before;
  std::vector<launch::ClockOffset> after;
  try {
    if (session != nullptr) before = launch::measure_clock_offsets(session->control());
    check_emulation(config, before);
    backend::BackendOptions options = backend_options(setup, session);
    options.interrupt = session == nullptr ? hooks.interrupt : nullptr;
    backend.run(options, [&](backend::RankContext& context) { run_noted(shared, context, result); });
    if (session != nullptr) after = launch::measure_clock_offsets(session->control());
  } catch (const Interrupted&) {
    if (!shared.cut_short() || session != nullptr) throw;
    result.interrupted = true;
    result.parameters_digest.reset();
    result.parameters.clear();
    result.parameters_not_finite = 0;
  } catch (const launch::Stopped&) {
    throw;  // the others know
  } catch (const std::exception& failure) {
    if (session != nullptr) session->control().fail(failure.what());
    throw;
  }
  result.began_at = shared.start();
  result.steps_done = board->steps_done();
  if (result.steps_done < total) result.interrupted = true;
  for (RankOutcome& outcome : board->outcomes()) {
    cut_outcome(outcome, result.steps_done, config.train.warmup);
    result.traces.push_back(std::move(outcome.trace));
    result.memory.push_back(outcome.memory);
    result.host_memory.push_back(outcome.host_memory);
    result.wire_bytes.push_back(outcome.wire_bytes);
    result.devices.push_back(std::move(outcome.device));
    result.gpus.push_back(std::move(outcome.gpu));
    result.early_ns.push_back(outcome.early_ns);
    result.hosts.push_back(std::move(outcome.host));
  }
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    result.clocks.push_back({before[rank], launch::ClockCorrection(before[rank], after[rank])});
    move_to_root_clock(result.traces[rank], result.clocks[rank].correction);
    if (result.gpus[rank]) move_to_root_clock(*result.gpus[rank], result.clocks[rank].correction);
  }
  if (shared.computes() && shared.first_rank == 0) result.losses = board->losses(result.steps_done);
  return result;
}

}  // namespace fsdpbench::engine
