#include "runs/trace_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "account/cause_report.h"
#include "account/run_details.h"
#include "account/step_bound.h"
#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "base/clock.h"
#include "config/spelling.h"
#include "schedule/policy.h"
#include "schedule/print_schedule.h"
#include "trace/facts.h"
#include "trace/merged_writer.h"
#include "trace/rank_writer.h"

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
  for (const trace::LiveBytes& level : account::memory_timeline(records, place)) {
    explanation.memory.push_back({records.window(place).begin_ns + level.time_ns, level.live});
  }
  for (const schedule::Buffer& buffer : records.schedule().buffers) {
    if (buffer.persistent) explanation.kept_bytes += buffer.bytes;
  }
  explanation.bound = account::step_bound(account::StepView(records, place));
  explanation.gpu = gpu_samples(rank, step);
  return explanation;
}
namespace {

/// By plan::Group; those that the plan does not have stay without ranks.
std::vector<trace::ProcessGroup> groups_of(const plan::Groups& map, int rank) {
  std::vector<trace::ProcessGroup> groups;
  for (std::size_t i = 0; i < plan::kGroupCount; ++i) {
    const auto group = static_cast<plan::Group>(i);
    std::vector<int> ranks;
    if (map.exists(group)) ranks = map.members(group, rank).ranks();
    groups.push_back({std::to_string(i), std::string(to_string(group)), std::move(ranks)});
  }
  return groups;
}

trace::OpCategory category_of(const schedule::Op& op) {
  switch (account::classify(op)) {
    case account::OpClass::computation: return trace::OpCategory::computation;
    case account::OpClass::communication: return trace::OpCategory::communication;
    case account::OpClass::host_update:  // no computation of the device's, like what brings its operands
    case account::OpClass::copy: return trace::OpCategory::copy;
    case account::OpClass::none: break;
  }
  return op.is_host() ? trace::OpCategory::host : trace::OpCategory::mark;
}

trace::OpLabel label_of(const engine::Setup& p, const schedule::Schedule& schedule, const schedule::Op& op) {
  trace::OpLabel label;
  label.name = schedule::op_name(p.plan, op);
  label.category = category_of(op);
  label.phase = op.phase == schedule::Phase::forward    ? trace::OpPhase::forward
                : op.phase == schedule::Phase::backward ? trace::OpPhase::backward
                                                        : trace::OpPhase::optimizer;
  if (op.unit >= 0) label.unit = p.plan.units[op.unit].label();
  label.lane = op.lane;
  label.parameters = op.kind == schedule::OpKind::all_gather;
  if (op.is_collective()) {
    const schedule::Collective& work = *op.collective();
    label.bytes = work.bytes();
    label.collective = {schedule::collective_kind(op.kind), static_cast<std::size_t>(work.group), work.count,
                        work.dtype};
  } else if (label.category == trace::OpCategory::copy) {
    for (schedule::BufferId id : op.operands().writes) label.bytes += schedule.buffers[id].bytes;
  }
  return label;
}

/// Labels of every op of a setup's schedules in traces. Made once: a writer asks for a label at every record. A
/// trace::LabelOf.
class TraceLabels {
 public:
  explicit TraceLabels(const engine::Setup& setup);

  /// `step`: number over the whole run, warm-up counted; `op`: index into its schedule.
  const trace::OpLabel& operator()(std::int32_t step, std::int32_t op) const;

 private:
  std::vector<std::vector<trace::OpLabel>> by_step_;
};

TraceLabels::TraceLabels(const engine::Setup& setup) {
  for (const schedule::Schedule& schedule : setup.schedules.steps) {
    const std::vector<int> needed_by = account::needed_by(schedule);
    std::vector<trace::OpLabel>& labels = by_step_.emplace_back();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      labels.push_back(label_of(setup, schedule, schedule.ops[i]));
      labels.back().needed_by = needed_by[i];
    }
  }
}

const trace::OpLabel& TraceLabels::operator()(std::int32_t step, std::int32_t op) const {
  const std::size_t last = by_step_.size() - 1;
  return by_step_[std::min(static_cast<std::size_t>(step), last)][op];
}

/// Who a rank is, for its file.
trace::RankFacts rank_facts(const engine::Setup& setup, int rank) {
  return {rank, setup.plan.mesh.ranks(), std::string(config::to_string(setup.config.device.backend)),
          groups_of(setup.plan.groups, rank)};
}

std::int64_t unix_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

trace::TimeBase time_base(const engine::Setup& setup, const std::vector<trace::RankTrace>& traces) {
  trace::TimeBase time;
  time.origin_ns = trace::first_begin(traces);
  if (setup.config.device.backend == config::BackendKind::virtual_) return time;  // a clock of its own, from 1970 on
  time.origin_unix_ns = unix_now_ns() - now_ns() + time.origin_ns;
  return time;
}

