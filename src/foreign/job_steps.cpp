#include "foreign/job_steps.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/enum_table.h"
#include "foreign/kineto_names.h"

namespace fsdpbench::foreign {
namespace {

struct Cut {
  std::int64_t number = 0;
  Interval host;
};

std::vector<Cut> profiler_cuts(const RankRows& rank) {
  std::vector<Cut> cuts;
  for (const StepMark& mark : rank.steps) cuts.push_back({mark.number, {mark.begin_ns, mark.end_ns}});
  std::ranges::sort(cuts, {}, [](const Cut& c) { return c.host.begin; });
  // Between the end of a step and the begin of the next nothing is lost: it is the earlier one's.
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) cuts[i].host.end = cuts[i + 1].host.begin;
  return cuts;
}

std::vector<Cut> optimizer_cuts(const RankRows& rank) {
  std::vector<std::int64_t> ends;
  for (const HostRow& row : rank.host) {
    const std::string& name = rank.names[row.name];
    if (name.starts_with("Optimizer.step#") && (ends.empty() || row.begin_ns >= ends.back()))
      ends.push_back(row.end_ns);
  }
  std::vector<Cut> cuts;
  std::int64_t begin = std::numeric_limits<std::int64_t>::min();
  if (ends.size() == 1) return {{0, {begin, std::numeric_limits<std::int64_t>::max()}}};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    cuts.push_back({static_cast<std::int64_t>(i), {begin, ends[i]}});
    begin = ends[i];
  }
  return cuts;
}

bool updates(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[row];
  const std::string& name = rank.names[device.name];
  return device.kind == Activity::computation &&
         (updates_parameters(name) || kernel_kind(device.kind, name, {}) == KernelKind::optimizer);
}

/// The shortest list of collectives, with more than one kind or size, that the trace repeats up to its end at least
/// twice; what comes before is shorter. A step begins after the optimizer, or else where the list does that ends with
/// the trace.
std::vector<Cut> period_cuts(const RankRows& rank, const std::vector<std::int32_t>& by_launch) {
  std::vector<std::int32_t> rows,
      begins;  // collectives; what was launched first after the optimizer before each, or it
  for (std::size_t i = 0, updated = 0; i < by_launch.size(); ++i) {
    if (updates(rank, by_launch[i])) updated = i + 1;
    if (rank.device[by_launch[i]].collective < 0) continue;
    rows.push_back(by_launch[i]);
    begins.push_back(by_launch[updated > 0 ? updated : i]);
    updated = 0;
  }
  const auto key = [&](std::size_t i) {
    const auto& facts = rank.collectives[rank.device[rows[i]].collective];
    return std::make_tuple(facts.kind, facts.elements_in, facts.elements_out, facts.group);
  };
  std::vector<Cut> cuts;
  const std::size_t n = rows.size();
  for (std::size_t period = 2; period * 2 <= n; ++period) {
    std::size_t from = n - period;  // from here on it repeats
    while (from > 0 && key(from - 1) == key(from - 1 + period)) --from;
    if (from >= period || n - from < 2 * period) continue;
    bool varied = false;
    for (std::size_t i = from + 1; !varied && i < from + period; ++i) varied = key(i) != key(from);
    if (!varied) return cuts;
    const auto after_update = [&](std::size_t first) {
      bool all = true;
      for (std::size_t i = first; i < n; i += period) all = all && (i == 0 || begins[i] != rows[i]);
      return all;
    };
    std::size_t first = from + (n - from) % period;
    for (std::size_t i = 0; i < period && !after_update(first); ++i) {
      if (after_update(from + i)) first = from + i;
    }
    std::int64_t begin = first == 0 ? std::numeric_limits<std::int64_t>::min() : launched_ns(rank, begins[first]);
    for (std::size_t i = first + period; i <= n; i += period) {
      const std::int64_t end = i < n ? launched_ns(rank, begins[i]) : std::numeric_limits<std::int64_t>::max();
      cuts.push_back({static_cast<std::int64_t>(cuts.size()), {begin, end}});
      begin = end;
    }
    return cuts;
  }
  return cuts;
}

/// When the host launched each row of the device, and which of its calls that was; nothing: before the recording began.
/// Where its call is not in the file the last one before it on its stream tells, else on any stream. Where no call
/// is known at all, rows are launched as they begin.
using Launch = std::pair<std::int64_t, std::int32_t>;
std::vector<std::optional<Launch>> find_launches(const RankRows& rank) {
  std::vector<std::optional<Launch>> launches(rank.device.size());
  std::vector<std::optional<Launch>> last(rank.streams.size());
  std::optional<Launch> any;
  const bool known = !rank.computes_on_host() &&
                     std::ranges::any_of(rank.device, [](const DeviceRow& row) { return row.launch >= 0; });
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const DeviceRow& row = rank.device[i];
    std::optional<Launch>& before = last[row.stream];
    if (row.launch >= 0 || !known) {
      before = any = Launch{launched_ns(rank, static_cast<std::int32_t>(i)), row.launch};
      launches[i] = before;
    } else {
      launches[i] = before ? before : any;
    }
  }
  return launches;
}

