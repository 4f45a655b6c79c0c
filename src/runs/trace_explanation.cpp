#include "runs/trace_explanation.h"

#include <algorithm>

#include "account/cause_report.h"
#include "account/memory_timeline.h"
#include "account/step_bound.h"
#include "account/step_view.h"
#include "schedule/policy.h"

namespace fsdpbench::app {

static_assert(account::kSmallSharePct == 2.0, "kNothingToGain names it");

TraceExplanation::TraceExplanation(const engine::Setup& setup, const Trial& trial)
    : setup_(setup),
      measured_(trial.measurement),
      run_(setup.schedules, trial.measurement.traces, trial.measurement.slowest_ns) {
  if (!trial.causes) return;
  even_rows_ = trial.causes->even_rows;
  if (trial.causes->typical_stalls) typical_ = &*trial.causes->typical_stalls;
  advice_.fill(kNothingToGain);
  for (const account::CauseShare& share : trial.causes->causes) {
    advice_.at(static_cast<std::size_t>(share.cause)) = share.advice.empty() ? kNothingCertain : share.advice;
  }
}

std::vector<account::ToldStall> TraceExplanation::told_apart(const account::StepRecords& step, int place,
                                                             const std::vector<account::Stall>& stalls) const {
  if (typical_ != nullptr) return typical_->tell(step, place, stalls);
  std::vector<account::ToldStall> told;
  for (const account::Stall& stall : stalls) told.push_back({stall, false});
  return told;
}

std::span<const GpuSample> TraceExplanation::gpu_samples(std::size_t rank, std::size_t step) const {
  if (rank >= measured_.gpus.size() || !measured_.gpus[rank]) return {};
  const std::vector<GpuSample>& samples = measured_.gpus[rank]->samples;
  const std::vector<trace::StepWindow>& windows = measured_.traces[rank].steps;
  const auto first_from = [&](std::int64_t time_ns) {
    return std::ranges::lower_bound(samples, time_ns, {}, &GpuSample::time_ns);
  };
  auto begin = first_from(windows[step].begin_ns);
  if (begin != samples.begin()) --begin;
  return {begin, first_from(step + 1 < windows.size() ? windows[step + 1].begin_ns : windows[step].end_ns)};
}

trace::StepExplanation TraceExplanation::operator()(std::size_t rank, std::size_t step) const {
  const account::StepRecords& records = run_.steps().at(step);
  const int place = static_cast<int>(rank);
  const bool prefetches_backward = schedule::prefetches_backward(setup_.policy.fsdp);
  trace::StepExplanation explanation;
  const std::vector<account::Stall> stalls = account::find_stalls(
      records, setup_.plan.groups, setup_.config.emulate.link(), prefetches_backward, place, even_rows_);
  for (const account::ToldStall& told : told_apart(records, place, stalls)) {
    const account::Stall& stall = told.stall;
    explanation.exposed.push_back(
        {stall.time, account::name_of(told), stall.op, stall.late_rank,
         told.jitter ? kBeyondTypical : advice_.at(static_cast<std::size_t>(stall.cause)).c_str()});
  }
  for (const account::MemoryLevel& level : account::memory_timeline(records, place)) {
    explanation.memory.push_back({records.window(place).begin_ns + level.time_ns, level.live});
  }
  for (const schedule::Buffer& buffer : records.schedule().buffers) {
    if (buffer.persistent) explanation.kept_bytes += buffer.bytes;
  }
  const account::StepBound bound = account::step_bound(account::StepView(records, place));
  explanation.bound = trace::StepBound{bound.ns, bound.lane, bound.lane_ns};
  explanation.gpu = gpu_samples(rank, step);
  return explanation;
}

}  // namespace fsdpbench::app