void write_rank_files(const std::filesystem::path& folder, const engine::Setup& setup,
                      const std::vector<trace::RankTrace>& traces, const trace::TimeBase& time,
                      const trace::LabelOf& label, AllFiles& files) {
  trace::make_folder(folder / "trace");
  for (const trace::RankTrace& trace : traces) {
    files.write([&] {
      trace::write_rank_trace((folder / "trace" / fmt::format("rank_{}.json.gz", trace.rank)).string(), trace,
                              rank_facts(setup, trace.rank), time, label);
    });
  }
}

}  // namespace

std::vector<int> shown_ranks(const Trial& trial, std::int64_t most) {
  const std::vector<trace::RankTrace>& traces = trial.measurement.traces;
  const auto ranks = static_cast<std::int64_t>(traces.size());
  const std::int64_t wanted = most == 0 ? ranks : std::min<std::int64_t>(most, ranks);
  std::vector<int> order{0};
  if (trial.metrics && !trial.metrics->ranks.empty()) {
    const auto& all = trial.metrics->ranks;
    const auto slowest =
        std::ranges::max_element(all, {}, [](const account::RankMetrics& rank) { return rank.step_ms.median; });
    order.push_back(slowest->rank);
  }
  if (trial.causes) {
    for (const account::CauseShare& cause : trial.causes->causes) {
      if (cause.late_rank >= 0) order.push_back(cause.late_rank);
    }
  }
  for (const trace::RankTrace& trace : traces) order.push_back(trace.rank);
  std::vector<int> shown;
  for (const int rank : order) {
    if (static_cast<std::int64_t>(shown.size()) == wanted) break;
    if (std::ranges::find(shown, rank) == shown.end()) shown.push_back(rank);
  }
  std::ranges::sort(shown);
  return shown;
}

void write_trace_files(const std::filesystem::path& folder, const engine::Setup& setup, const Trial& trial) {
  const std::vector<trace::RankTrace>& traces = trial.measurement.traces;
  const TraceLabels labels(setup);
  const trace::LabelOf label = std::cref(labels);
  const trace::TimeBase time = time_base(setup, traces);
  const TraceExplanation explanation(setup, trial);
  AllFiles files;
  files.write([&] {
    trace::write_merged_trace((folder / "trace.json").string(), traces, time, label,
                              shown_ranks(trial, setup.config.trace.ranks), std::cref(explanation));
  });
  files.write([&] { write_rank_files(folder, setup, traces, time, label, files); });
  files.finish();
}

void write_worst_step(const std::filesystem::path& path, const engine::Setup& setup, const Trial& trial) {
  const account::RunView run(setup.schedules, trial.measurement.traces, trial.measurement.slowest_ns);
  if (run.steps().empty()) return;
  const auto worst = std::ranges::max_element(run.steps(), {}, &account::StepRecords::slowest_ns) - run.steps().begin();
  const account::StepRecords& step = run.steps()[worst];
  std::vector<trace::RankTrace> traces;
  for (int place = 0; place < step.ranks(); ++place) {
    const trace::RankTrace& whole = trial.measurement.traces[place];
    const trace::StepWindow& window = step.window(place);
    trace::RankTrace& alone = traces.emplace_back();
    alone.rank = whole.rank;
    alone.activity_names = whole.activity_names;
    alone.steps = {window};
    alone.records.assign(step.of(place).begin(), step.of(place).end());
    std::ranges::copy_if(whole.activities, std::back_inserter(alone.activities),
                         [&](const Activity& activity) { return activity.step == step.number(); });
    std::ranges::copy_if(whole.memory, std::back_inserter(alone.memory), [&](const trace::MemorySample& sample) {
      return sample.time_ns >= window.begin_ns && sample.time_ns <= std::max(window.end_ns, window.issued_ns);
    });
  }
  const TraceLabels labels(setup);
  const TraceExplanation explanation(setup, trial);
  trace::write_merged_trace(path.string(), traces, time_base(setup, traces), std::cref(labels),
                            shown_ranks(trial, setup.config.trace.ranks),
                            [&](std::size_t rank, std::size_t) { return explanation(rank, worst); });
}

void write_rank_file(const std::filesystem::path& folder, const engine::Setup& setup, const trace::RankTrace& trace) {
  const TraceLabels labels(setup);
  const std::vector<trace::RankTrace> traces{trace};
  AllFiles files;
  write_rank_files(folder, setup, traces, time_base(setup, traces), std::cref(labels), files);
  files.finish();
}

}  // namespace fsdpbench::app
