#include "account/settling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "account/statistics.h"

namespace fsdpbench::account {
namespace {

constexpr std::size_t kFewest = 8;
constexpr double kRelevant = 0.01;
constexpr double kDeviations = 3;
constexpr double kMadToSigma = 1.4826;

/// Squared standard error of the mean of what is left after `drop` values, up to a constant factor.
double mser(const std::vector<double>& values, std::size_t drop) {
  const auto left = static_cast<double>(values.size() - drop);
  double sum = 0, squares = 0;
  for (std::size_t i = drop; i < values.size(); ++i) sum += values[i];
  for (std::size_t i = drop; i < values.size(); ++i) squares += (values[i] - sum / left) * (values[i] - sum / left);
  return squares / (left * left);
}

}  // namespace

std::optional<Settling> find_settling(const std::vector<double>& values) {
  if (values.size() < kFewest) return std::nullopt;
  // Beyond the half the error of ever fewer values says little, so White searches no further.
  const std::size_t last = values.size() / 2;
  std::size_t best = 0;
  double least = mser(values, 0);
  for (std::size_t drop = 1; drop <= last; ++drop) {
    const double error = mser(values, drop);
    if (error < least) {
      least = error;
      best = drop;
    }
  }
  if (best == 0) return Settling{};
  const auto cut = values.begin() + static_cast<std::ptrdiff_t>(best);
  const double before = median({values.begin(), cut});
  const double after = median({cut, values.end()});
  std::vector<double> deviations;
  for (auto value = cut; value != values.end(); ++value) deviations.push_back(std::abs(*value - after));
  const double noise = kDeviations * kMadToSigma * median(deviations);
  if (std::abs(before - after) <= std::max(noise, kRelevant * std::abs(after))) return Settling{};
  return Settling{static_cast<int>(best), best == last};
}

}  // namespace fsdpbench::account
