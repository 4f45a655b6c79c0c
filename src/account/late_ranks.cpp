#include "account/late_ranks.h"

#include <algorithm>
#include <cmath>

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

}  // namespace fsdpbench::account
