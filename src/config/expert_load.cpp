#include "config/expert_load.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace fsdpbench::config {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

double sum_of(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Each at most `most` times the mean of all.
std::vector<double> limited(std::span<const double> of_expert, double most) {
  const double mean = sum_of(of_expert) / static_cast<double>(of_expert.size());
  std::vector<double> rows(of_expert.begin(), of_expert.end());
  for (double& of_one : rows) of_one = std::min(of_one, most * mean);
  return rows;
}

LimitedLoad limited_load_of(std::span<const double> of_expert, std::int64_t ranks, double most) {
  if (most == kNoLimit) return {busiest_over_mean(of_expert, ranks), 1};
  const std::vector<double> rows = limited(of_expert, most);
  const double all = sum_of(of_expert), share = all > 0 ? sum_of(rows) / all : 0;
  return {busiest_over_mean(rows, ranks) * share, share};
}

/// The busiest of `ranks` would get `value` times the mean, the others as much as each other.
LimitedLoad limited_load_of(double value, std::int64_t ranks, double most) {
  const auto all = static_cast<double>(ranks);
  const double busiest = std::min(value, most);
  if (ranks == 1) return {busiest, busiest};
  return {busiest, most == kNoLimit ? 1 : (busiest + std::min(all - value, (all - 1) * most)) / all};
}

}  // namespace

double busiest_over_mean(std::span<const double> of_expert, std::int64_t ranks) {
  const std::size_t each = of_expert.size() / static_cast<std::size_t>(ranks);
  double all = 0, most = 0;
  for (std::size_t first = 0; first < of_expert.size(); first += each) {
    const auto own = of_expert.subspan(first, each);
    const double rows = std::accumulate(own.begin(), own.end(), 0.0);
    all += rows;
    most = std::max(most, rows);
  }
  return all > 0 ? most * static_cast<double>(ranks) / all : 0;
}

std::vector<double> zipf_shares(std::int64_t experts, std::int64_t active, double exponent) {
  std::vector<double> shares(static_cast<std::size_t>(experts));
  for (std::size_t k = 0; k < shares.size(); ++k) shares[k] = std::pow(static_cast<double>(k + 1), -exponent);
  double weights = std::accumulate(shares.begin(), shares.end(), 0.0);
  auto left = static_cast<double>(active);
  for (double& share :
       shares) {  // the most popular first: who would have more than all tokens leaves the rest to others
    const double weight = std::exchange(share, std::min(1.0, share * left / weights));
    weights -= weight;
    left -= share;
  }
  return shares;
}

double imbalance_of(const ExpertLoad& load, std::int64_t experts, std::int64_t active, std::int64_t ranks) {
  return limited_load(load, experts, active, ranks, kNoLimit).busiest;
}

LimitedLoad limited_load(const ExpertLoad& load, std::int64_t experts, std::int64_t active, std::int64_t ranks,
                         double most) {
  if (ranks == 1 || load.even()) return limited_load_of(1, ranks, most);
  switch (load.kind) {
    case ExpertLoad::Kind::factor: return limited_load_of(load.value, ranks, most);
    case ExpertLoad::Kind::rows:
      return limited_load_of(std::vector<double>(load.rows.begin(), load.rows.end()), ranks, most);
    case ExpertLoad::Kind::zipf: break;
  }
  constexpr int kPlacements = 200;
  std::vector<double> shares = zipf_shares(experts, active, load.value);
  double sum = 0, mean = 0;
  std::uint64_t drawn = 0;
  for (int placement = 0; placement < kPlacements; ++placement) {
    for (std::size_t left = shares.size(); left > 1; --left) {
      std::swap(shares[left - 1], shares[split_mixed(drawn++) % left]);
    }
    const LimitedLoad placed = limited_load_of(shares, ranks, most);
    sum += placed.busiest;
    mean = placed.mean;  // the same for each placement
  }
  return {sum / kPlacements, mean};
}

}  // namespace fsdpbench::config
