#include "accept/lateness.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "metrics/statistics.h"

namespace fsdpbench::accept {

LatenessReport blame_lateness(const Cluster& cluster, const std::vector<Arrivals>& samples, double least) {
  LatenessReport report;
  const auto ranks = static_cast<std::size_t>(cluster.ranks());
  report.last_share.assign(ranks, 0);
  std::vector<double> waiting, transfers, wholes;
  std::vector<std::vector<double>> lateness(ranks);  // of the rank where it came last
  for (const Arrivals& sample : samples) {
    if (sample.arrival_us.size() != ranks) throw std::invalid_argument("blame_lateness: a sample lacks ranks");
    const auto last = std::ranges::max_element(sample.arrival_us);
    const double wait = *last - metrics::median(sample.arrival_us);
    const auto rank = static_cast<std::size_t>(last - sample.arrival_us.begin());
    report.last_share[rank] += 1 / static_cast<double>(samples.size());
    lateness[rank].push_back(wait);
    waiting.push_back(wait);
    transfers.push_back(sample.transfer_us);
    wholes.push_back(*last + sample.transfer_us);
  }
  report.waiting_us = median_interval(waiting);
  report.transfer_us = median_interval(transfers);
  if (samples.empty()) {
    report.sentence = "no collective was measured";
    return report;
  }
  const auto most = std::ranges::max_element(report.last_share);
  const auto rank = static_cast<std::size_t>(most - report.last_share.begin());
  const double whole = metrics::median(wholes);
  const Interval late = median_interval(lateness[rank]);
  if (*most > 0.5 && late.median > least * whole) {
    Finding& finding = report.late.emplace();
    finding.element = {Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.shortfall = late.median / whole;
    finding.relative = late;
    finding.check = next_check(finding.element, cluster);
    finding.evidence = fmt::format(
        "{} comes last in {:.0f} % of {} collectives; the others wait {:.4g} us for it, and the transfer takes {:.4g} "
        "us",
        name_of(finding.element, cluster), 100 * *most, samples.size(), late.median, report.transfer_us.median);
    report.sentence = finding.evidence;
    return report;
  }
  report.sentence = fmt::format(
      "nobody in particular is late: collectives wait {:.4g} us for their last rank and move bytes for {:.4g} us",
      report.waiting_us.median, report.transfer_us.median);
  return report;
}

}  // namespace fsdpbench::accept
