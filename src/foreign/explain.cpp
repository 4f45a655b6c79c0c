#include "foreign/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/student.h"
#include "config/words/fsdpbench.h"
#include "foreign/host_words.h"
#include "foreign/matched_collectives.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

constexpr double kMs = 1e-6;

void add(const CauseTimes& times, CauseTimes& sums) {
  for (const Cause cause : kEnumerators<Cause>) sums[cause] += times[cause];
}

std::optional<double> overlap_pct(const RankRows& rank) {
  IntervalSet computation, communication;
  for (const DeviceRow& row : rank.device) {
    if (row.kind == Activity::computation) computation.push_back({row.begin_ns, row.end_ns});
    if (row.kind == Activity::collective) communication.push_back({row.begin_ns, row.end_ns});
  }
  computation = unite(std::move(computation));
  communication = unite(std::move(communication));
  if (communication.empty()) return std::nullopt;
  return 100.0 * static_cast<double>(length(intersect(computation, communication))) /
         static_cast<double>(length(communication));
}

/// Key of collectives that do alike.
using CollectiveKey = std::tuple<Communication, int, schedule::Phase>;

struct CollectiveSums {
  ExplainedCollective row;
  std::int64_t ns = 0, waited_ns = 0, exposed_ns = 0;
  std::size_t times = 0;
  CauseTimes causes;
};

double bus_factor(Communication kind, int ranks) {
  const double n = ranks;
  return kind == Communication::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
}

/// Matrix products of one name may be of different sizes, so like is compared with like: the k-th row of runs of
/// computation between two collectives that launch the same kernels in the same order, as the blocks of a model do.
std::vector<Contention> find_contention(const JobTrace& job, const Recognition& found, std::size_t steps) {
  constexpr std::size_t kFewest = 8, kFewestAlike = 3;
  constexpr double kLeast = 1.05;
  struct Sums {
    std::size_t alone = 0, beside = 0;
    double alone_ns = 0, beside_ns = 0;  // of those beside: what they would take alone, and what they take
  };
  std::map<std::string, Sums> by_name;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    const RecognisedRank& recognised = found.ranks[r];
    IntervalSet communication;
    for (const DeviceRow& row : rank.device) {
      if (row.kind == Activity::collective) communication.push_back({row.begin_ns, row.end_ns});
    }
    communication = unite(std::move(communication));
    std::map<std::vector<std::int32_t>, std::vector<std::vector<std::int32_t>>> runs;  // by their kernels' names
    for (const JobStep& step : recognised.cut.steps) {
      std::vector<std::int32_t> names, rows;
      const auto end_run = [&] {
        if (!rows.empty()) runs[names].push_back(rows);
        names.clear();
        rows.clear();
      };
      for (const std::int32_t i : step.device) {
        const DeviceRow& row = rank.device[i];
        if (row.kind == Activity::collective) end_run();
        if (row.kind != Activity::computation || row.stream != recognised.compute_stream) continue;
        names.push_back(row.name);
        rows.push_back(i);
      }
      end_run();
    }
    for (const auto& [names, alike] : runs) {
      for (std::size_t k = 0; k < names.size(); ++k) {
        const std::string& name = rank.names[names[k]];
        if (!is_matrix_product(name) && !dialects::own_name(name)) continue;
        std::vector<std::int64_t> alone, with;
        for (const std::vector<std::int32_t>& run : alike) {
          const DeviceRow& row = rank.device[run[k]];
          const std::int64_t took = row.end_ns - row.begin_ns;
          const std::int64_t beside = length_within({row.begin_ns, row.end_ns}, communication);
          if (beside == 0) alone.push_back(took);
          if (beside * 10 >= took * 9 && took > 0) with.push_back(took);
        }
        if (alone.size() < kFewestAlike || with.size() < kFewestAlike) continue;
        Sums& sums = by_name[name];
        sums.alone += alone.size();
        sums.beside += with.size();
        sums.alone_ns += static_cast<double>(upper_median(alone)) * static_cast<double>(with.size());
        sums.beside_ns += static_cast<double>(upper_median(with)) * static_cast<double>(with.size());
      }
    }
  }
  std::vector<Contention> result;
  for (const auto& [name, sums] : by_name) {
    if (sums.alone < kFewest || sums.beside < kFewest) continue;
    if (sums.alone_ns <= 0 || sums.beside_ns < sums.alone_ns * kLeast) continue;
    const auto launches = static_cast<double>(sums.beside);
    result.push_back({name, sums.alone_ns / launches / 1e3, sums.beside_ns / launches / 1e3, sums.alone, sums.beside,
                      (sums.beside_ns - sums.alone_ns) * kMs / static_cast<double>(std::max<std::size_t>(steps, 1))});
  }
  std::ranges::sort(result, std::greater<>(), &Contention::lost_ms);
  return result;
}

