#include "accept/robust.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "account/statistics.h"

namespace fsdpbench::accept {

double robust_deviation(std::span<const double> values) {
  const double middle = account::median({values.begin(), values.end()});
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * account::median(std::move(distances));
}

double allowed_shortfall(std::span<const double> relative, double least) {
  const double deviation = robust_deviation(relative);
  return std::max(least, 3 * deviation) + 2 * 1.25 * deviation / std::sqrt(static_cast<double>(relative.size()));
}

namespace {

constexpr std::size_t kRoundsWithinGroups = 4;

/// Appends round i of `more`, whose ends are places in `members`, to round i of `rounds`.
void lay_beside(std::vector<Round>& rounds, const std::vector<Round>& more, const std::vector<int>& members) {
  for (std::size_t i = 0; i < std::min(rounds.size(), more.size()); ++i) {
    for (const Pairing& p : more[i]) {
      rounds[i].push_back({members[p.a], members[p.b]});
    }
  }
}

}  // namespace

std::vector<Round> round_robin(int ends) {
  if (ends < 2) return {};
  const int seats = ends + ends % 2;  // the last seat of an odd number is empty: who meets it rests
  std::vector<Round> rounds(seats - 1);
  for (int r = 0; r < seats - 1; ++r) {
    for (int i = 0; i < seats / 2; ++i) {
      // One sits still, the others move on by a seat a round.
      const int a = i == 0 ? seats - 1 : (r + i) % (seats - 1);
      const int b = (r + seats - 1 - i) % (seats - 1);
      if (a < ends && b < ends) rounds[r].push_back({std::min(a, b), std::max(a, b)});
    }
  }
  return rounds;
}

std::vector<Round> first_rounds(const Cluster& cluster) {
  const int ends = cluster.ends();
  if (ends <= kMostForAllPairs) return round_robin(ends);
  const Groups groups = groups_of(cluster);
  std::vector<Round> rounds(kRoundsWithinGroups);
  for (const std::vector<int>& members : groups.members) {
    lay_beside(rounds, round_robin(static_cast<int>(members.size())), members);
  }
  std::size_t shift = 0;
  for (const Round& groups_that_meet : round_robin(groups.count())) {
    Round& round = rounds.emplace_back();
    ++shift;  // so that not always the same members of two groups have the same number
    for (const Pairing& g : groups_that_meet) {
      const std::vector<int>& a = groups.members[g.a];
      const std::vector<int>& b = groups.members[g.b];
      const std::size_t both = std::min(a.size(), b.size());
      for (std::size_t i = 0; i < both; ++i) {
        const auto [low, high] = std::minmax(a[i], b[(i + shift) % both]);
        round.push_back({low, high});
      }
    }
  }
  return rounds;
}

std::int64_t measurements(const std::vector<Round>& rounds) {
  std::int64_t count = 0;
  for (const Round& round : rounds) count += static_cast<std::int64_t>(round.size());
  return count;
}

}  // namespace fsdpbench::accept
