#include "account/run_metrics.h"

#include <algorithm>

#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "clock/op_times.h"

namespace fsdpbench::account {

ModelFlops model_flops(const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config, double step_ms,
                       std::optional<double> peak_tflops) {
  ModelFlops m;
  for (const plan::ModuleSizes& s : sizes) m.per_rank_and_step += s.forward_flops + s.backward_flops;
  m.per_rank_and_step *= static_cast<double>(config.train.accumulate);
  m.tflops_per_rank = m.per_rank_and_step / (step_ms / 1000) / 1e12;
  m.peak_tflops = peak_tflops ? peak_tflops : config.emulate.compute_tflops;
  if (m.peak_tflops) m.mfu_pct = 100 * m.tflops_per_rank / *m.peak_tflops;
  return m;
}
namespace {

constexpr double kNsPerMs = 1e6;

std::vector<clock::OpDurations> durations(const StepRecords& step) {
  std::vector<clock::OpDurations> result;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    clock::OpDurations& mine = result.emplace_back();
    for (const trace::Record& r : step.of(rank)) mine.push_back(r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns));
  }
  return result;
}

std::array<double, plan::kGroupCount> transfer_ms(const RunView& run, int rank) {
  std::array<std::vector<double>, plan::kGroupCount> by_step;
  for (const StepRecords& step : run.steps()) {
    std::array<std::int64_t, plan::kGroupCount> sums{};
    const std::vector<schedule::Op>& ops = step.schedule().ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].is_collective()) continue;
      const trace::Record& r = step.of(rank)[i];
      sums[static_cast<std::size_t>(ops[i].group())] +=
          r.link_ns > 0 ? r.link_ns : r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns);
    }
    for (std::size_t g = 0; g < sums.size(); ++g) by_step[g].push_back(static_cast<double>(sums[g]) / kNsPerMs);
  }
  std::array<double, plan::kGroupCount> result{};
  for (std::size_t g = 0; g < result.size(); ++g) result[g] = median(by_step[g]);
  return result;
}

RankMetrics rank_metrics(const RunView& run, int rank, const StepBreakdown& middle) {
  std::vector<double> steps;
  for (const StepRecords& step : run.steps()) steps.push_back(static_cast<double>(step.length_ns(rank)) / kNsPerMs);
  RankMetrics m;
  m.rank = run.steps().front().rank_at(rank);
  m.step_ms = summarize(steps);
  const double scale = middle.step > 0 ? m.step_ms.median / static_cast<double>(middle.step) : 0;
  m.compute_ms = scale * static_cast<double>(middle.computation);
  m.exposed_comm_ms = scale * static_cast<double>(middle.exposed_communication);
  m.exposed_copy_ms = scale * static_cast<double>(middle.exposed_copy);
  m.idle_ms = scale * static_cast<double>(middle.idle);
  if (middle.communication > 0) {
    m.overlap_pct = 100.0 * static_cast<double>(middle.overlap) / static_cast<double>(middle.communication);
  }
  m.transfer_ms = transfer_ms(run, rank);
  return m;
}

}  // namespace

RunMetrics run_metrics(const RunView& run, const plan::Groups& groups, double tokens_per_step) {
  RunMetrics m;
  const MiddleSteps middle = middle_steps(run);
  std::vector<StepBreakdown> by_rank(static_cast<std::size_t>(run.ranks()));  // of the middle steps
  std::vector<double> ratio;
  for (std::size_t s = 0; s < run.steps().size(); ++s) {
    const StepRecords& step = run.steps()[s];
    const bool counts = std::ranges::binary_search(middle.indices, s);
    for (int rank = 0; rank < run.ranks(); ++rank) {
      const StepBreakdown b = break_down(step, rank);
      if (counts) by_rank[rank] += b;
    }
    m.steps_ms.push_back(static_cast<double>(step.slowest_ns()) / kNsPerMs);
    if (run.ranks() < groups.ranks()) continue;
    const std::int64_t bound = clock::max_plus_bound(step.schedule(), step.event_count(), groups, durations(step));
    if (bound > 0) ratio.push_back(static_cast<double>(step.slowest_ns()) / static_cast<double>(bound));
  }
  StepBreakdown all;
  for (const StepBreakdown& b : by_rank) all += b;
  const auto ms = [&](std::int64_t ns) { return static_cast<double>(ns) * middle.ms_per_ns; };

  m.step_ms = summarize(m.steps_ms);
  for (int rank = 0; rank < run.ranks(); ++rank) {
    m.ranks.push_back(rank_metrics(run, rank, by_rank[rank]));
  }
  m.settling = find_settling(m.steps_ms);
  if (const std::optional<double> noise = aa_noise(m.steps_ms)) m.aa_noise_pct = 100 * *noise;
  m.compute_ms = ms(all.computation);
  m.comm_ms = ms(all.communication);
  m.exposed_comm_ms = ms(all.exposed_communication);
  m.exposed_copy_ms = ms(all.exposed_copy);
  m.idle_ms = ms(all.idle);
  if (all.communication > 0) {
    m.overlap_pct = 100.0 * static_cast<double>(all.overlap) / static_cast<double>(all.communication);
  }
  m.tokens_per_s = tokens_per_step / (m.step_ms.median / 1000);
  if (!ratio.empty()) m.bound_ratio = median(ratio);
  return m;
}

}  // namespace fsdpbench::account
