#include "accept/blame_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "account/statistics.h"

namespace fsdpbench::accept {
namespace {

constexpr double kDrop = 0.05;          // from its own best: less is noise
constexpr double kMostOfTheTime = 0.8;  // what is slow for longer is slow
constexpr std::size_t kFewestLowRounds = 2;

/// Of each rank its rates over the medians of their rounds.
std::vector<std::vector<double>> relative_rates(const Cluster& cluster, const DeviceRounds& rounds) {
  std::vector<std::vector<double>> relative(static_cast<std::size_t>(cluster.ranks()));
  for (const std::vector<double>& round : rounds) {
    if (round.size() != relative.size()) throw std::invalid_argument("blame_devices: a round lacks ranks");
    std::vector<double> there;
    std::ranges::copy_if(round, std::back_inserter(there), [](double rate) { return rate > 0; });
    if (there.empty()) continue;
    const double middle = account::median(there);
    for (std::size_t rank = 0; rank < round.size(); ++rank) {
      if (round[rank] > 0) relative[rank].push_back(round[rank] / middle);
    }
  }
  return relative;
}

/// What it reaches in its better rounds.
double own_best(std::vector<double> rates) {
  std::ranges::sort(rates);
  return rates[rates.size() * 4 / 5 - (rates.size() % 5 == 0 ? 1 : 0)];
}

}  // namespace

std::vector<Finding> blame_devices(const Cluster& cluster, const DeviceRounds& rounds, std::string_view at) {
  const std::vector<std::vector<double>> relative = relative_rates(cluster, rounds);
  std::vector<double> scores;
  for (const std::vector<double>& rates : relative) {
    if (!rates.empty()) scores.push_back(account::median(rates));
  }
  std::vector<Finding> findings;
  if (scores.size() < kFewestPeers) return findings;
  const double allowed = allowed_shortfall(scores);

  for (std::size_t rank = 0; rank < relative.size(); ++rank) {
    const std::vector<double>& rates = relative[rank];
    if (rates.empty()) continue;
    const double best = own_best(rates);
    const auto low =
        static_cast<std::size_t>(std::ranges::count_if(rates, [&](double rate) { return rate < best * (1 - kDrop); }));
    Finding finding;
    finding.element = {Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.relative = median_interval(rates);
    finding.check = next_check(finding.element, cluster);
    const std::string name = name_of(finding.element, cluster);
    // One that stays below its peers also in its better rounds is slow, however much it scatters.
    const bool always_below = finding.relative.high < 1 - allowed && best < 1 - allowed;
    const bool came_and_went =
        low >= kFewestLowRounds && static_cast<double>(low) < kMostOfTheTime * static_cast<double>(rates.size());
    if (came_and_went && !always_below) {
      finding.kind = Finding::Kind::transient;
      finding.shortfall = 1 - *std::ranges::min_element(rates) / best;
      finding.evidence =
          fmt::format("{} fell by up to {:.0f} % in {} of {} rounds of {} and was as fast as ever in the others", name,
                      100 * finding.shortfall, low, rates.size(), at);
    } else if (finding.relative.median < 1 - allowed) {
      finding.shortfall = 1 - finding.relative.median;
      finding.evidence = fmt::format(
          "{} reaches {:.1f} % of the median of {} ranks in {} (95 %: {:.1f} to {:.1f}, {} rounds); up to {:.1f} % "
          "less "
          "would be their own scatter",
          name, 100 * finding.relative.median, scores.size(), at, 100 * finding.relative.low,
          100 * finding.relative.high, rates.size(), 100 * allowed);
    } else {
      continue;
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace fsdpbench::accept
