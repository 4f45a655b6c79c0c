#include "trace/merged_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/enum_table.h"
#include "trace/record.h"

namespace fsdpbench::trace {
namespace {

constexpr int kRankShift = 32;  // arrows' ids: rank, then a number; exact also where all numbers are doubles

// One field a category; a test compares their names with base/memory_space.h.
constexpr EnumTable<MemoryCategory, const Field*> kCategoryFields{&field::kParameterShards, &field::kUnsharded,
                                                                  &field::kGradients,       &field::kOptimizer,
                                                                  &field::kActivations,     &field::kCommunication};

/// Names of chrome://tracing's palette, the nearest to the colours of the report's figures; Perfetto colours by name.
/// `mostly_exposed`: a collective beside which little was computed.
std::string_view colour(const OpLabel& op, bool mostly_exposed) {
  constexpr EnumNames<OpPhase> kComputation{"thread_state_runnable", "rail_response", "rail_load"};
  constexpr EnumNames<CollectiveKind> kCollective{"thread_state_iowait",          "thread_state_uninterruptible",
                                                  "detailed_memory_dump",         "thread_state_iowait",
                                                  "thread_state_uninterruptible", "thread_state_iowait"};
  switch (op.category) {
    case OpCategory::computation: return kComputation[op.phase];
    case OpCategory::communication:
      return mostly_exposed ? "terrible"
                            : kCollective[op.collective ? op.collective->kind : CollectiveKind::all_gather];
    case OpCategory::copy: return "yellow";
    case OpCategory::host:
    case OpCategory::mark: break;
  }
  return "generic_work";
}

}  // namespace

MergedWriter::MergedWriter(const std::string& path, const TimeBase& time, LabelOf label, const std::vector<int>& shown,
                           std::size_t ranks)
    : file_(path), events_(file_, time.origin_ns), label_(std::move(label)), origin_ns_(time.origin_ns) {
  JsonStream& json = events_.json();
  json.raw(fmt::format("{{\"{}\":1,\"{}\":{},\"{}\":\"ms\",", field::kSchemaVersionKey.name,
                       field::kFsdpbenchSchema.name, kSchemaVersion, field::kDisplayTimeUnit.name));
  if (time.origin_unix_ns != 0) json.raw(fmt::format("\"{}\":{},", field::kBaseTime.name, time.origin_unix_ns));
  if (!shown.empty() && shown.size() < ranks) {
    json.raw(fmt::format("\"{}\":{},\"{}\":[{}],", field::kRanksOfRun.name, ranks, field::kRanksShown.name,
                         fmt::join(shown, ",")));
  }
  json.raw(fmt::format("\"{}\":", field::kTraceName.name));
  json.text(std::filesystem::path(path).filename().string());
  json.raw(fmt::format(",\n\"{}\":[", field::kTraceEvents.name));
}

Track MergedWriter::host_track() const { return {rank_ + 1, kHostTid}; }
Track MergedWriter::lane_track(Lane lane) const { return {rank_ + 1, tid_of(lane)}; }
Track MergedWriter::exposed_track() const { return {rank_ + 1, kExposedTid}; }
Track MergedWriter::bound_track() const { return {rank_ + 1, kBoundTid}; }

std::int64_t MergedWriter::flow_id() { return (static_cast<std::int64_t>(rank_) << kRankShift) + ++flows_; }

void MergedWriter::begin_rank(int rank) {
  rank_ = rank;
  flows_ = 0;
  gathers_in_flight_ = 0;
  reserved_ = -1;
  gpu_ = {};
  events_.name_track("process_name", host_track(), fmt::format("rank {}", rank));
  events_.sort_track("process_sort_index", host_track(), rank);
  int place = 0;
  const auto add = [&](Track track, std::string_view name) {
    events_.name_track("thread_name", track, name);
    events_.sort_track("thread_sort_index", track, place++);
  };
  add(bound_track(), "bound");
  add(host_track(), "host");
  add(exposed_track(), "exposed");
  named_.fill(false);
  for (Lane lane : kLanes) {
    if (!is_offload_lane(lane)) name_lane(lane);
  }
}

void MergedWriter::name_lane(Lane lane) {
  if (std::exchange(named_[index_of(lane)], true)) return;
  constexpr int kTracksBefore = 3;
  events_.name_track("thread_name", lane_track(lane), to_string(lane));
  events_.sort_track("thread_sort_index", lane_track(lane), kTracksBefore + static_cast<int>(index_of(lane)));
}

void MergedWriter::step(const TracedStep& step, const StepExplanation& explanation) {
  write_step(step, explanation);
  find_computation(step);
  for (std::size_t i = 0; i < step.records.size(); ++i) write_op(step, step.records[i], issue_end(step, i));
  write_activities(step);
  for (const ExposedSpan& span : explanation.exposed) write_exposed(step, span);
  if (explanation.bound) write_bound(step, *explanation.bound);
  write_memory(step, explanation);
  write_gathers();
  write_gpu(step, explanation.gpu);
}

void MergedWriter::write_step(const TracedStep& step, const StepExplanation& explanation) {
  events_.head('X', "step", fmt::format("step {}", step.number), host_track(), step.window.begin_ns);
  events_.duration(host_end(step) - step.window.begin_ns);
  events_.arg(field::kStep, step.number);
  events_.arg_duration(field::kStepLength, step.window.end_ns - step.window.begin_ns);
  if (!explanation.memory.empty()) events_.arg(field::kKept, explanation.kept_bytes);
  events_.end();
}

void MergedWriter::write_exposed(const TracedStep& step, const ExposedSpan& span) {
  events_.head('X', "exposed", span.cause, exposed_track(), span.time.begin);
  events_.duration(span.time.end - span.time.begin);
  events_.arg(field::kStep, step.number);
  if (span.op >= 0) {
    const OpLabel& op = label_(step.number, span.op);
    events_.arg(field::kOp, span.op);
    events_.arg(field::kOpName, op.name);
    if (!op.unit.empty()) events_.arg(field::kUnit, op.unit);
  }
  if (span.late_rank >= 0) events_.arg(field::kLateRank, span.late_rank);
  if (!span.advice.empty()) events_.arg(field::kAdvice, span.advice);
  events_.end();
}

void MergedWriter::write_bound(const TracedStep& step, const StepBound& bound) {
  const std::int64_t length = step.window.end_ns - step.window.begin_ns;
  events_.head('X', "bound", fmt::format("bound by {}", to_string(bound.lane)), bound_track(), step.window.begin_ns);
  events_.duration(std::min(bound.ns, length));
  events_.arg(field::kStep, step.number);
  events_.arg_duration(field::kStepLength, length);
  events_.arg_duration(field::kBound, bound.ns);
  events_.arg(field::kBoundLane, to_string(bound.lane));
  events_.arg_duration(field::kBoundLaneTime, bound.lane_ns);
  events_.end();
}

void MergedWriter::write_activities(const TracedStep& step) {
  // A kernel that half overlaps the one before it is cut at its begin: slices of one track must nest.
  std::array<std::int64_t, kLaneCount> end{};
  for (const Activity& work : step.activities) {
    const auto record = std::ranges::lower_bound(step.records, work.op, {}, &Record::op);
    if (record == step.records.end() || record->op != work.op || record->begin_ns == 0) continue;
    const OpLabel& op = label_(step.number, work.op);
    std::int64_t& lane_end = end[index_of(op.lane)];
    const std::int64_t earliest = std::max(record->begin_ns, lane_end);
    const std::int64_t begin = std::clamp(work.begin_ns, earliest, std::max(record->end_ns, earliest));
    const std::int64_t until = std::clamp(work.end_ns, begin, std::max(begin, record->end_ns));
    lane_end = until;
    const std::size_t name = work.name;
    events_.head('X', "activity", name < step.names.size() ? std::string_view(step.names[name]) : "unknown",
                 lane_track(op.lane), begin);
    events_.duration(until - begin);
    events_.arg(field::kStep, step.number);
    events_.arg(field::kOp, work.op);
    events_.arg(field::kStream, static_cast<std::int64_t>(work.stream));
    if (work.bytes > 0) events_.arg(field::kBytes, work.bytes);
    events_.end();
  }
}

void MergedWriter::write_op(const TracedStep& step, const Record& record, std::int64_t host_end_ns) {
  const OpLabel& op = label_(record.step, record.op);
  if (op.category == OpCategory::host) return write_wait(op, record);
  events_.head('X', "issue", op.name, host_track(), record.issued_ns);
  events_.duration(host_end_ns - record.issued_ns);
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
  events_.end();
  if (!op.on_lane() || record.begin_ns == 0) return;

  name_lane(op.lane);
  events_.head('X', to_string(op.category), op.name, lane_track(op.lane), record.begin_ns);
  events_.duration(record.end_ns - record.begin_ns);
  const bool communicates = op.category == OpCategory::communication;
  const Interval run{record.begin_ns, record.end_ns};
  const std::int64_t exposed = communicates ? run.end - run.begin - length_within(run, computation_) : 0;
  events_.member(field::kColour, colour(op, 2 * exposed > record.end_ns - record.begin_ns));
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
  events_.arg(field::kUnit, op.unit);
  events_.arg(field::kPhase, to_string(op.phase));
  events_.arg_time(field::kIssued, record.issued_ns);
  if (op.bytes > 0) events_.arg(field::kBytes, op.bytes);
  write_record_args(events_, record);
  if (communicates) events_.arg_duration(field::kExposed, exposed);
  events_.end();
  if (record.begin_ns >= record.issued_ns) {
    events_.flow("issue", flow_id(), host_track(), record.issued_ns, lane_track(op.lane), record.begin_ns);
  }
  if (op.needed_by >= 0) write_need(step, op, record);
  if (op.parameters) {
    gathers_.emplace_back(record.issued_ns, 1);
    gathers_.emplace_back(std::max(record.end_ns, record.issued_ns), -1);
  }
}

void MergedWriter::write_need(const TracedStep& step, const OpLabel& op, const Record& record) {
  const auto user = std::ranges::lower_bound(step.records, op.needed_by, {}, &Record::op);
  if (user == step.records.end() || user->op != op.needed_by) return;
  // From the collective's last nanosecond, which still lies in its slice; not where clocks say that its user was first.
  const std::int64_t from = std::max(record.begin_ns, record.end_ns - 1);
  if (user->begin_ns < from) return;
  events_.flow("needed", flow_id(), lane_track(op.lane), from, lane_track(label_(step.number, user->op).lane),
               user->begin_ns);
}

void MergedWriter::find_computation(const TracedStep& step) {
  std::vector<Interval> computation;
  for (const Record& record : step.records) {
    if (record.begin_ns != 0 && label_(step.number, record.op).category == OpCategory::computation) {
      computation.push_back({record.begin_ns, record.end_ns});
    }
  }
  computation_ = unite(std::move(computation));
}

void MergedWriter::write_wait(const OpLabel& op, const Record& record) {
  events_.head('X', to_string(op.category), op.name, host_track(), record.issued_ns);
  events_.duration(record.end_ns - record.issued_ns);
  events_.member(field::kColour, colour(op, false));
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
  events_.arg(field::kPhase, to_string(op.phase));
  events_.end();
  events_.head('i', to_string(op.category), op.name, host_track(), record.issued_ns);
  events_.member(field::kScope, "t");
  events_.end();
}

void MergedWriter::write_memory(const TracedStep& step, const StepExplanation& explanation) {
  const std::vector<LiveBytes>& levels = explanation.memory;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool lasts = i + 1 == levels.size() || levels[i + 1].time_ns != levels[i].time_ns;
    if (lasts) write_live(levels[i].time_ns, levels[i].live);
  }
  for (const MemorySample& sample : step.memory) {
    if (levels.empty()) write_live(sample.time_ns, sample.live);
    if (sample.reserved == reserved_) continue;
    reserved_ = sample.reserved;
    events_.head('C', "", "reserved bytes", host_track(), sample.time_ns);
    events_.arg(field::kReserved, sample.reserved);
    events_.end();
  }
}

