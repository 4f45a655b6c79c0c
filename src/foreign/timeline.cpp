#include "foreign/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/enum_table.h"
#include "foreign/host_words.h"
#include "foreign/job_steps.h"
#include "trace/event_reader.h"
#include "trace/fields.h"

namespace fsdpbench::foreign {
namespace {

namespace field = trace::field;
using schedule::Phase;
using trace::EventStream;
using trace::Track;

/// A sentence each.
using CauseAdvice = EnumTable<account::Cause, std::string>;

constexpr int kStepTid = 1, kExposedTid = 2, kFirstTid = 3;
constexpr int kArrowShift = 32;  // arrows' ids: rank, then a number; exact also where all numbers are doubles

/// Slices of one track may not half overlap: what does stands on another one beside it.
class SideTracks {
 public:
  /// Which of the tracks, from 0 on, has room; slices in order of begin.
  std::size_t place(std::int64_t begin_ns, std::int64_t end_ns) {
    auto free = std::ranges::find_if(busy_until_, [&](std::int64_t until) { return until <= begin_ns; });
    if (free == busy_until_.end()) free = busy_until_.insert(free, 0);
    *free = end_ns;
    return static_cast<std::size_t>(free - busy_until_.begin());
  }

 private:
  std::vector<std::int64_t> busy_until_;
};

/// One rank's part of the file.
class RankTimeline {
 public:
  RankTimeline(EventStream& events, const JobTrace& job, const Recognition& found, const Explanation& explained,
               const CauseAdvice& advice, std::size_t place)
      : events_(events),
        job_(job),
        rank_(job.ranks[place]),
        found_(found.ranks[place]),
        table_(found.table),
        explained_(explained.ranks[place]),
        advice_(advice),
        place_(place),
        offset_(explained.ranks[place].clock_offset_ns),
        uses_(rank_.device.size(), nullptr),
        steps_(rank_.device.size(), -1),
        phases_(rank_.device.size()),
        device_tids_(rank_.device.size(), 0) {
    find_what_rows_are();
  }

  void write() {
    events_.name_track("process_name", track(kStepTid), fmt::format("rank {}", rank_.rank));
    events_.sort_track("process_sort_index", track(kStepTid), rank_.rank);
    name(kStepTid, "step");
    name(kExposedTid, "exposed");
    for (std::size_t s = 0; s < explained_.steps.size(); ++s) write_step(s);
    write_host();
    write_device();
    for (const auto& [from, row] : launches_) write_arrow(from, row);
    write_memory();
  }

 private:
  const DeviceRow& device(std::int32_t row) const { return rank_.device[row]; }
  std::string_view name_of(std::int32_t name) const { return rank_.names[name]; }
  Track track(int tid) const { return {static_cast<int>(place_) + 1, tid}; }
  void name(int tid, std::string_view text) {
    events_.name_track("thread_name", track(tid), text);
    events_.sort_track("thread_sort_index", track(tid), tid);
  }

  /// By row of the device: its collective, its step, and the phase that it belongs to as far as names and the
  /// collectives around it tell.
  void find_what_rows_are() {
    const HostWords words(rank_);
    for (std::size_t s = 0; s < found_.cut.steps.size(); ++s) {
      for (const CollectiveUse& use : found_.uses[s]) uses_[use.row] = &use;
      const std::int64_t end = found_.cut.steps[s].window.end;
      ends_.push_back(ends_.empty() ? end : std::max(ends_.back(), end));
      std::optional<Phase> now;
      for (std::int32_t row : found_.cut.steps[s].device) {
        const auto i = static_cast<std::size_t>(row);
        steps_[i] = found_.cut.steps[s].number;
        if (uses_[i] != nullptr) {
          now = uses_[i]->phase;
        } else if (const auto phase = phase_of_row(rank_, words, row)) {
          now = phase;
        }
        phases_[i] = now;
      }
    }
  }

  /// "all_gather layers.3"; of what is no collective of the step the device's own name.
  std::string title(std::int32_t row) const {
    const CollectiveUse* use = uses_[row];
    if (use == nullptr) return std::string(name_of(device(row).name));
    std::string text(to_string(use->kind));
    if (use->unit >= 0) text += " " + table_.units[use->unit].label;
    return text + (use->prefetch ? "*" : "");
  }

