#include "config/expert_load.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace fsdpbench::config {

double busiest_over_mean(std::span<const double> of_expert, std::int64_t ranks) {
  const std::size_t each = of_expert.size() / ranks;
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
  std::vector<double> shares(experts);
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
  if (ranks == 1 || load.even()) return 1;
  switch (load.kind) {
    case ExpertLoad::Kind::factor: return load.value;
    case ExpertLoad::Kind::rows:
      return busiest_over_mean(std::vector<double>(load.rows.begin(), load.rows.end()), ranks);
    case ExpertLoad::Kind::zipf: break;
  }
  constexpr int kPlacements = 200;
  std::vector<double> shares = zipf_shares(experts, active, load.value);
  double sum = 0;
  std::uint64_t drawn = 0;
  for (int placement = 0; placement < kPlacements; ++placement) {
    for (std::size_t left = shares.size(); left > 1; --left) {
      std::swap(shares[left - 1], shares[split_mixed(drawn++) % left]);
    }
    sum += busiest_over_mean(shares, ranks);
  }
  return sum / kPlacements;
}

}  // namespace fsdpbench::config