void MergedWriter::write_live(std::int64_t time_ns, const CategoryBytes& live) {
  events_.head('C', "", "live bytes", host_track(), time_ns);
  for (MemoryCategory category : kMemoryCategories) {
    events_.arg(*kCategoryFields[category], live[index_of(category)]);
  }
  events_.end();
}

void MergedWriter::write_gathers() {
  std::ranges::sort(gathers_);
  for (const auto& [time, change] : gathers_) {
    gathers_in_flight_ += change;
    events_.head('C', "", "gathers in flight", host_track(), time);
    events_.arg(field::kGathers, gathers_in_flight_);
    events_.end();
  }
  gathers_.clear();
}

void MergedWriter::write_gpu(const TracedStep& step, std::span<const GpuSample> samples) {
  for (const GpuSample& sample : samples) {
    const std::int64_t time = std::max(sample.time_ns, step.window.begin_ns);
    if (sample.sm_mhz) write_gpu_level("SM clock", field::kSmClock, time, *sample.sm_mhz, gpu_.sm_mhz);
    if (sample.power_mw) write_gpu_level("GPU power", field::kPower, time, *sample.power_mw * 1e-3, gpu_.power_w);
    if (sample.temperature_c) {
      write_gpu_level("GPU temperature", field::kTemperature, time, *sample.temperature_c, gpu_.temperature_c);
    }
  }
}

void MergedWriter::write_gpu_level(const char* name, const Field& field, std::int64_t time_ns, double value,
                                   double& written) {
  if (value == written) return;
  written = value;
  events_.head('C', "", name, host_track(), time_ns);
  events_.arg_number(field, value);
  events_.end();
}

void MergedWriter::finish() {
  events_.json().raw("\n]}\n");
  events_.json().flush();
  file_.commit();
}

void write_merged_trace(const std::string& path, const std::vector<RankTrace>& ranks, const TimeBase& time,
                        const LabelOf& label, const std::vector<int>& shown, const ExplanationOf& explain) {
  MergedWriter writer(path, time, label, shown, ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!shown.empty() && !std::ranges::binary_search(shown, ranks[rank].rank)) continue;
    writer.begin_rank(ranks[rank].rank);
    const std::vector<TracedStep> steps = steps_of(ranks[rank]);
    for (std::size_t s = 0; s < steps.size(); ++s)
      writer.step(steps[s], explain ? explain(rank, s) : StepExplanation{});
  }
  writer.finish();
}

}  // namespace fsdpbench::trace