  void write_step(std::size_t s) {
    const JobStep& step = found_.cut.steps[s];
    const Interval window{step.window.begin + offset_, step.window.end + offset_};
    events_.head('X', "step", fmt::format("step {}", step.number), track(kStepTid), window.begin);
    events_.duration(window.end - window.begin);
    events_.arg(field::kStep, step.number);
    events_.arg_duration(field::kStepLength, window.end - window.begin);
    events_.end();
    const std::vector<account::Stall>& stalls = explained_.steps[s].stalls;
    for (std::size_t i = 0; i < stalls.size();) {
      const account::Stall& stall = stalls[i];
      Interval time = stall.time;
      const auto goes_on = [&](const account::Stall& next) {
        return next.time.begin == time.end && next.cause == stall.cause && next.op == stall.op &&
               next.late_rank == stall.late_rank;
      };
      for (++i; i < stalls.size() && goes_on(stalls[i]); ++i) time.end = stalls[i].time.end;
      write_exposed(step.number, stall, time);
    }
  }

  void write_exposed(std::int64_t step, const account::Stall& stall, const Interval& time) {
    events_.head('X', "exposed", to_string(stall.cause), track(kExposedTid), time.begin + offset_);
    events_.duration(time.end - time.begin);
    events_.arg(field::kStep, step);
    if (stall.op >= 0) {
      events_.arg(field::kOpName, title(stall.op));
      const CollectiveUse* use = uses_[stall.op];
      if (use != nullptr && use->unit >= 0) events_.arg(field::kUnit, table_.units[use->unit].label);
    }
    if (stall.late_rank >= 0) events_.arg(field::kLateRank, job_.ranks[stall.late_rank].rank);
    events_.arg(field::kAdvice, advice_[stall.cause]);
    events_.end();
  }

  /// The host's work for collectives, and where it waited: a track a thread.
  void write_host() {
    std::vector<std::int32_t> launched(rank_.host.size(), -1);  // by host row: the collective
    for (std::size_t i = 0; i < rank_.device.size(); ++i) {
      const DeviceRow& row = rank_.device[i];
      if (row.kind == Activity::collective && row.launch >= 0) launched[row.launch] = static_cast<std::int32_t>(i);
    }
    struct Thread {
      std::int32_t thread;
      SideTracks beside;
      std::vector<int> tids;
    };
    std::vector<Thread> threads;
    for (std::size_t i = 0; i < rank_.host.size(); ++i) {
      const HostRow& row = rank_.host[i];
      const bool waits = row.kind == HostWork::synchronise;
      if (launched[i] < 0 && !waits) continue;
      auto thread = std::ranges::find(threads, row.thread, &Thread::thread);
      if (thread == threads.end()) thread = threads.insert(thread, {row.thread, {}, {}});
      const std::size_t place = thread->beside.place(row.begin_ns, row.end_ns);
      if (place == thread->tids.size()) {
        thread->tids.push_back(next_tid_);
        const bool first = thread == threads.begin() && place == 0;
        name(next_tid_++,
             first ? std::string("host")
                   : fmt::format("host, thread {}{}", rank_.threads[row.thread], place > 0 ? ", beside" : ""));
      }
      const Track where = track(thread->tids[place]);
      const std::int64_t begin = row.begin_ns + offset_;
      events_.head('X', waits ? "host" : "issue", waits ? std::string(name_of(row.name)) : title(launched[i]), where,
                   begin);
      events_.duration(row.end_ns - row.begin_ns);
      const std::int64_t step = waits ? step_at(row.begin_ns) : steps_[launched[i]];
      if (step >= 0) events_.arg(field::kStep, step);
      events_.end();
      if (!waits) launches_.emplace_back(std::pair(where, begin), launched[i]);
    }
  }

  /// The number of the step in which the device was at a moment of the rank's own clock; -1: none.
  std::int64_t step_at(std::int64_t ns) const {
    const auto at = std::ranges::upper_bound(ends_, ns);
    return at == ends_.end() ? -1 : found_.cut.steps[at - ends_.begin()].number;
  }

