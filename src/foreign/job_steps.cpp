#include "foreign/job_steps.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/enum_table.h"

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
    const std::string& name = rank.names[static_cast<std::size_t>(row.name)];
    if (name.starts_with("Optimizer.step#") && (ends.empty() || row.begin_ns >= ends.back()))
      ends.push_back(row.end_ns);
  }
  std::vector<Cut> cuts;
  if (ends.size() < 2) return cuts;
  std::int64_t begin = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    cuts.push_back({static_cast<std::int64_t>(i), {begin, ends[i]}});
    begin = ends[i];
  }
  return cuts;
}

/// The shortest list of collectives that the whole trace repeats, at least twice and with more than one kind or size.
std::vector<Cut> period_cuts(const RankRows& rank, const std::vector<std::int32_t>& by_launch) {
  std::vector<std::int32_t> rows;
  for (std::int32_t row : by_launch) {
    if (rank.device[static_cast<std::size_t>(row)].collective >= 0) rows.push_back(row);
  }
  const auto key = [&](std::int32_t row) {
    const auto& facts =
        rank.collectives[static_cast<std::size_t>(rank.device[static_cast<std::size_t>(row)].collective)];
    return std::make_tuple(facts.kind, facts.elements_in, facts.elements_out, facts.group);
  };
  std::vector<Cut> cuts;
  const std::size_t n = rows.size();
  for (std::size_t period = 2; period * 2 <= n; ++period) {
    if (n % period != 0) continue;
    bool repeats = true;
    for (std::size_t i = period; repeats && i < n; ++i) repeats = key(rows[i]) == key(rows[i - period]);
    if (!repeats) continue;
    bool varied = false;
    for (std::size_t i = 1; !varied && i < period; ++i) varied = key(rows[i]) != key(rows[0]);
    if (!varied) return cuts;
    std::int64_t begin = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = period; i <= n; i += period) {
      const std::int64_t end = i < n ? launched_ns(rank, rows[i]) : std::numeric_limits<std::int64_t>::max();
      cuts.push_back({static_cast<std::int64_t>(i / period - 1), {begin, end}});
      begin = end;
    }
    return cuts;
  }
  return cuts;
}

}  // namespace

std::string_view to_string(StepSource source) {
  static constexpr EnumNames<StepSource> kNames{"ProfilerStep annotations", "ends of Optimizer.step",
                                                "collectives that repeat", "nothing"};
  return kNames[source];
}

std::int64_t launched_ns(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[static_cast<std::size_t>(row)];
  return device.launch >= 0 ? rank.host[static_cast<std::size_t>(device.launch)].begin_ns : device.begin_ns;
}

JobSteps cut_steps(const RankRows& rank) {
  JobSteps result;
  std::vector<std::int32_t> by_launch(rank.device.size());
  std::iota(by_launch.begin(), by_launch.end(), 0);
  std::vector<std::int64_t> launched(rank.device.size());
  for (std::int32_t row : by_launch) launched[static_cast<std::size_t>(row)] = launched_ns(rank, row);
  // On a computed clock many calls take no time: then their order in the file is the host's.
  std::ranges::stable_sort(by_launch, {}, [&](std::int32_t row) {
    return std::make_pair(launched[static_cast<std::size_t>(row)], rank.device[static_cast<std::size_t>(row)].launch);
  });

  std::vector<Cut> cuts = profiler_cuts(rank);
  result.source = StepSource::profiler;
  if (cuts.empty()) {
    cuts = optimizer_cuts(rank);
    result.source = StepSource::optimizer;
  }
  if (cuts.empty()) {
    cuts = period_cuts(rank, by_launch);
    result.source = StepSource::period;
  }
  if (cuts.empty()) {
    cuts.push_back({0, {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}});
    result.source = StepSource::whole;
  }

  std::size_t at = 0;
  for (const Cut& cut : cuts) {
    while (at < by_launch.size() && launched[static_cast<std::size_t>(by_launch[at])] < cut.host.begin) {
      ++at;
      ++result.left_out;
    }
    JobStep step{cut.number, cut.host, {}};
    while (at < by_launch.size() && launched[static_cast<std::size_t>(by_launch[at])] < cut.host.end) {
      step.device.push_back(by_launch[at++]);
    }
    if (!step.device.empty()) result.steps.push_back(std::move(step));
  }
  result.left_out += by_launch.size() - at;

  const auto first_begin = [&](const JobStep& step) {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t row : step.device) begin = std::min(begin, rank.device[static_cast<std::size_t>(row)].begin_ns);
    return begin;
  };
  const auto last_end = [&](const JobStep& step) {
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    for (std::int32_t row : step.device) end = std::max(end, rank.device[static_cast<std::size_t>(row)].end_ns);
    return end;
  };
  const bool within =
      result.source == StepSource::profiler && std::ranges::all_of(result.steps, [&](const JobStep& s) {
        const auto mark = std::ranges::find(rank.steps, s.number, &StepMark::number);
        return mark != rank.steps.end() && first_begin(s) >= mark->begin_ns && last_end(s) <= mark->end_ns;
      });
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    JobStep& step = result.steps[i];
    if (within) {
      const auto mark = std::ranges::find(rank.steps, step.number, &StepMark::number);
      step.window = {mark->begin_ns, mark->end_ns};
    } else {
      step.window.begin = first_begin(step);
      step.window.end = i + 1 < result.steps.size() ? first_begin(result.steps[i + 1]) : last_end(step);
    }
  }
  return result;
}

}  // namespace fsdpbench::foreign
