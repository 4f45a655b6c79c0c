#include "trace/rank_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <istream>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/read_input.h"
#include "trace/event_reader.h"
#include "trace/fields.h"
#include "trace/kineto.h"
#include "trace/record.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {
namespace {

/// More than any run of ours has in a rank's file.
constexpr std::int64_t kMostEvents = 100'000'000;
constexpr std::int64_t kOrigin_ns = 1;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  void event(const ParsedEvent& event) {
    if (event.ph != "X") return;
    const Value* step = event.arg(field::kStep.name);
    if (step == nullptr || !step->is_integer()) return;
    const Value* op = event.arg(field::kOp.name);
    if (op == nullptr) {
      window(event);
    } else if (op->is_integer()) {
      row(event, step->integer, op->integer);
    }
  }

  RankTrace take(const FileFacts& facts) {
    if (!facts.rank || trace_.steps.empty()) {
      throw ConfigError(fmt::format(
          "{}: is no trace of one rank with its steps; expected a file trace/rank_N.json.gz of a result folder.",
          path_));
    }
    trace_.rank = static_cast<int>(*facts.rank);
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const ParsedEvent& event, std::string_view what) const {
    throw ConfigError(
        fmt::format("{}: event {}: {}; the file is damaged, or another program wrote it.", path_, event.index, what));
  }

  std::int64_t time(const ParsedEvent& event, const Field& field) const {
    const Value* value = field.place == Place::args ? event.arg(field.name) : event.member(field.name);
    const std::optional<std::int64_t> ns = value == nullptr ? std::nullopt : nanoseconds(*value);
    if (!ns) refuse(event, fmt::format("{} is missing, or is no number of microseconds", field.name));
    return *ns;
  }

  void window(const ParsedEvent& event) {
    const std::int64_t begin = time(event, field::kTs) + kOrigin_ns;
    trace_.steps.push_back({begin, begin + time(event, field::kDur), 0});
    first_ = trace_.records.size();
  }

  void row(const ParsedEvent& event, std::int64_t step, std::int64_t op) {
    if (trace_.steps.empty()) refuse(event, "an op before the first step");
    const std::string_view category = event.category;
    const bool profiled = event.arg(field::kExternalId.name) != nullptr;
    const std::int64_t begin = time(event, field::kTs) + kOrigin_ns;
    const std::int64_t end = begin + time(event, field::kDur);
    if (category == "cpu_op" || (category == "cuda_runtime" && !profiled)) {
      if (std::cmp_not_equal(op, trace_.records.size() - first_)) refuse(event, "an op out of order");
      Record& record = trace_.records.emplace_back();
      record.step = static_cast<std::int32_t>(step);
      record.op = static_cast<std::int32_t>(op);
      record.issued_ns = begin;
      const bool waits = event.name == "cudaEventSynchronize";
      if (waits) record.end_ns = end;
      trace_.steps.back().issued_ns = end;
      return;
    }
    // With a profiler the kernels have rows, too; the op's own is the annotation around them.
    if (profiled != (category == "gpu_user_annotation")) return;
    if (category != "gpu_user_annotation" && category != "kernel" && !category.starts_with("gpu_mem")) return;
    if (op < 0 || std::cmp_greater_equal(op, trace_.records.size() - first_)) refuse(event, "an op that nobody issued");
    Record& record = trace_.records[first_ + op];
    record.begin_ns = begin;
    record.end_ns = end;
    if (event.arg(field::kWaitedForPeers.name) != nullptr) {
      record.peers_arrived_ns = begin + time(event, field::kWaitedForPeers);
    }
    if (event.arg(field::kOwnLink.name) != nullptr) record.link_ns = time(event, field::kOwnLink);
    if (event.arg(field::kWaitedForCore.name) != nullptr) record.core_wait_ns = time(event, field::kWaitedForCore);
  }

  const std::string& path_;
  RankTrace trace_;
  std::size_t first_ = 0;  // record of the step
};

// Ids of processes and tracks: positive, and unique over the ranks of a run, so that files can be opened together.
constexpr int kHostPid = 1000;
constexpr int kDevicePid = 900000;
constexpr int kDevicePidStep = 16;
constexpr int kRankHostTid = 1;
constexpr int kFirstStream = 7;  // as CUPTI numbers the default stream; viewers and HTA want streams above 0
constexpr int kCudaDevice = 1;   // kineto's device type

