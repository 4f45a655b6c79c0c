#include "metrics/checkpoint_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/enum_table.h"
#include "metrics/statistics.h"

namespace fsdpbench::metrics {
namespace {

using trace::RankTrace;
using trace::SavePart;
using trace::SaveSpan;

constexpr double kMs = 1e-6;  // a nanosecond
/// Shorter ones are not worth a word of advice: part of a step.
constexpr double kNothingPct = 1;

double ms(std::int64_t ns) { return static_cast<double>(ns) * kMs; }
std::int64_t length(const SaveSpan& span) { return span.end_ns - span.begin_ns; }

std::int64_t last_step_end(std::span<const RankTrace> traces) {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const RankTrace& rank : traces) {
    if (!rank.steps.empty()) end = std::max(end, rank.steps.back().end_ns);
  }
  return end;
}

/// All spans of one checkpoint, by rank.
SaveCost cost_of(std::int64_t steps, const std::vector<std::vector<SaveSpan>>& ranks, std::int64_t last_step_ns) {
  SaveCost cost;
  cost.steps = steps;
  cost.at_end = true;
  std::int64_t stalled = -1, busy = 0, held_up = 0;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = std::numeric_limits<std::int64_t>::min();
  for (const std::vector<SaveSpan>& spans : ranks) {
    EnumTable<SavePart, std::int64_t> stall;
    for (const SaveSpan& span : spans) {
      stall[span.part] += span.stall_ns;
      cost.at_end = cost.at_end && span.begin_ns >= last_step_ns;
      if (span.part == SavePart::wait) continue;
      busy += length(span);
      held_up += span.stall_ns;
      double& longest = span.part == SavePart::copy ? cost.copy_ms : cost.write_ms;
      longest = std::max(longest, ms(length(span)));
      if (span.part == SavePart::copy) continue;
      cost.bytes += span.bytes;
      begin = std::min(begin, span.begin_ns);
      end = std::max(end, span.end_ns);
    }
    const std::int64_t all = std::accumulate(stall.begin(), stall.end(), std::int64_t{0});
    if (all <= stalled) continue;
    stalled = all;
    cost.stall_ms = ms(all);
    cost.waited_ms = ms(stall[SavePart::wait]);
    cost.copied_ms = ms(stall[SavePart::copy]);
    cost.wrote_ms = ms(stall[SavePart::write]);
  }
  if (busy > 0) cost.hidden_pct = 100 * (1 - static_cast<double>(held_up) / static_cast<double>(busy));
  if (end > begin) cost.mb_per_s = static_cast<double>(cost.bytes) / ms(end - begin) * 1e-3;
  return cost;
}

/// Lengths of the measured steps, each with its slowest rank: beside which nothing was saved, and the others.
std::array<std::vector<double>, 2> steps_ms(std::span<const RankTrace> traces) {
  std::array<std::vector<double>, 2> all;
  for (std::size_t s = 0; s < traces.front().steps.size(); ++s) {
    std::int64_t slowest = 0;
    bool beside = false;
    for (const RankTrace& rank : traces) {
      if (s >= rank.steps.size()) continue;
      const trace::StepWindow& window = rank.steps[s];
      slowest = std::max(slowest, window.end_ns - window.begin_ns);
      beside = beside || std::ranges::any_of(rank.saves, [&](const SaveSpan& span) {
                 return span.begin_ns < window.end_ns && window.begin_ns < span.end_ns;
               });
    }
    all[beside ? 1 : 0].push_back(ms(slowest));
  }
  return all;
}

std::string because(const CheckpointCost& cost, double step_ms, std::int64_t every) {
  EnumTable<SavePart, std::vector<double>> parts;
  std::vector<double> copies, writes;
  for (const SaveCost& save : cost.saves) {
    if (save.at_end) continue;
    parts[SavePart::wait].push_back(save.waited_ms);
    parts[SavePart::copy].push_back(save.copied_ms);
    parts[SavePart::write].push_back(save.wrote_ms);
    copies.push_back(save.copy_ms);
    writes.push_back(save.write_ms);
  }
  EnumTable<SavePart, double> typical;
  for (const SavePart part : kEnumerators<SavePart>) typical[part] = median(parts[part]);
  const SavePart most =
      *std::ranges::max_element(kEnumerators<SavePart>, {}, [&](SavePart part) { return typical[part]; });
  if (typical[most] < kNothingPct / 100 * step_ms) return {};
  switch (most) {
    case SavePart::write:
      return fmt::format(
          "the training waits until files are on disk; checkpoint.asynchronous = true writes them beside "
          "the steps, from a copy in host memory");
    case SavePart::copy:
      return fmt::format(
          "the update waits for the copy to host memory, which takes {:.1f} ms; a larger batch a step or "
          "more ranks hide it",
          median(copies));
    case SavePart::wait: break;
  }
  const double needed = std::ceil((median(copies) + median(writes)) / std::max(step_ms, kMs)) + 1;
  return fmt::format(
      "a file takes {:.1f} ms, and the next checkpoint comes before it is there; checkpoint.every = {:.0f} "
      "instead of {} hides it",
      median(writes), needed, every);
}

}  // namespace

std::optional<CheckpointCost> checkpoint_cost(std::span<const RankTrace> traces, std::int64_t every) {
  std::map<std::int64_t, std::vector<std::vector<SaveSpan>>> by_steps;
  for (std::size_t r = 0; r < traces.size(); ++r) {
    for (const SaveSpan& span : traces[r].saves) {
      auto& ranks = by_steps[span.steps];
      ranks.resize(traces.size());
      ranks[r].push_back(span);
    }
  }
  if (by_steps.empty()) return std::nullopt;
  CheckpointCost cost;
  const std::int64_t end = last_step_end(traces);
  std::vector<double> stalls;
  for (const auto& [steps, ranks] : by_steps) {
    cost.saves.push_back(cost_of(steps, ranks, end));
    if (!cost.saves.back().at_end) stalls.push_back(cost.saves.back().stall_ms);
  }
  if (stalls.empty()) return cost;
  cost.stall_ms = median(stalls);
  auto [alone, beside] = steps_ms(traces);
  const std::vector<double>& usual = alone.empty() ? beside : alone;
  if (usual.empty()) return cost;
  const double step_ms = median(usual);
  cost.stall_pct = 100 * *cost.stall_ms / step_ms;
  if (std::ssize(alone) >= kFewestSteps && std::ssize(beside) >= kFewestSteps) {
    cost.beside_pct = 100 * (median(beside) / step_ms - 1);
  }
  cost.because = because(cost, step_ms, every);
  return cost;
}

}  // namespace fsdpbench::metrics