/// A rank's own work, by step.
std::vector<OwnTime> own_times(const ExplainedRank& rank) {
  std::vector<OwnTime> own;
  for (const ExplainedStep& step : rank.steps) {
    const std::int64_t exchanges = step.parts.exposed_communication + step.parts.exposed_copy;
    const std::int64_t waits = step.causes[Cause::straggler], loads = step.causes[Cause::data_loading];
    const std::int64_t host = step.parts.idle - loads - step.garbage;
    own.push_back({step.parts.computation, std::max<std::int64_t>(0, host), step.garbage, loads,
                   std::max<std::int64_t>(0, exchanges - waits)});
  }
  return own;
}

/// FLOP of the matrix products of a rank ÷ the mean of the others'; 0 where a file has no shapes.
double work_of(const JobTrace& job, std::size_t place) {
  double own = 0, others = 0;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    double flops = 0;
    for (const HostRow& row : job.ranks[r].host) {
      if (row.product >= 0) flops += static_cast<double>(job.ranks[r].products[row.product].flops);
    }
    if (flops <= 0) return 0;
    (r == place ? own : others) += flops;
  }
  return own * static_cast<double>(job.ranks.size() - 1) / others;
}

/// The rank that makes the others late. Stages of a pipeline do different things, so none of them is late.
std::optional<LateRank> late_rank_of(const JobTrace& job, const Explanation& e, const Recognition& found) {
  for (const RecognisedRank& rank : found.ranks) {
    for (const std::vector<CollectiveUse>& uses : rank.uses) {
      if (std::ranges::find(uses, Purpose::pipeline, &CollectiveUse::purpose) != uses.end()) return std::nullopt;
    }
  }
  std::vector<std::vector<OwnTime>> own;
  for (const ExplainedRank& rank : e.ranks) own.push_back(own_times(rank));
  constexpr double kLeastOfAStep = 5;  // percent
  int blamed = -1;
  for (const account::CauseShare& share : e.causes) {
    if (share.cause == Cause::straggler && share.share_pct >= kLeastOfAStep &&
        share.ms * 2 > e.exposed_communication_ms) {
      blamed = e.late_rank.value_or(-1);
    }
  }
  auto late = find_late_rank(own, e.mean_step_ms, blamed);
  // Who took long to transfer is told by clocks that agree to much less than that.
  const bool agree =
      job.shared_clock && static_cast<double>(e.clock_residual_ns) * kMs * 10 <= (late ? late->late_ms.median : 0);
  if (late && late->where == OwnPart::communication && !agree) return std::nullopt;
  if (late) late->work = work_of(job, static_cast<std::size_t>(late->place));
  return late;
}

/// A step's slowest rank, of steps that all ranks have.
std::vector<double> slowest_ms(const Explanation& e) {
  std::vector<double> lengths;
  std::size_t steps = e.ranks.front().steps.size();
  for (const ExplainedRank& rank : e.ranks) steps = std::min(steps, rank.steps.size());
  for (std::size_t s = 0; s < steps; ++s) {
    std::int64_t longest = 0;
    for (const ExplainedRank& rank : e.ranks) longest = std::max(longest, rank.steps[s].parts.step);
    lengths.push_back(static_cast<double>(longest) * kMs);
  }
  return lengths;
}

std::map<std::int32_t, std::pair<std::int64_t, CauseTimes>> exposed_by_row(const std::vector<account::Stall>& stalls,
                                                                           const RankRows& rank) {
  std::map<std::int32_t, std::pair<std::int64_t, CauseTimes>> by_row;
  for (const account::Stall& stall : stalls) {
    if (stall.op < 0 || rank.device[stall.op].kind != Activity::collective) continue;
    const DeviceRow& row = rank.device[stall.op];
    if (stall.time.begin < row.begin_ns || stall.time.end > row.end_ns) continue;  // idle before it began
    auto& [ns, causes] = by_row[stall.op];
    ns += stall.time.end - stall.time.begin;
    causes[stall.cause] += stall.time.end - stall.time.begin;
  }
  return by_row;
}