  /// Streams in the order of what they do, each on a track and as many beside it as it needs.
  void write_device() {
    static constexpr std::array<std::string_view, 4> kOrder{"compute", "all_gather", "reduce_scatter", "all_reduce"};
    std::vector<std::size_t> order(rank_.streams.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto rank_of = [&](std::size_t stream) {
      if (static_cast<int>(stream) == found_.compute_stream) return std::ptrdiff_t{-1};
      return std::ranges::find(kOrder, std::string_view(found_.streams[stream].role)) - kOrder.begin();
    };
    std::ranges::stable_sort(order, {}, rank_of);
    std::vector<std::vector<std::int32_t>> rows(rank_.streams.size());
    for (std::size_t i = 0; i < rank_.device.size(); ++i) {
      rows[rank_.device[i].stream].push_back(static_cast<std::int32_t>(i));
    }
    std::vector<std::string> named;
    for (const std::size_t stream : order) {
      const bool computes = static_cast<int>(stream) == found_.compute_stream;
      std::string role = computes ? "compute" : found_.streams[stream].role;
      if (std::ranges::find(named, role) != named.end()) {
        role += fmt::format(", stream {}", rank_.streams[stream].id);
      } else {
        named.push_back(role);
      }
      SideTracks beside;
      std::vector<int> tids;
      for (const std::int32_t row : rows[stream]) {
        const std::size_t place = beside.place(device(row).begin_ns, device(row).end_ns);
        if (place == tids.size()) {
          tids.push_back(next_tid_);
          name(next_tid_++, place == 0 ? role : fmt::format("{}, beside {}", role, place));
        }
        device_tids_[row] = tids[place];
        write_row(row, track(tids[place]));
      }
    }
  }

  void write_row(std::int32_t row, Track where) {
    const DeviceRow& d = device(row);
    const auto i = static_cast<std::size_t>(row);
    const CollectiveUse* use = uses_[i];
    events_.head('X',
                 d.kind == Activity::computation  ? "computation"
                 : d.kind == Activity::collective ? "communication"
                                                  : "copy",
                 title(row), where, d.begin_ns + offset_);
    events_.duration(d.end_ns - d.begin_ns);
    if (steps_[i] >= 0) events_.arg(field::kStep, steps_[i]);
    if (use != nullptr && use->unit >= 0) events_.arg(field::kUnit, table_.units[use->unit].label);
    if (phases_[i]) events_.arg(field::kPhase, to_string(*phases_[i]));
    events_.arg(field::kStream, rank_.streams[d.stream].id);
    if (use != nullptr) events_.arg(field::kDeviceName, name_of(d.name));
    if (use != nullptr && use->bytes > 0) events_.arg(field::kBytes, use->bytes);
    if (use == nullptr && d.bytes > 0) events_.arg(field::kBytes, d.bytes);
    events_.end();
  }

  void write_arrow(const std::pair<Track, std::int64_t>& from, std::int32_t row) {
    const std::int64_t begin = device(row).begin_ns + offset_;
    if (begin < from.second) return;  // by their clocks
    events_.flow("issue", (static_cast<std::int64_t>(place_) << kArrowShift) + ++arrows_, from.first, from.second,
                 track(device_tids_[row]), begin);
  }

  void write_memory() {
    for (const MemoryRow& row : rank_.memory) {
      if (row.allocated < 0 && row.reserved < 0) continue;
      events_.head('C', "", "memory", track(kStepTid), row.time_ns + offset_);
      if (row.allocated >= 0) events_.arg(field::kAllocated, row.allocated);
      if (row.reserved >= 0) events_.arg(field::kReserved, row.reserved);
      events_.end();
    }
  }

  EventStream& events_;
  const JobTrace& job_;
  const RankRows& rank_;
  const RecognisedRank& found_;
  const UnitTable& table_;
  const ExplainedRank& explained_;
  const CauseAdvice& advice_;
  std::size_t place_;
  std::int64_t offset_;
  // By row of the device.
  std::vector<const CollectiveUse*> uses_;
  std::vector<std::int64_t> steps_, ends_;  // by row, the number of its step; by step, the last end so far
  std::vector<std::optional<Phase>> phases_;
  std::vector<int> device_tids_;
  std::vector<std::pair<std::pair<Track, std::int64_t>, std::int32_t>> launches_;
  int next_tid_ = kFirstTid;
  std::int64_t arrows_ = 0;
};

CauseAdvice advice_of(const Explanation& explained) {
  CauseAdvice advice;
  for (std::string& text : advice) {
    text =
        "Nothing is advised: this takes too little of the step, or no setting of this program is known to take it "
        "away.";
  }
  for (const account::CauseShare& share : explained.causes) {
    if (!share.advice.empty()) advice[share.cause] = share.advice;
  }
  return advice;
}

std::int64_t earliest_ns(const JobTrace& job, const Recognition& found, const Explanation& explained,
                         const std::vector<std::size_t>& shown) {
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t place : shown) {
    const RankRows& rank = job.ranks[place];
    const std::int64_t offset = explained.ranks[place].clock_offset_ns;
    const auto first = [&](const auto& rows) {
      if (!rows.empty()) earliest = std::min(earliest, rows.front().begin_ns + offset);
    };
    first(rank.device);
    first(rank.host);
    if (!rank.memory.empty()) earliest = std::min(earliest, rank.memory.front().time_ns + offset);
    for (const JobStep& step : found.ranks[place].cut.steps) earliest = std::min(earliest, step.window.begin + offset);
  }
  return earliest == std::numeric_limits<std::int64_t>::max() ? 0 : earliest;
}

}  // namespace

std::vector<std::size_t> shown_ranks(const Explanation& explained) {
  std::vector<std::size_t> order{0};
  std::size_t slowest = 0;
  const auto took = [&](std::size_t place) {
    std::int64_t ns = 0;
    for (const ExplainedStep& step : explained.ranks[place].steps) ns += step.parts.step;
    return ns;
  };
  for (std::size_t place = 0; place < explained.ranks.size(); ++place) {
    if (took(place) > took(slowest)) slowest = place;
  }
  order.push_back(slowest);
  if (explained.late_rank) order.push_back(static_cast<std::size_t>(*explained.late_rank));
  for (std::size_t place = 0; place < explained.ranks.size(); ++place) order.push_back(place);
  std::vector<std::size_t> shown;
  for (const std::size_t place : order) {
    if (shown.size() == std::min(kMostShownRanks, explained.ranks.size())) break;
    if (std::ranges::find(shown, place) == shown.end()) shown.push_back(place);
  }
  std::ranges::sort(shown);
  return shown;
}

void write_timeline(const std::string& path, const JobTrace& job, const Recognition& found,
                    const Explanation& explained) {
  const std::vector<std::size_t> shown = shown_ranks(explained);
  const CauseAdvice advice = advice_of(explained);
  trace::WholeFile file(path);
  EventStream events(file, earliest_ns(job, found, explained, shown));
  trace::JsonStream& json = events.json();
  json.raw(fmt::format("{{\"{}\":1,\"{}\":{},\"{}\":\"ms\",", field::kSchemaVersionKey.name,
                       field::kFsdpbenchSchema.name, trace::kSchemaVersion, field::kDisplayTimeUnit.name));
  if (shown.size() < explained.ranks.size()) {
    std::vector<int> ranks;
    for (const std::size_t place : shown) ranks.push_back(job.ranks[place].rank);
    json.raw(fmt::format("\"{}\":{},\"{}\":[{}],", field::kRanksOfRun.name, explained.ranks.size(),
                         field::kRanksShown.name, fmt::join(ranks, ",")));
  }
  json.raw(fmt::format("\"{}\":", field::kTraceName.name));
  json.text(std::filesystem::path(path).filename().string());
  json.raw(fmt::format(",\n\"{}\":[", field::kTraceEvents.name));
  for (const std::size_t place : shown) RankTimeline(events, job, found, explained, advice, place).write();
  json.raw("\n]}\n");
  json.flush();
  file.commit();
}

}  // namespace fsdpbench::foreign