int stream_of_lane(Lane lane) { return kFirstStream + static_cast<int>(index_of(lane)); }

constexpr int kAside = 1'000'000;  // added to a stream's number for what does not fit on its track

int stream_of(const Activity& work) { return std::max(1, static_cast<int>(work.stream)); }

std::string_view name_at(std::span<const std::string> names, std::int32_t index, std::string_view otherwise) {
  const std::size_t at = index;
  return index >= 0 && at < names.size() ? std::string_view(names[at]) : otherwise;
}

}  // namespace

RankTrace read_rank_trace(const std::string& path) {
  InputFile file(path);
  std::istream in(&file);
  constexpr std::size_t kMostOfAMessage = 400;
  std::optional<std::string> trouble;
  const auto fault = [&](ReadFault, std::optional<std::int64_t>, std::string_view message) {
    if (!trouble) trouble = clean_text(message, kMostOfAMessage);
  };
  Reader reader(path);
  const FileFacts facts = read_events(in, kMostEvents, fault, [&](const ParsedEvent& event) { reader.event(event); });
  if (!file.error().empty()) {
    throw ConfigError(fmt::format("{}: cannot be read to its end: {}.", path, file.error()));
  }
  if (trouble) throw ConfigError(fmt::format("{}: {}", path, *trouble));
  return reader.take(facts);
}

RankWriter::RankWriter(const std::string& path, const RankFacts& facts, const TimeBase& time, LabelOf label)
    : file_(path),
      events_(file_, time.origin_ns),
      label_(std::move(label)),
      host_{kHostPid + facts.rank, kRankHostTid},
      device_pid_(kDevicePid + kDevicePidStep * facts.rank),
      rank_(facts.rank),
      profiled_(facts.profiled),
      collectives_(facts.groups),
      rows_(events_, collectives_, host_, device_pid_),
      end_ns_(time.origin_ns) {
  write_head(facts, time);
  events_.json().raw(fmt::format("\"{}\":", field::kTraceName.name));
  events_.json().text(std::filesystem::path(path).filename().string());
  events_.json().raw(fmt::format(",\n\"{}\":[", field::kTraceEvents.name));
  name_tracks(facts);
}

void RankWriter::write_head(const RankFacts& facts, const TimeBase& time) {
  JsonStream& json = events_.json();
  const std::vector<ProcessGroup>& groups = collectives_.groups();
  json.raw(fmt::format("{{\"{}\":1,\"{}\":{},\n", field::kSchemaVersionKey.name, field::kFsdpbenchSchema.name,
                       kSchemaVersion));
  json.raw(fmt::format("\"{}\":[{{\"id\":0,\"name\":", field::kDeviceProperties.name));
  json.text(fmt::format("{} rank {}", facts.backend, facts.rank));
  // HTA looks for the blank after "rank": in the text of the line.
  json.raw(fmt::format("}}],\n\"{}\":{{\"{}\":", field::kDistributedInfo.name, field::kBackend.name));
  json.text(facts.backend);
  json.raw(fmt::format(",\"{}\": {},\"{}\": {},\"{}\": {},\"{}\":[", field::kRank.name, facts.rank,
                       field::kWorldSize.name, facts.world_size, field::kGroupCount.name,
                       std::ranges::count_if(groups, [](const ProcessGroup& g) { return !g.ranks.empty(); }),
                       field::kGroupConfig.name));
  const char* separator = "";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].ranks.empty()) continue;
    json.raw(fmt::format("{}{{\"{}\":", std::exchange(separator, ","), field::kConfigName.name));
    json.text(groups[i].name);
    json.raw(fmt::format(",\"{}\":", field::kConfigDescription.name));
    json.text(groups[i].description);
    json.raw(fmt::format(",\"{}\":", field::kConfigBackend.name));
    json.text(facts.backend);
    json.raw(fmt::format(",\"{}\": {},\"{}\":\"{}\"}}", field::kConfigSize.name, groups[i].ranks.size(),
                         field::kConfigRanks.name, collectives_.ranks(i)));
  }
  json.raw(fmt::format("]}},\n\"{}\":\"ms\",", field::kDisplayTimeUnit.name));
  if (time.origin_unix_ns != 0) json.raw(fmt::format("\"{}\":{},", field::kBaseTime.name, time.origin_unix_ns));
}