/// The profiler's marks, if all rows of each step lie in its own and no mark reaches into another: one in the other,
/// each step would be all the steps in it.
template <typename First, typename Last>
std::optional<std::vector<Interval>> marks_around(const RankRows& rank, const JobSteps& cut, const First& first_begin,
                                                  const Last& last_end) {
  if (cut.source != StepSource::profiler) return std::nullopt;
  std::map<std::int64_t, Interval> by_number;  // the first of a number
  for (const StepMark& mark : rank.steps) by_number.try_emplace(mark.number, Interval{mark.begin_ns, mark.end_ns});
  std::vector<Interval> marks;
  for (const JobStep& step : cut.steps) {
    const Interval mark = by_number.at(step.number);
    if (first_begin(step) < mark.begin || last_end(step) > mark.end) return std::nullopt;
    if (!marks.empty() && mark.begin < marks.back().end) return std::nullopt;
    marks.push_back(mark);
  }
  return marks;
}

/// All rows and all steps once, in order of time, with those in hand that have begun and not ended.
void find_running(const RankRows& rank, JobSteps& cut) {
  const auto device = [&](std::int32_t row) -> const DeviceRow& { return rank.device[row]; };
  std::vector<std::int32_t> by_begin(rank.device.size()), running;
  std::iota(by_begin.begin(), by_begin.end(), 0);
  std::ranges::stable_sort(by_begin, {}, [&](std::int32_t row) { return device(row).begin_ns; });
  std::vector<JobStep*> steps;
  for (JobStep& step : cut.steps) steps.push_back(&step);
  std::ranges::stable_sort(steps, {}, [](const JobStep* step) { return step->window.begin; });
  auto next = by_begin.begin();
  for (JobStep* step : steps) {
    for (; next != by_begin.end() && device(*next).begin_ns < step->window.end; ++next, ++cut.looked_at) {
      if (device(*next).end_ns > step->window.begin) running.push_back(*next);
    }
    cut.looked_at += running.size();
    std::erase_if(running, [&](std::int32_t row) { return device(row).end_ns <= step->window.begin; });
    std::ranges::copy_if(running, std::back_inserter(step->running),
                         [&](std::int32_t row) { return device(row).begin_ns < step->window.end; });
  }
}

/// A recording that ends while the device works has not all of its last step: fewer collectives than any step before
/// it, and more launches without a row.
void leave_out_cut_step(const RankRows& rank, JobSteps& cut) {
  if (cut.steps.size() < 3 || rank.computes_on_host()) return;
  std::vector<bool> answered(rank.host.size());
  for (const DeviceRow& row : rank.device) {
    if (row.launch >= 0) answered[row.launch] = true;
  }
  std::vector<std::int64_t> lost;
  for (std::size_t i = 0; i < rank.host.size(); ++i) {
    if (rank.host[i].kind == HostWork::launch && !answered[i]) lost.push_back(rank.host[i].begin_ns);
  }
  const auto lost_in = [&](const JobStep& step) {  // its window is the host's, until all steps are cut
    return std::ranges::lower_bound(lost, step.window.end) - std::ranges::lower_bound(lost, step.window.begin);
  };
  const auto collectives_of = [&](const JobStep& step) {
    return std::ranges::count_if(step.device,
                                 [&](std::int32_t row) { return rank.device[row].kind == Activity::collective; });
  };
  const JobStep last = std::move(cut.steps.back());
  cut.steps.pop_back();
  const bool is_cut = std::ranges::all_of(cut.steps, [&](const JobStep& step) {
    return lost_in(step) < lost_in(last) && collectives_of(step) > collectives_of(last);
  });
  cut.left_out += is_cut ? last.device.size() : 0;
  if (!is_cut) cut.steps.push_back(last);
}

