#include "accept/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "account/late_ranks.h"
#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "record/table.h"

namespace fsdpbench::accept {
namespace {

constexpr double kChance = 0.01;  // of an accusation, if the rank is last in half of all samples

bool reduces(const schedule::Op& op) {
  using schedule::OpKind;
  return op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_reduce;
}

/// Adds op `i` of `step` to `sums`; `since_ns`: when the reduction before it was over. Returns when this one was.
std::int64_t add_reduction(const account::StepRecords& step, std::size_t i, std::int64_t since_ns, Arrivals& sums) {
  const auto us_since = [&](std::int64_t ns) { return static_cast<double>(ns - since_ns) * 1e-3; };
  double last_us = -std::numeric_limits<double>::infinity();
  std::int64_t end_ns = since_ns;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    const trace::Record& r = step.of(rank)[i];
    const double arrival_us = us_since(r.begin_ns - r.core_wait_ns);
    sums.arrival_us[rank] += arrival_us;
    last_us = std::max(last_us, arrival_us);
    end_ns = std::max(end_ns, r.end_ns);
  }
  sums.transfer_us += us_since(end_ns) - last_us;
  return end_ns;
}

bool was_timed(const account::StepRecords& step, std::size_t i) {
  for (int rank = 0; rank < step.ranks(); ++rank) {
    if (step.of(rank)[i].begin_ns == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<Arrivals> arrivals_of(const account::RunView& run) {
  std::vector<Arrivals> samples;
  for (const account::StepRecords& step : run.steps()) {
    const std::vector<schedule::Op>& ops = step.schedule().ops;
    const auto computes = [](const schedule::Op& op) { return account::classify(op) == account::OpClass::computation; };
    if (std::ranges::none_of(ops, computes)) continue;
    std::int64_t since_ns = std::numeric_limits<std::int64_t>::max();
    for (int rank = 0; rank < step.ranks(); ++rank) since_ns = std::min(since_ns, step.window(rank).begin_ns);
    Arrivals sums{std::vector<double>(step.ranks()), 0};
    bool any = false;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!reduces(ops[i]) || !was_timed(step, i)) continue;
      since_ns = add_reduction(step, i, since_ns, sums);
      any = true;
    }
    if (any) samples.push_back(std::move(sums));
  }
  return samples;
}

LatenessReport blame_lateness(const Cluster& cluster, const std::vector<Arrivals>& samples, double least) {
  LatenessReport report;
  const std::size_t ranks = cluster.ranks();
  report.last_share.assign(ranks, 0);
  std::vector<double> waiting, transfers, wholes;
  std::vector<std::vector<double>> lateness(ranks);  // of the rank where it came last
  for (const Arrivals& sample : samples) {
    if (sample.arrival_us.size() != ranks) throw std::invalid_argument("blame_lateness: a sample lacks ranks");
    const auto last = std::ranges::max_element(sample.arrival_us);
    const double wait = *last - account::median(sample.arrival_us);
    const std::size_t rank = last - sample.arrival_us.begin();
    report.last_share[rank] += 1 / static_cast<double>(samples.size());
    lateness[rank].push_back(wait);
    waiting.push_back(wait);
    transfers.push_back(sample.transfer_us);
    wholes.push_back(*last + sample.transfer_us);
  }
  report.waiting_us = median_interval(waiting);
  report.transfer_us = median_interval(transfers);
  if (samples.empty()) {
    report.sentence = "no step was measured";
    return report;
  }
  const std::string waits = app::shown(report.waiting_us.median, "us");
  const std::string moves = app::shown(report.transfer_us.median, "us");
  const auto most = std::ranges::max_element(report.last_share);
  const std::size_t rank = most - report.last_share.begin();
  const double whole = account::median(wholes);
  const Interval late = median_interval(lateness[rank]);
  const bool most_of_the_time = account::binomial_tail(static_cast<int>(samples.size()), late.n, 0.5) < kChance &&
                                cluster.ranks() >= kFewestToBeLate;
  if (most_of_the_time && late.low > least * whole) {
    Finding& finding = report.late.emplace();
    finding.element = {Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.shortfall = late.median / whole;
    finding.relative = late;
    finding.check = next_check(finding.element, cluster, SlowAt::work);
    finding.evidence = fmt::format(
        "{} comes last in {:.0f} % of {} steps; the others wait {} a step for it, and the transfers take {}",
        name_of(finding.element, cluster), 100 * *most, samples.size(), app::shown(late.median, "us"), moves);
    report.sentence = finding.evidence;
    return report;
  }
  report.in_turn = report.waiting_us.low > least * whole;
  if (report.in_turn) {
    report.sentence = fmt::format(
        "no rank is last most of the time, and yet the collectives of a step wait {} for their last rank, "
        "{:.0f} % of the time until they end, and move bytes for {}: all ranks are late in turn, as from other work on "
        "their cores, data that comes late, or clocks that change",
        waits, 100 * report.waiting_us.median / whole, moves);
    return report;
  }
  report.sentence = fmt::format(
      "nobody in particular is late: the collectives of a step wait {} for their last rank and move bytes for {}",
      waits, moves);
  return report;
}

}  // namespace fsdpbench::accept