void RankWriter::name_tracks(const RankFacts& facts) {
  events_.name_track("process_name", host_, fmt::format("rank {} host", rank_));
  events_.sort_track("process_sort_index", host_, 2 * rank_);
  events_.name_track("thread_name", host_, "host");
  const Track device{device_pid_, kFirstStream};
  events_.name_track("process_name", device, fmt::format("rank {} {} device", rank_, facts.backend));
  events_.sort_track("process_sort_index", device, 2 * rank_ + 1);
  if (profiled_) return;  // streams have numbers of the device's
  for (Lane lane : kLanes) {
    if (!is_offload_lane(lane)) name_lane(lane);
  }
}

void RankWriter::name_lane(Lane lane) {
  if (std::exchange(named_[index_of(lane)], true)) return;
  const Track track{device_pid_, stream_of_lane(lane)};
  events_.name_track("thread_name", track, fmt::format("stream {} {}", stream_of_lane(lane), to_string(lane)));
  events_.sort_track("thread_sort_index", track, stream_of_lane(lane));
}

void RankWriter::step(const TracedStep& step) {
  const std::int64_t end = host_end(step);
  events_.head('X', "user_annotation", fmt::format("ProfilerStep#{}", step.number), host_, step.window.begin_ns);
  events_.duration(end - step.window.begin_ns);
  events_.arg(field::kStep, step.number);
  events_.end();
  std::vector<Activity> works(step.activities.begin(), step.activities.end());
  std::ranges::stable_sort(works, [](const Activity& a, const Activity& b) {
    return a.op != b.op ? a.op < b.op : a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  for (std::size_t i = 0; i < step.records.size(); ++i) {
    const auto of_op = std::ranges::equal_range(works, step.records[i].op, {}, &Activity::op);
    write_op(step, step.records[i], issue_end(step, i), {of_op.begin(), of_op.end()});
  }
  for (const MemorySample& sample : step.memory) write_sample(sample);
  end_ns_ = end;
  next_step_ = step.number + 1;
}

void RankWriter::write_op(const TracedStep& step, const Record& record, std::int64_t host_end_ns,
                          std::span<const Activity> works) {
  const OpLabel& op = label_(step.number, record.op);
  if (profiled_ && op.on_lane()) return rows_.write(op, record, host_end_ns, works, step.names);
  if (!op.on_lane() || record.begin_ns == 0) {
    const bool waits = op.category == OpCategory::host;
    events_.head('X', waits ? "cuda_runtime" : "cpu_op", waits ? std::string_view("cudaEventSynchronize") : op.name,
                 host_, record.issued_ns);
    events_.duration((waits ? record.end_ns : host_end_ns) - record.issued_ns);
    events_.arg(field::kStep, record.step);
    events_.arg(field::kOp, record.op);
    if (waits) events_.arg(field::kOpName, op.name);
    events_.end();
    return;
  }
  if (!profiled_) name_lane(op.lane);
  const std::int64_t correlation = ++correlation_;
  write_launch(op, record, correlation, host_end_ns);
  write_device_row(op, record, correlation);
  const Track device{device_pid_, stream_of_lane(op.lane)};
  if (record.begin_ns >= record.issued_ns) {
    events_.flow("ac2g", correlation, host_, record.issued_ns, device, record.begin_ns);
  }
}

void RankWriter::write_launch(const OpLabel& op, const Record& record, std::int64_t correlation, std::int64_t end_ns) {
  events_.head('X', "cuda_runtime", launch_name(op.category), host_, record.issued_ns);
  events_.duration(end_ns - record.issued_ns);
  events_.arg(field::kCorrelation, correlation);
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
  events_.arg(field::kOpName, op.name);
  events_.end();
}

void RankWriter::write_device_row(const OpLabel& op, const Record& record, std::int64_t correlation) {
  const std::int64_t duration = record.end_ns - record.begin_ns;
  const std::string_view category = name_op_row(op, record.op, name_);
  events_.head('X', category, name_, {device_pid_, stream_of_lane(op.lane)}, record.begin_ns);
  events_.duration(duration);
  events_.arg(field::kDevice, 0);
  events_.arg(field::kContext, kContext);
  events_.arg(field::kStream, stream_of_lane(op.lane));
  events_.arg(field::kCorrelation, correlation);
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
  events_.arg(field::kOpName, op.name);
  if (!op.unit.empty()) events_.arg(field::kUnit, op.unit);
  events_.arg(field::kPhase, to_string(op.phase));
  if (op.bytes > 0) events_.arg(field::kBytes, op.bytes);
  if (op.category == OpCategory::copy && op.bytes > 0 && duration > 0) {
    events_.arg_number(field::kBandwidth, static_cast<double>(op.bytes) / static_cast<double>(duration));
  }
  if (op.collective) collectives_.write(events_, *op.collective, collectives_.next(*op.collective));
  write_record_args(events_, record);
  events_.end();
}

void RankWriter::write_sample(const MemorySample& sample) {
  const std::int64_t allocated = std::accumulate(sample.live.begin(), sample.live.end(), std::int64_t{0});
  events_.head('C', "", "memory", {device_pid_, kFirstStream}, sample.time_ns);
  events_.arg(field::kAllocated, allocated);
  events_.arg(field::kReserved, sample.reserved);
  events_.end();
  events_.head('i', "cpu_instant_event", "[memory]", host_, sample.time_ns);
  events_.member(field::kScope, "t");
  events_.arg(field::kDeviceType, kCudaDevice);
  events_.arg(field::kDeviceId, 0);
  events_.arg(field::kAllocatedBytes, allocated - last_allocated_);
  events_.arg(field::kTotalAllocated, allocated);
  events_.arg(field::kTotalReserved, sample.reserved);
  events_.end();
  last_allocated_ = allocated;
}

void RankWriter::finish() {
  // HTA drops what was launched from the begin of the last ProfilerStep on, which it takes for incomplete.
  events_.head('X', "user_annotation", fmt::format("ProfilerStep#{}", next_step_), host_, end_ns_);
  events_.duration(0);
  events_.end();
  events_.json().raw("\n]}\n");
  events_.json().flush();
  file_.commit();
}

void write_rank_trace(const std::string& path, const RankTrace& trace, const RankFacts& facts, const TimeBase& time,
                      const LabelOf& label) {
  RankFacts known = facts;
  known.profiled = !trace.activities.empty();
  RankWriter writer(path, known, time, label);
  for (const TracedStep& step : steps_of(trace)) writer.step(step);
  writer.finish();
}

void ActivityRows::write(const OpLabel& op, const Record& record, std::int64_t host_end_ns,
                         std::span<const Activity> works, std::span<const std::string> names) {
  ++external_id_;
  write_launches(op, record, host_end_ns, works, names);
  if (op.collective) sequence_ = collectives_.next(*op.collective);  // with or without rows: it joins ranks
  if (works.empty()) return;
  const bool has_span = record.begin_ns != 0;
  Track span;
  if (has_span) span = write_span(op, record, stream_of(works.front()));
  std::int64_t inner_end = std::numeric_limits<std::int64_t>::min();
  for (const Activity& work : works) {
    const bool inside = has_span && work.begin_ns >= inner_end && stream_of(work) == stream_of(works.front());
    const Track track = inside ? span : place(stream_of(work), op.lane, has_span ? 1 : 0, work.begin_ns, work.end_ns);
    if (inside) inner_end = work.end_ns;
    write_work(op, record, work, name_at(names, work.name, "unknown"), track, &work == &works.front());
    write_arrow(work, track);
  }
}

void ActivityRows::identify(const Record& record) {
  events_.arg(field::kExternalId, external_id_);
  events_.arg(field::kStep, record.step);
  events_.arg(field::kOp, record.op);
}

void ActivityRows::write_launches(const OpLabel& op, const Record& record, std::int64_t host_end_ns,
                                  std::span<const Activity> works, std::span<const std::string> names) {
  events_.head('X', "cpu_op", op.name, host_, record.issued_ns);
  events_.duration(host_end_ns - record.issued_ns);
  identify(record);
  events_.end();

  launches_.clear();
  for (const Activity& work : works) launches_.try_emplace(work.correlation, Launch{&work, 0, 0, true});
  std::vector<Launch*> in_order;
  for (auto& [correlation, launch] : launches_) in_order.push_back(&launch);
  std::ranges::stable_sort(in_order, {}, [](const Launch* l) { return l->first->launch_begin_ns; });
  std::int64_t earliest = record.issued_ns;
  for (Launch* launch : in_order) {
    const Activity& work = *launch->first;
    // Inside the issue and one after the other, whatever the clocks and the threads that called.
    launch->begin_ns = std::clamp(work.launch_begin_ns, earliest, std::max(earliest, host_end_ns));
    launch->end_ns = std::clamp(work.launch_end_ns, launch->begin_ns, std::max(launch->begin_ns, host_end_ns));
    earliest = launch->end_ns;
    const std::string_view name = name_at(names, work.launch_name, launch_name(op.category));
    events_.head('X', name.starts_with("cuda") ? "cuda_runtime" : "cuda_driver", name, host_, launch->begin_ns);
    events_.duration(launch->end_ns - launch->begin_ns);
    events_.arg(field::kCorrelation, static_cast<std::int64_t>(work.correlation));
    identify(record);
    events_.arg(field::kOpName, op.name);
    events_.end();
  }
}

Track ActivityRows::place(int stream, Lane lane, int aside, std::int64_t begin_ns, std::int64_t end_ns) {
  int tid = stream + aside * kAside;
  while (busy_until_.contains(tid) && busy_until_[tid] > begin_ns) tid += kAside;
  const Track track{device_pid_, tid};
  if (!busy_until_.contains(tid)) {
    events_.name_track("thread_name", track,
                       fmt::format("stream {} {}{}", stream, to_string(lane), tid == stream ? "" : ", overlapping"));
    events_.sort_track("thread_sort_index", track, stream);
  }
  busy_until_[tid] = end_ns;
  return track;
}

Track ActivityRows::write_span(const OpLabel& op, const Record& record, int stream) {
  const Track track = place(stream, op.lane, 0, record.begin_ns, record.end_ns);
  events_.head('X', "gpu_user_annotation", op.name, track, record.begin_ns);
  events_.duration(record.end_ns - record.begin_ns);
  identify(record);
  if (!op.unit.empty()) events_.arg(field::kUnit, op.unit);
  events_.arg(field::kPhase, to_string(op.phase));
  if (op.bytes > 0) events_.arg(field::kBytes, op.bytes);
  write_record_args(events_, record);
  events_.end();
  return track;
}

void ActivityRows::write_work(const OpLabel& op, const Record& record, const Activity& work,
                              std::string_view device_name, Track track, bool first) {
  const std::int64_t duration = work.end_ns - work.begin_ns;
  const std::string_view category = name_activity_row(op, record.op, work.kind, device_name, name_);
  events_.head('X', category, name_, track, work.begin_ns);
  events_.duration(duration);
  events_.arg(field::kDevice, 0);
  events_.arg(field::kContext, kContext);
  events_.arg(field::kStream, stream_of(work));
  events_.arg(field::kCorrelation, static_cast<std::int64_t>(work.correlation));
  identify(record);
  events_.arg(field::kOpName, op.name);
  if (name_ != device_name) events_.arg(field::kDeviceName, device_name);
  if (work.bytes > 0) {
    events_.arg(field::kBytes, work.bytes);
    if (duration > 0) {
      events_.arg_number(field::kBandwidth, static_cast<double>(work.bytes) / static_cast<double>(duration));
    }
  }
  // Once an op: readers add up what the rows say.
  if (op.collective && first) collectives_.write(events_, *op.collective, sequence_);
  events_.end();
}

void ActivityRows::write_arrow(const Activity& work, Track track) {
  Launch& launch = launches_.at(work.correlation);
  if (!launch.arrow) return;
  launch.arrow = false;
  // To where the work surely ran after its call; the row itself keeps the device's times.
  const std::int64_t to = std::max(work.begin_ns, launch.begin_ns);
  if (to == work.begin_ns || to < work.end_ns) {
    events_.flow("ac2g", work.correlation, host_, launch.begin_ns, track, to);
  }
}

}  // namespace fsdpbench::trace