/// The largest first; each at the collective that lost most to it.
std::vector<account::CauseShare> shares_of(const Explanation& e) {
  std::vector<account::CauseShare> shares;
  for (const Cause cause : kEnumerators<Cause>) {
    if (e.causes_ms[cause] <= 0) continue;
    account::CauseShare& share = shares.emplace_back();
    share.cause = cause;
    share.ms = e.causes_ms[cause];
    share.share_pct = 100 * share.ms / e.mean_step_ms;
    const auto worst = std::ranges::max_element(e.collectives, {},
                                                [&](const ExplainedCollective& one) { return one.causes_ms[cause]; });
    if (worst != e.collectives.end() && worst->causes_ms[cause] > 0) {
      share.unit = worst->unit;
      share.op = worst->unit.empty() ? worst->kind : worst->kind + " " + worst->unit;
    }
  }
  std::ranges::stable_sort(shares, std::greater<>(), &account::CauseShare::ms);
  return shares;
}

}  // namespace

Explanation explain(const JobTrace& job, const Recognition& found) {
  Explanation e;
  const MatchedCollectives matched(job);
  const JobTypes types(job, found, matched);
  e.clock_residual_ns = matched.residual_ns();
  std::map<CollectiveKey, CollectiveSums> sums;
  std::map<int, std::int64_t> late;
  std::int64_t waited = 0, garbage = 0;
  std::size_t steps = 0, launches = 0, late_launches = 0;
  std::vector<std::int64_t> ahead_ns;
  account::StepBreakdown total;
  CauseTimes causes;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    const RecognisedRank& recognised = found.ranks[r];
    ExplainedRank out;
    out.rank = rank.rank;
    out.overlap_pct = overlap_pct(rank);
    out.clock_offset_ns = matched.offset_ns(static_cast<int>(r));
    for (const MemoryRow& row : rank.memory) {
      if (row.allocated >= 0) out.most_allocated = std::max(out.most_allocated.value_or(0), row.allocated);
      if (row.reserved >= 0) out.most_reserved = std::max(out.most_reserved.value_or(0), row.reserved);
    }
    for (std::size_t i = 0; i < rank.device.size(); ++i) {
      const DeviceRow& row = rank.device[i];
      if (row.kind != Activity::computation || row.launch < 0) continue;
      ++launches;
      ahead_ns.push_back(std::max<std::int64_t>(0, row.begin_ns - launched_ns(rank, static_cast<std::int32_t>(i))));
      late_launches += row.begin_ns - launched_ns(rank, static_cast<std::int32_t>(i)) <= types.launch_lag_ns(r);
    }
    for (std::size_t s = 0; s < recognised.cut.steps.size(); ++s) {
      ExplainedStep step;
      step.number = recognised.cut.steps[s].number;
      const account::StepIntervals sets = intervals_of(rank, recognised.cut.steps[s]);
      step.parts = account::break_down(sets, sets.window);
      step.stalls = find_job_stalls(job, found, matched, types, static_cast<int>(r), s);
      for (const account::Stall& stall : step.stalls) {
        const std::int64_t ns = stall.time.end - stall.time.begin;
        step.causes[stall.cause] += ns;
        if (stall.cause == Cause::host_bound) step.garbage += length_within(stall.time, recognised.cut.garbage);
        if (stall.cause == Cause::straggler) {
          late[stall.late_rank] += ns;
          waited += ns;
        }
      }
      account::check_partition(step.stalls, step.parts.stalled(),
                               fmt::format("rank {}, step {}", rank.rank, step.number));
      const auto exposed = exposed_by_row(step.stalls, rank);
      for (const CollectiveUse& use : recognised.uses[s]) {
        CollectiveSums& sum = sums[{use.kind, use.unit, use.phase}];
        const DeviceRow& row = rank.device[use.row];
        if (sum.times == 0) {
          sum.row.kind = to_string(use.kind);
          sum.row.phase = to_string(use.phase);
          sum.row.purpose = use.purpose;
          sum.row.bytes = use.bytes;
          if (use.unit >= 0) sum.row.unit = found.table.units[use.unit].label;
          if (use.group >= 0) {
            const Group& group = rank.groups[use.group];
            sum.row.ranks = static_cast<int>(std::max<std::int64_t>(0, group.size));
            sum.row.group = group.ranks;
          }
        }
        ++sum.times;
        sum.ns += row.end_ns - row.begin_ns;
        sum.waited_ns += matched.last_arrival(static_cast<int>(r), use.row).at_ns - row.begin_ns;
        if (const auto here = exposed.find(use.row); here != exposed.end()) {
          sum.exposed_ns += here->second.first;
          add(here->second.second, sum.causes);
        }
      }
      total += step.parts;
      add(step.causes, causes);
      garbage += step.garbage;
      ++steps;
      out.steps.push_back(std::move(step));
    }
    e.ranks.push_back(std::move(out));
  }
  if (steps == 0) return e;
  const double per_step = kMs / static_cast<double>(steps);
  e.mean_step_ms = static_cast<double>(total.step) * per_step;
  e.computation_ms = static_cast<double>(total.computation) * per_step;
  e.communication_ms = static_cast<double>(total.communication) * per_step;
  e.exposed_communication_ms = static_cast<double>(total.exposed_communication) * per_step;
  e.exposed_copy_ms = static_cast<double>(total.exposed_copy) * per_step;
  e.idle_ms = static_cast<double>(total.idle) * per_step;
  e.garbage_ms = static_cast<double>(garbage) * per_step;
  for (const Cause cause : kEnumerators<Cause>) e.causes_ms[cause] = static_cast<double>(causes[cause]) * per_step;
  for (auto& [key, sum] : sums) {
    ExplainedCollective row = sum.row;
    row.times = static_cast<double>(sum.times) / static_cast<double>(steps);
    row.time_ms = static_cast<double>(sum.ns) * per_step;
    row.waited_ms = static_cast<double>(sum.waited_ns) * per_step;
    row.exposed_ms = static_cast<double>(sum.exposed_ns) * per_step;
    const double transfer_ns = static_cast<double>(sum.ns - sum.waited_ns) / static_cast<double>(sum.times);
    if (row.bytes > 0 && row.ranks > 1 && transfer_ns > 0) {
      row.busbw_gb_s = static_cast<double>(row.bytes) / transfer_ns * bus_factor(std::get<0>(key), row.ranks);
    }
    Cause worst{};
    for (const Cause cause : kEnumerators<Cause>) {
      row.causes_ms[cause] = static_cast<double>(sum.causes[cause]) * per_step;
      if (sum.causes[cause] > sum.causes[worst]) worst = cause;
    }
    row.worst = sum.exposed_ns > 0 ? worst : Cause::unknown;
    e.collectives.push_back(std::move(row));
  }
  std::ranges::stable_sort(e.collectives, std::greater<>(), &ExplainedCollective::exposed_ms);
  for (const auto& [place, ns] : late) {
    if (place >= 0 && ns * 2 > waited) e.late_rank = place;
  }
  e.causes = shares_of(e);
  if (waited > 0) e.late = late_rank_of(job, e, found);
  for (account::CauseShare& share : e.causes) {
    if (share.cause != Cause::straggler || !e.late || !e.late->certain() || e.late->place != e.late_rank) continue;
    share.late_rank = job.ranks[e.late->place].rank;
  }
  e.launches_known = launches > 0;
  if (launches > 0) {
    e.host_most_ahead_ms = static_cast<double>(std::ranges::max(ahead_ns)) * kMs;
    e.host_ahead_ms = static_cast<double>(upper_median(std::move(ahead_ns))) * kMs;
  }
  e.late_launches_pct = launches > 0 ? 100.0 * static_cast<double>(late_launches) / static_cast<double>(launches) : 0;
  e.steps_ms = slowest_ms(e);
  if (!e.steps_ms.empty()) {
    e.step_ms = account::summarize(e.steps_ms);
    std::vector<double> sorted = e.steps_ms;
    std::ranges::sort(sorted);
    const double median = sorted[(sorted.size() - 1) / 2];
    for (std::size_t s = 0; s < e.steps_ms.size(); ++s) {
      account::CriticalPath path = find_job_path(job, found, matched, types, s);
      account::add_path(path, e.path);
      if (e.median_path.parts.empty() && e.steps_ms[s] == median) e.median_path = std::move(path);
    }
  }
  e.contention = find_contention(job, found, steps);
  e.kernels = find_kernel_times(job, found);
  e.rank_steps = steps;
  for (const std::string& note : job.notes) e.notes.push_back(note);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    for (const std::string& note : job.ranks[r].notes) {
      e.notes.push_back(fmt::format("rank {}: {}", job.ranks[r].rank, note));
    }
    if (found.ranks[r].cut.before_recording > 0) {
      e.notes.push_back(
          fmt::format("rank {}: {} rows of the device were launched before the recording began; they are of no whole "
                      "step and left out",
                      job.ranks[r].rank, found.ranks[r].cut.before_recording));
    }
    if (found.ranks[r].cut.launch_assumed > 0) {
      e.notes.push_back(fmt::format(
          "rank {}: {} rows of the device have no launch in the file; they are taken for launched with the row before",
          job.ranks[r].rank, found.ranks[r].cut.launch_assumed));
    }
    if (found.ranks[r].cut.left_out > 0) {
      e.notes.push_back(fmt::format("rank {}: {} rows of the device were launched outside all steps and are left out",
                                    job.ranks[r].rank, found.ranks[r].cut.left_out));
    }
  }
  if (!launches)
    e.notes.push_back("The trace does not tell when the host launched what: whether it was late is not known.");
  return e;
}

}  // namespace fsdpbench::foreign