void find_host_work(const RankRows& rank, JobSteps& cut) {
  std::vector<std::int64_t> launches;  // of what computes
  for (const DeviceRow& row : rank.device) {
    if (row.kind == Activity::computation && row.launch >= 0) launches.push_back(rank.host[row.launch].begin_ns);
  }
  std::ranges::sort(launches);
  std::vector<bool> loads(rank.names.size());  // by name: there are fewer names than rows
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i] = rank.names[i].find("DataLoader") != std::string::npos;
  for (std::size_t i = 0; i < rank.host.size(); ++i) {
    const HostRow& row = rank.host[i];
    if (row.kind == HostWork::synchronise) cut.waits.push_back(static_cast<std::int32_t>(i));
    if (loads[row.name]) cut.loads.push_back({row.begin_ns, row.end_ns});
    if (rank.names[row.name] == kGarbage) cut.garbage.push_back({row.begin_ns, row.end_ns});
    if (launches.empty() || !rank.names[row.name].starts_with("Optimizer.step#")) continue;
    const auto next = std::ranges::lower_bound(launches, row.begin_ns);
    if (next == launches.end() || *next > row.end_ns) cut.updates.push_back({row.begin_ns, row.end_ns});
  }
  cut.updates = unite(std::move(cut.updates));
  cut.loads = unite(std::move(cut.loads));
  cut.garbage = unite(std::move(cut.garbage));
  std::ranges::sort(cut.waits, {}, [&](std::int32_t i) { return rank.host[i].end_ns; });
}

}  // namespace

double JobSteps::sureness() const {
  if (source == StepSource::whole) return 0.3;
  if (!launches_known) return source == StepSource::period ? 0.8 : 0.5;
  return source == StepSource::profiler ? 0.99 : 0.9;
}

std::string_view to_string(StepSource source) {
  static constexpr EnumNames<StepSource> kNames{"ProfilerStep annotations", "ends of Optimizer.step",
                                                "collectives that repeat", "nothing"};
  return kNames[source];
}

std::int64_t launched_ns(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[row];
  return device.launch >= 0 ? rank.host[device.launch].begin_ns : device.begin_ns;
}

JobSteps cut_steps(const RankRows& rank) {
  JobSteps result;
  const std::vector<std::optional<Launch>> launches = find_launches(rank);
  const auto is_launched = [](const DeviceRow& row) { return row.launch >= 0; };
  result.launches_known = rank.computes_on_host() || std::ranges::any_of(rank.device, is_launched);
  std::vector<std::int32_t> by_launch;
  std::int64_t earlier_end = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (launches[i]) {
      by_launch.push_back(static_cast<std::int32_t>(i));
      if (result.launches_known && !rank.computes_on_host() && !is_launched(rank.device[i])) ++result.launch_assumed;
    } else {
      ++result.before_recording;
      earlier_end = std::max(earlier_end, rank.device[i].end_ns);
    }
    result.launched.push_back(launches[i] ? launches[i]->first : rank.device[i].begin_ns);
  }
  const std::vector<std::int64_t>& launched = result.launched;
  // On a computed clock many calls take no time: then their order in the file is the host's.
  std::ranges::stable_sort(by_launch, {}, [&](std::int32_t row) { return *launches[row]; });

  std::vector<Cut> cuts = profiler_cuts(rank);
  result.source = StepSource::profiler;
  if (cuts.empty()) {
    cuts = optimizer_cuts(rank);
    result.source = StepSource::optimizer;
  }
  // Where nothing tells which rows the host launched within its marks, the device's own are surer.
  if (cuts.empty() || (!result.launches_known && !rank.is_compiled())) {
    if (std::vector<Cut> periods = period_cuts(rank, by_launch); !periods.empty()) {
      cuts = std::move(periods);
      result.source = StepSource::period;
    }
  }
  if (cuts.empty()) {
    cuts.push_back({0, {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}});
    result.source = StepSource::whole;
  }

  std::size_t at = 0;
  for (const Cut& cut : cuts) {
    while (at < by_launch.size() && launched[by_launch[at]] < cut.host.begin) {
      ++at;
      ++result.left_out;
    }
    JobStep step{cut.number, cut.host, {}, {}};
    while (at < by_launch.size() && launched[by_launch[at]] < cut.host.end) step.device.push_back(by_launch[at++]);
    if (!step.device.empty()) result.steps.push_back(std::move(step));
  }
  result.left_out += by_launch.size() - at;
  leave_out_cut_step(rank, result);

  const auto first_begin = [&](const JobStep& step) {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t row : step.device) begin = std::min(begin, rank.device[row].begin_ns);
    return begin;
  };
  const auto last_end = [&](const JobStep& step) {
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    for (std::int32_t row : step.device) end = std::max(end, rank.device[row].end_ns);
    return end;
  };
  // A step ends when the device has done what was launched in it; the next one begins there.
  const std::optional<std::vector<Interval>> marks = marks_around(rank, result, first_begin, last_end);
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    JobStep& step = result.steps[i];
    if (marks) {
      step.window = (*marks)[i];
    } else {
      step.window.begin = i > 0 ? result.steps[i - 1].window.end : std::max(first_begin(step), earlier_end);
      step.window.end = std::max(step.window.begin, last_end(step));
    }
  }
  find_running(rank, result);
  find_host_work(rank, result);
  return result;
}

}  // namespace fsdpbench::foreign
