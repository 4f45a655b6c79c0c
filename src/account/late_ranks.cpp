#include "account/late_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "account/statistics.h"

namespace fsdpbench::account {

double binomial_tail(int trials, int at_least, double chance) {
  if (at_least <= 0) return 1;
  double sum = 0;
  for (int k = at_least; k <= trials; ++k) {
    sum += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) - std::lgamma(trials - k + 1.0) +
                    k * std::log(chance) + (trials - k) * std::log1p(-chance));
  }
  return std::min(1.0, sum);
}

std::vector<Lateness> find_late_ranks(const RankTimes& times, double noise_ms) {
  const std::size_t ranks = times.empty() ? 0 : times.front().size();
  std::vector<Lateness> result(ranks);
  if (ranks < 2) return result;
  std::vector<std::vector<double>> excess(ranks);  // by step
  for (const auto& step : times) {
    std::vector<double> sums(ranks, 0.0);
    for (std::size_t place = 0; place < step.front().size(); ++place) {
      const bool known = std::ranges::all_of(step, [&](const auto& mine) { return mine[place] >= 0; });
      const bool tie = std::ranges::all_of(step, [&](const auto& mine) { return mine[place] == step[0][place]; });
      if (!known || tie) continue;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t mine = step[rank][place];
        std::vector<double> others;
        std::size_t faster = 0;
        for (std::size_t other = 0; other < ranks; ++other) {
          if (other == rank) continue;
          others.push_back(static_cast<double>(step[other][place]));
          faster += step[other][place] < mine ? 1U : 0U;
        }
        ++result[rank].trials;
        if (faster >= (ranks + 1) / 2) ++result[rank].late;
        sums[rank] += static_cast<double>(mine) - median(std::move(others));
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) excess[rank].push_back(sums[rank] / 1e6);
  }
  const auto n = static_cast<double>(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Lateness& mine = result[rank];
    mine.excess_ms = summarize(excess[rank]);
    mine.by_chance = binomial_tail(mine.trials, mine.late, std::floor(n / 2) / n);
    mine.significant = mine.by_chance < kLateLevel / n && mine.excess_ms.ci_low > noise_ms;
  }
  return result;
}
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
