#include "trace/activity_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trace/kineto.h"
#include "trace/record.h"

namespace fsdpbench::trace {
namespace {

constexpr int kAside = 1'000'000;  // added to a stream's number for what does not fit on its track

int stream_of(const Activity& work) { return std::max(1, static_cast<int>(work.stream)); }

std::string_view name_at(std::span<const std::string> names, std::int32_t index, std::string_view otherwise) {
  const std::size_t at = index;
  return index >= 0 && at < names.size() ? std::string_view(names[at]) : otherwise;
}

}  // namespace

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
